"""What a script may not hold, as it runs in the transaction of the rows around it."""

from __future__ import annotations

import pytest

from tranrepl.postgres.script_check import refusal

_TRANSACTION = "it ends or begins a transaction"
_OUTSIDE = "outside of transactions only"


@pytest.mark.parametrize(
    "script",
    [
        "GRANT SELECT ON t TO x; CREATE VIEW v AS SELECT 1;",
        "DO $$ BEGIN PERFORM ';'; END $$; SELECT 'COMMIT;', E'\\'; COMMIT; --'",
        "/* a /* nested; COMMIT */; COMMIT; */ SELECT 1 -- it's one",
        "CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT CASE WHEN true THEN 1 END; SELECT 2; END; SELECT 1",
        'SELECT 1 AS "commit"; SAVEPOINT a; ROLLBACK TO SAVEPOINT a; SET CONSTRAINTS ALL IMMEDIATE',
        "CREATE INDEX i ON t (concurrently_)",
        "SELECT '\n\\d t', E'\n\\d', $$;\n\\d$$, $a$;\\d$a$; -- ;\\d\n/* ;\n\\d */ SELECT 1 AS \"\\d\"",
    ],
)
def test_a_script_of_statements_for_any_transaction_may_run(script: str) -> None:
    assert refusal(script) is None


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("SELECT 1; COMMIT", _TRANSACTION),
        ("end", _TRANSACTION),
        ("Rollback Work", _TRANSACTION),
        ("BEGIN; SELECT 1", _TRANSACTION),
        ("PREPARE TRANSACTION 'a'", _TRANSACTION),
        ("CALL p('a;b'); COMMIT; CALL p(';')", _TRANSACTION),
        ("CREATE FUNCTION f() RETURNS int LANGUAGE sql BEGIN ATOMIC SELECT 1; END; END", _TRANSACTION),
        ("CREATE UNIQUE INDEX CONCURRENTLY i ON t (a)", _OUTSIDE),
        ("ALTER TABLE t DETACH PARTITION p CONCURRENTLY", _OUTSIDE),
        ("VACUUM t", _OUTSIDE),
        ("SET search_path = a", "it changes the session"),
        ("COPY t FROM STDIN", "a client"),
        ("\\d t", "psql's own commands are not SQL"),
        ("SELECT 1;\n  \\connect other\nSELECT 2", "psql's own commands are not SQL"),
        ("-- nothing\n;", "it holds no statement"),
        ("SELECT 'open", "it cannot be read as SQL"),
    ],
)
def test_a_script_that_cannot_run_in_a_transaction_is_refused(script: str, why: str) -> None:
    assert why in (refusal(script) or "")
