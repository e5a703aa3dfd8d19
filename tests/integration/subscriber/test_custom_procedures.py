"""Custom procedures: called with the documented arguments, checked, never generated, never overwritten."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from random import Random

import psycopg
import pytest

from conftest import DatabasesFactory
from support import adventure_works, purchasing_work
from support.databases import Databases
from support.embedded_postgres import PostgresServer
from support.in_process import deliver_commands, read_commands, replicate
from support.site import Rows, Site
from support.spark_here import SparkHere
from tranrepl.admin.check import check
from tranrepl.errors import CustomProcedureError, ErrorKind
from tranrepl.log_reader.opening import open_log_reader
from tranrepl.postgres.session import connect
from tranrepl.subscriber.batching import staging
from tranrepl.subscriber.postgres.destination import find_targets
from tranrepl.subscriber.postgres.procedures import Procedure, custom_procedures

VENDOR = (
    "CREATE TABLE vendor (vendor_id int, name varchar(50), note text, rating smallint, PRIMARY KEY (vendor_id, rating))"
)
CALLED = "CREATE TABLE called (seq int GENERATED ALWAYS AS IDENTITY, arguments text[])"


def _recorder(name: str, parameters: str, count: int) -> str:
    """Return a procedure that records what it was called with."""
    values = ", ".join(f"(${at})::text" for at in range(1, count + 1))
    return (
        f"CREATE PROCEDURE {name}({parameters}) LANGUAGE plpgsql AS $$ BEGIN "
        f"INSERT INTO called (arguments) VALUES (ARRAY[{values}]); END $$"
    )


_NEW = "c1 int, c2 varchar, c3 text, c4 smallint"
_OLD = "o1 int, o2 varchar, o3 text, o4 smallint"
_KEY = "k1 int, k2 smallint"

# One UPDATE sets note to NULL and changes the name, one moves the key.
_UPDATES = {
    "CALL": (
        f"{_NEW}, {_KEY}",
        6,
        [["1", "new", None, "5", "1", "5"], ["1", "new", None, "6", "1", "5"]],
    ),
    "SCALL": (
        f"{_NEW}, {_KEY}, mask bytea",
        7,
        [[None, "new", None, None, "1", "5", "\\x06"], [None, None, None, "6", "1", "5", "\\x08"]],
    ),
    "MCALL": (
        f"{_NEW}, {_KEY}, mask bytea",
        7,
        [["1", "new", None, "5", "1", "5", "\\x06"], ["1", "new", None, "6", "1", "5", "\\x08"]],
    ),
    "XCALL": (
        f"{_OLD}, {_NEW}",
        8,
        [
            ["1", "old", "note", "5", "1", "new", None, "5"],
            ["1", "new", None, "5", "1", "new", None, "6"],
        ],
    ),
}


@pytest.mark.parametrize("syntax", _UPDATES)
def test_an_update_is_passed_what_its_syntax_says(syntax: str, databases: DatabasesFactory, tmp_path: Path) -> None:
    parameters, count, expected = _UPDATES[syntax]
    site = _site(databases(), tmp_path, {"upd_cmd": f"{syntax} apart.on_update", "update_policy": "singleton_update"})
    site.at_subscriber(CALLED, "CREATE SCHEMA apart", _recorder("apart.on_update", parameters, count))
    assert check(site.topology).problems == []
    site.at_publisher("INSERT INTO vendor VALUES (1, 'old', 'note', 5)")
    replicate(site)
    site.at_publisher("UPDATE vendor SET name = 'new', note = NULL", "UPDATE vendor SET rating = 6")
    read = replicate(site)
    assert site.at_subscriber("SELECT arguments FROM called ORDER BY seq") == [(it,) for it in expected]
    assert all(text.startswith("{CALL [apart].[on_update] (") for text in read.texts())
    # Nothing is generated for it, and the procedures beside it are.
    generated = site.at_subscriber("SELECT proname FROM pg_proc WHERE proname LIKE 'sp\\_MS%' ORDER BY 1")
    assert generated == [("sp_MSdel_publicvendor",), ("sp_MSins_publicvendor",)]


@pytest.mark.parametrize(
    ("option", "syntax", "parameters", "count", "expected"),
    [
        ("ins_cmd", "CALL", _NEW, 4, ["1", "old", "note", "5"]),
        ("del_cmd", "CALL", _KEY, 2, ["1", "5"]),
        ("del_cmd", "XCALL", _OLD, 4, ["1", "old", "note", "5"]),
    ],
)
def test_inserts_and_deletes_are_passed_what_their_syntax_says(
    option: str,
    syntax: str,
    parameters: str,
    count: int,
    expected: list[str],
    databases: DatabasesFactory,
    tmp_path: Path,
) -> None:
    site = _site(databases(), tmp_path, {option: f'{syntax} "On Change"'})
    site.at_subscriber(CALLED, _recorder('"On Change"', parameters, count))
    site.at_publisher("INSERT INTO vendor VALUES (1, 'old', 'note', 5)", "DELETE FROM vendor")
    read = read_commands(site)
    # Where the row was not inserted, the generated procedure does not find it.
    if option == "ins_cmd":
        read = replace(read, commands=read.commands.slice(0, 1))
    deliver_commands(site, read).raise_error()
    assert site.at_subscriber("SELECT arguments FROM called") == [(expected,)]


def test_before_images_of_large_columns_stay_behind(databases: DatabasesFactory, tmp_path: Path) -> None:
    settings = {"upd_cmd": "XCALL", "del_cmd": "XCALL", "lob_columns": ["note"], "update_policy": "singleton_update"}
    site = _site(databases(), tmp_path, settings)
    site.at_publisher(
        "INSERT INTO vendor VALUES (1, 'n', 'long', 5)", "UPDATE vendor SET rating = 6", "DELETE FROM vendor"
    )
    assert replicate(site).texts()[1:] == [
        "{CALL [sp_MSupd_publicvendor] (1,'n',NULL,5,1,'n','long',6)}",
        "{CALL [sp_MSdel_publicvendor] (1,'n',NULL,6)}",
    ]
    assert site.at_subscriber("SELECT * FROM vendor") == []


def _site(databases: Databases, tmp_path: Path, settings: Mapping[str, object]) -> Site:
    site = Site(databases, tmp_path / "store", [{"source": "public.vendor", **settings}], SparkHere())
    site.at_publisher(VENDOR)
    site.set_up()
    return site


# What check says

_DECLARED = {
    "missing": "SELECT",
    "other types": f"CREATE PROCEDURE {{mine}}({_NEW}, k1 date, k2 smallint, mask bytea) LANGUAGE sql AS ''",
    "too few": f"CREATE PROCEDURE {{mine}}({_NEW}) LANGUAGE sql AS ''",
    "a function": f"CREATE FUNCTION {{mine}}({_NEW}, {_KEY}, mask bytea) RETURNS void LANGUAGE sql AS ''",
    "gives back": f"CREATE PROCEDURE {{mine}}(INOUT {_NEW}, {_KEY}, mask bytea) LANGUAGE sql AS 'SELECT 1'",
}


def test_check_names_the_signature_that_a_procedure_should_have(databases: DatabasesFactory, tmp_path: Path) -> None:
    calls = {f"vendor_{at}": f"mine_{at}" for at in range(len(_DECLARED))}
    articles = [{"source": f"public.{table}", "upd_cmd": f"SCALL {mine}"} for table, mine in calls.items()]
    site = Site(databases(), tmp_path / "store", articles, SparkHere())
    site.at_publisher(*(VENDOR.replace("vendor", table, 1) for table in calls))
    site.set_up()
    site.at_subscriber(*(it.format(mine=mine) for it, mine in zip(_DECLARED.values(), calls.values(), strict=True)))
    problems = check(site.topology).problems
    for how, (table, mine), problem in zip(_DECLARED, calls.items(), problems, strict=True):
        assert isinstance(problem, CustomProcedureError)
        assert (
            f"article public.{table}: Subscriber reporting: there is no procedure that takes the call of "
            f'"public"."{mine}"'
        ) in problem.message, how
        assert (
            f'PROCEDURE "public"."{mine}"("c1" integer, "c2" character varying, "c3" text, "c4" smallint, '
            '"pkc1" integer, "pkc2" smallint, "bitmap" bytea)'
        ) in (problem.report.remedy or ""), how


def test_a_wider_parameter_will_do(databases: DatabasesFactory, tmp_path: Path) -> None:
    site = _site(databases(), tmp_path, {"del_cmd": "CALL mine"})
    site.at_subscriber("CREATE PROCEDURE mine(bigint, numeric, more text DEFAULT '') LANGUAGE sql AS ''")
    assert check(site.topology).problems == []


def test_what_none_drops_is_warned_of(databases: DatabasesFactory, tmp_path: Path) -> None:
    site = _site(databases(), tmp_path, {"ins_cmd": "NONE"})
    checked = check(site.topology)
    assert checked.problems == []
    (warning,) = checked.warnings
    assert (
        "public.vendor: ins_cmd: NONE also drops the INSERT of an UPDATE that is sent as DELETE and INSERT" in warning
    )


def test_a_procedure_that_commits_is_named_and_nothing_of_its_batch_stays(
    databases: DatabasesFactory, tmp_path: Path
) -> None:
    site = _site(databases(), tmp_path, {"del_cmd": "CALL mine"})
    site.at_subscriber("CREATE PROCEDURE mine(int, smallint) LANGUAGE plpgsql AS $$ BEGIN COMMIT; END $$")
    site.at_publisher("INSERT INTO vendor VALUES (1, 'old', 'note', 5)", "DELETE FROM vendor")
    read = read_commands(site)
    error = deliver_commands(site, read).error
    assert error is not None
    assert (error.kind, error.database_code, error.article) == (ErrorKind.CONFIGURATION, "2D000", "public.vendor")
    assert "a procedure ended the transaction by itself" in error.message
    assert "no COMMIT" in (error.remedy or "")
    assert site.at_subscriber("SELECT * FROM vendor") == []


# Skeletons, and an audit by them


def _skeletons(site: Site) -> list[Procedure]:
    """Return what `tranrepl script --custom` prints."""
    with open_log_reader(site.topology) as opened, connect(site.databases.subscriber, "test") as session:
        articles = opened.database.articles.active(site.publication, opened.record)
        targets = find_targets(session, "Subscriber reporting", articles)
        return [it for target in targets for it in custom_procedures(target)]


def _texts_of(procedures: Iterable[Procedure]) -> list[str]:
    return [it.create().as_string(None) for it in procedures]


def test_a_skeleton_is_a_procedure_that_works(databases: DatabasesFactory, tmp_path: Path) -> None:
    settings = {"ins_cmd": "CALL a", "upd_cmd": "MCALL b", "del_cmd": "XCALL c", "update_policy": "singleton_update"}
    site = _site(databases(), tmp_path, settings)
    site.at_subscriber(*_texts_of(_skeletons(site)))
    assert check(site.topology).problems == []
    site.at_publisher(
        "INSERT INTO vendor SELECT n, 'name', 'note', n FROM generate_series(1, 5) n",
        "UPDATE vendor SET note = NULL WHERE vendor_id = 2",
        "UPDATE vendor SET vendor_id = 9 WHERE vendor_id = 3",
        "DELETE FROM vendor WHERE vendor_id = 4",
    )
    replicate(site)
    assert site.differences() == []
    site.at_subscriber("DELETE FROM vendor WHERE vendor_id = 1")
    site.at_publisher("DELETE FROM vendor WHERE vendor_id = 1")
    error = deliver_commands(site, read_commands(site)).error
    assert error is not None
    assert error.number == "20598"


_PUBLISHER_AUDIT = (
    "CREATE TABLE public.told (seq bigint GENERATED ALWAYS AS IDENTITY, relation text, operation text, "
    "before text[], after text[])"
)
# An UPDATE that changes nothing sends nothing.
_TELLER = """
CREATE FUNCTION public.tell_{table}() RETURNS trigger LANGUAGE plpgsql SET TimeZone = 'UTC' AS $$ BEGIN
  IF TG_OP <> 'UPDATE' OR OLD IS DISTINCT FROM NEW THEN
    INSERT INTO public.told (relation, operation, before, after) VALUES ('{table}', TG_OP,
      CASE WHEN TG_OP <> 'INSERT' THEN ARRAY[{before}] END, CASE WHEN TG_OP <> 'DELETE' THEN ARRAY[{after}] END);
  END IF;
  RETURN NULL;
END $$
"""
_SUBSCRIBER_AUDIT = (
    "CREATE TABLE public.heard (seq bigint GENERATED ALWAYS AS IDENTITY, relation text, operation text, "
    "before text[], after text[])"
)
_AUDITED = {"ins_cmd": "CALL", "upd_cmd": "XCALL", "del_cmd": "XCALL"}


def _audited(source: str) -> dict[str, object]:
    """Return an article with all changes by a custom procedure that also records them; no pairs, so that one is one."""
    table = source.split(".")[1]
    calls = {option: f"{syntax} {option[:3]}_{table}" for option, syntax in _AUDITED.items()}
    return {"source": source, **calls}


def _install_audit(site: Site) -> None:
    """Create triggers at the Publisher, and at the Subscriber the skeletons, which also record what they are passed."""
    site.at_publisher(_PUBLISHER_AUDIT)
    site.at_subscriber(_SUBSCRIBER_AUDIT)
    for article in site.publication.articles:
        table = article.source.table
        (columns,) = site.at_publisher(
            "SELECT array_agg(attname::text ORDER BY attnum) FROM pg_attribute "
            f"WHERE attrelid = '{article.source}'::regclass AND attnum > 0 AND attgenerated = ''"
        )[0]
        before, after = (", ".join(f"{row}.{column}::text" for column in columns) for row in ("OLD", "NEW"))
        site.at_publisher(
            _TELLER.format(table=table, before=before, after=after),
            f"CREATE TRIGGER tell AFTER INSERT OR UPDATE OR DELETE ON {article.source} "
            f"FOR EACH ROW EXECUTE FUNCTION public.tell_{table}()",
        )
    site.at_subscriber(*_texts_of(_writing_down(it) for it in _skeletons(site)))


def _writing_down(skeleton: Procedure) -> Procedure:
    operation, table = skeleton.name.split("_", 1)
    verb = {"ins": "INSERT", "upd": "UPDATE", "del": "DELETE"}[operation]
    names = [name for name, _ in skeleton.parameters]
    before, after = (", ".join(f"{name}::text" for name in names if name.startswith(start)) for start in ("old_c", "c"))
    images = ", ".join(f"ARRAY[{image}]" if image else "NULL" for image in (before, after))
    note = (
        f"  INSERT INTO public.heard (relation, operation, before, after)\n  VALUES ('{table}', '{verb}', {images});\n"
    )
    at = skeleton.body.rindex("END\n")
    return replace(skeleton, body=skeleton.body[:at] + note + skeleton.body[at:])


_ACCOUNT = "SELECT relation, operation, before, after FROM public.{} ORDER BY relation, seq"


@pytest.mark.slow
def test_an_audit_hears_of_every_change_of_a_bank_once(
    databases: DatabasesFactory, postgres: PostgresServer, tmp_path: Path
) -> None:
    tables = ("pgbench_accounts", "pgbench_branches", "pgbench_tellers", "pgbench_history")
    site = Site(databases(), tmp_path / "store", [_audited(f"public.{it}") for it in tables])
    publisher = site.databases.publisher.database or ""
    postgres.run("pgbench", "--initialize", "--init-steps=dtp", "--scale=1", "--quiet", database=publisher)
    site.at_publisher("ALTER TABLE pgbench_history ADD COLUMN hid bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY")
    site.set_up()
    # After setup: the first rows go the same way.
    _install_audit(site)
    postgres.run("pgbench", "--initialize", "--init-steps=G", "--scale=1", "--quiet", database=publisher)
    site.at_publisher("DELETE FROM pgbench_accounts WHERE aid > 2000", "DELETE FROM pgbench_tellers WHERE tid = 10")
    # One client: the triggers' order is then the order of commits.
    postgres.run("pgbench", "--no-vacuum", "--client=1", "--transactions=1000", "--random-seed=4", database=publisher)
    replicate(site)
    told = site.at_publisher(_ACCOUNT.format("told"))
    assert len(told) > 100_000
    assert site.at_subscriber(_ACCOUNT.format("heard")) == told
    assert site.differences() == []


@pytest.mark.skipif(not adventure_works.FOLDER.is_dir(), reason=f"{adventure_works.FOLDER} is absent")
def test_an_audit_hears_of_every_change_of_a_purchasing_department_once(
    databases: DatabasesFactory, tmp_path: Path
) -> None:
    tables = ("vendor", "ship_method", "product_vendor", "purchase_order_header", "purchase_order_detail")
    site = Site(databases(), tmp_path / "store", [_audited(f"purchasing.{it}") for it in tables])
    site.at_publisher(adventure_works.SCHEMA)
    site.set_up()
    _install_audit(site)
    random = Random(302341)
    with psycopg.connect(**site.databases.publisher.libpq_parameters("test"), autocommit=True) as session:  # type: ignore[arg-type]
        adventure_works.load(session, random)
        purchasing_work.work(session, random, 4000)
    replicate(site)
    assert site.differences() == []
    told, heard = site.at_publisher(_ACCOUNT.format("told")), site.at_subscriber(_ACCOUNT.format("heard"))
    assert {operation for _, operation, *_ in heard} == {"INSERT", "UPDATE", "DELETE"}
    # An UPDATE of a unique column is heard as DELETE and INSERT.
    assert _rows_that_went_and_came(heard) == _rows_that_went_and_came(told)


def _rows_that_went_and_came(account: Rows) -> Rows:
    rows: Rows = []
    for relation, _, before, after in account:
        rows += [(relation, "went", before)] if before is not None else []
        rows += [(relation, "came", after)] if after is not None else []
    return rows


# Regeneration


def test_an_added_column_regenerates_only_generated_procedures(databases: DatabasesFactory, tmp_path: Path) -> None:
    ends = databases()
    site = _site(ends, tmp_path, {"upd_cmd": "SCALL mine", "update_policy": "singleton_update"})
    site.at_subscriber(*_texts_of(_skeletons(site)))
    site.at_publisher("INSERT INTO vendor VALUES (1, 'old', 'note', 5)")
    replicate(site)
    mine = "SELECT prosrc FROM pg_proc WHERE proname = 'mine'"
    before = site.at_subscriber(mine)

    for alter in (site.at_publisher, site.at_subscriber):
        alter("ALTER TABLE vendor ADD COLUMN added uuid")
    assert site.set_up() == [
        "the Publisher's log has the new definition of article public.vendor, which holds from there on"
    ]
    (attention,) = check(site.topology).needing_attention
    assert '"c5" uuid, "pkc1" integer' in (attention.report.remedy or "")
    site.read_log().raise_error()

    assert site.at_subscriber(mine) == before
    site.at_subscriber("DROP PROCEDURE mine", *_texts_of(_skeletons(site)))
    assert check(site.topology).problems == []
    site.at_publisher(
        "INSERT INTO vendor VALUES (2, 'n', NULL, 1, 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11')",
        "UPDATE vendor SET added = 'b0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11' WHERE vendor_id = 1",
    )
    replicate(site)
    assert site.differences() == []


def test_a_column_trigger_fires_as_often_as_under_the_procedure(
    databases: DatabasesFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "WORTH_A_STATEMENT", 1)
    site = Site(databases(), tmp_path / "store", ["public.t"])
    site.at_publisher("CREATE TABLE t (id int PRIMARY KEY, a int, b int)", "INSERT INTO t VALUES (1), (2), (3)")
    site.set_up()
    site.at_subscriber(
        "INSERT INTO t VALUES (1), (2), (3)",
        "CREATE TABLE seen (id int)",
        "CREATE FUNCTION look_on() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN INSERT INTO seen VALUES (NEW.id); RETURN NULL; END $$",
        "CREATE TRIGGER looks_on AFTER UPDATE OF b ON t FOR EACH ROW EXECUTE FUNCTION look_on()",
    )
    # The generated procedure sets every column but the key's, those that did not change to themselves.
    site.at_publisher("UPDATE t SET a = 7")
    replicate(site)
    assert site.at_subscriber("SELECT id FROM seen ORDER BY id") == [(1,), (2,), (3,)]
