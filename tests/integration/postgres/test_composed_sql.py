"""SQL that is composed from any text, as PostgreSQL's own parser reads it: one statement of the expected kind."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings, strategies as st
from psycopg import sql
from psycopg.pq import DiagnosticField, ExecStatus

from conftest import DatabasesFactory
from support.example_counts import examples
from tranrepl.errors import ConfigurationError
from tranrepl.model.names import TableName
from tranrepl.postgres.session import Session, connect
from tranrepl.subscriber.base.column_steps import AddedColumn, GeneratedColumn
from tranrepl.subscriber.postgres.column_types import PublishersType
from tranrepl.subscriber.postgres.columns import added_column, generated_column
from tranrepl.subscriber.postgres.partition_setup import create_partition

_PIECES = (
    *("(10,2)", "[]", "public", ".", '"a;b"', "'it''s'", "E'\\''", "a", "b", "1", "-", "(", ")", ",", "||", "::", " "),
    *(
        "--",
        "/*",
        "*/",
        "$$",
        "'",
        '"',
        "\\",
        "\n",
        "U&",
        "NULL",
        "true",
        "lower(",
        "SELECT",
        "OPERATOR(",
        "%s",
        "%(x)s",
    ),
    *("\u00a0", "é", "integer", "COLLATE", "DEFAULT", "FOR VALUES IN (", "RANGE ("),
)
_ATTACKS = (
    *("; create table pwned()", "; select 1; --", "; select 1", ", ADD COLUMN evil int", " DEFAULT 1, DROP COLUMN b"),
    *(") STORED, ADD COLUMN evil int GENERATED ALWAYS AS (1", "/**/", " --", ""),
    ") STORED; ALTER TABLE t ADD COLUMN evil int GENERATED ALWAYS AS (1",
    *(" PARTITION BY LIST (b); select (1)", ' COLLATE "C"', "[]", "'; select '1", "\\'; select 1; --"),
)
_KNOWN = {
    "type": ("integer", "text", "numeric(10,2)", "character varying(20)", 'public."a b"'),
    "collation": ('pg_catalog."C"', '"C"'),
    "value": ("1",),
    "expression": ("1", "(b + 1)", "length(a)", "(a || 'x'::text)"),
    "name": ("x",),
    "bound": ("DEFAULT", "FOR VALUES IN ('a')", "FOR VALUES IN ('a', NULL)"),
    "key": ("LIST (a)", "RANGE (b, lower(a))", "HASH (id)"),
}
_ANY_PIECES = st.lists(st.sampled_from((*_PIECES, *_ATTACKS)), max_size=6).map("".join)
_PLACED = st.sampled_from([(place, known) for place, texts in _KNOWN.items() for known in (*texts, "")]).flatmap(
    lambda it: st.tuples(st.just(it[0]), st.one_of(_ANY_PIECES, st.text(max_size=12)).map(lambda text: it[1] + text))
)
_TABLE, _PART = TableName("public", "t"), TableName("public", "part")


def _added(type_name: str = "integer", collation: str | None = None, value: str | None = None) -> sql.Composed:
    step = AddedColumn("c", PublishersType(type_name, collation), type_name, sa.String(), value)
    return sql.SQL("ALTER TABLE t {}").format(added_column(step))


def _generated(expression: str) -> sql.Composed:
    step = GeneratedColumn("c", PublishersType("integer", None), "integer", expression)
    return sql.SQL("ALTER TABLE t {}").format(generated_column(step))


_STATEMENTS: dict[str, Callable[[str], sql.Composed]] = {
    "type": lambda text: _added(type_name=text),
    "collation": lambda text: _added(type_name="text", collation=text),
    "value": lambda text: _added(value=text),
    "expression": _generated,
    "name": lambda text: sql.SQL("ALTER TABLE t RENAME COLUMN a TO {}").format(sql.Identifier(text or "x")),
    "bound": lambda text: create_partition(_PART, _TABLE, text, None),
    "key": lambda text: create_partition(_PART, _TABLE, "DEFAULT", text),
}


def _is_one_statement(session: Session, statement: bytes) -> bool:
    """Return whether PostgreSQL takes the text for one statement; where it takes it for none, nothing can run."""
    if b"\0" in statement:
        return True
    parsed = session.pgconn.prepare(b"", statement)
    if parsed.status == ExecStatus.COMMAND_OK:
        return True
    message = (parsed.error_field(DiagnosticField.MESSAGE_PRIMARY) or b"").decode()
    return "cannot insert multiple commands" not in message


def _changes(session: Session, statement: sql.Composed) -> set[tuple[object, ...]]:
    """Return what the statement leaves of tables and columns beside those that were there; then it is undone."""
    query = (
        "SELECT c.relname, a.attname FROM pg_class c LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 "
        "WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p')"
    )
    before = set(session.execute(query).fetchall())
    try:
        with session.transaction(force_rollback=True):
            session.execute(statement)
            return set(session.execute(query).fetchall()) - before
    except (psycopg.Error, psycopg.DataError):
        return set()


def _is_taken_over(session: Session, place: str, text: str) -> bool:
    """Return whether a text becomes a part of a statement, which must be one and do no more than it is for."""
    try:
        statement = _STATEMENTS[place](text)
        written = statement.as_bytes(session)
    except (ConfigurationError, psycopg.DataError, UnicodeEncodeError):
        return False
    assert _is_one_statement(session, written), written
    made = {("part", name) for name in ("id", "a", "b")} if place in ("bound", "key") else {("t", "c")}
    made_now = _changes(session, statement)
    assert place == "name" or made_now <= made, written
    return True


def test_any_text_is_refused_or_part_of_one_statement(databases: DatabasesFactory) -> None:
    with connect(databases().subscriber, "test", autocommit=True) as session:
        session.execute("SET search_path = public")
        session.execute("CREATE TABLE t (id int, a text, b int) PARTITION BY LIST (a)")

        for place, texts in _KNOWN.items():
            for known in texts:
                assert _is_taken_over(session, place, known), (place, known)
                for attack in _ATTACKS:
                    _is_taken_over(session, place, known + attack)

        @settings(max_examples=examples(1000), deadline=None, suppress_health_check=[HealthCheck.too_slow])
        @given(_PLACED)
        def holds(placed: tuple[str, str]) -> None:
            _is_taken_over(session, *placed)

        holds()


def test_names_and_constants_are_no_places_for_values(databases: DatabasesFactory) -> None:
    odd = "50% %s %(x)s %%"
    with connect(databases().subscriber, "test", autocommit=True) as session:
        session.execute("SET search_path = public")
        table, column = sql.Identifier(odd), sql.Identifier(f"{odd}!")
        session.execute(sql.SQL("CREATE TABLE {} ({} text)").format(table, column))
        insert = sql.SQL("INSERT INTO {} ({}) VALUES (%s), ({})").format(table, column, sql.Literal(odd))
        session.execute(insert, ["one %s"])
        with session.cursor() as cursor:
            cursor.executemany(sql.SQL("INSERT INTO {} VALUES (%(v)s)").format(table), [{"v": "two"}, {"v": "three"}])
        found = session.execute(sql.SQL("SELECT {} FROM {} WHERE {} <> %s").format(column, table, column), ["two"])
        assert found.fetchall() == [("one %s",), (odd,), ("three",)]
