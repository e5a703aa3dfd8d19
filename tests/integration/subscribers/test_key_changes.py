"""A table that gets another primary key, or whose key gets another type: the tables of all Subscribers follow, and
their rows; where they may not, the message has the way on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from conftest import DatabasesFactory
from support.child_job import ChildJob
from support.databases import Databases, shared_databases
from support.embedded_postgres import PostgresServer
from support.killed_jobs import CHANGE_FAILPOINTS, SiteJob
from support.mariadb import MariaDbServer
from support.site import Rows, Site
from support.spark_here import SparkHere
from support.subscribers import STATEMENTS, sqlite_execute
from support.whole_run import good_run, whole_run
from tranrepl.connections import Connection
from tranrepl.errors import ErrorReport
from tranrepl.failpoint import Failpoint
from tranrepl.jobs.requests import ApplyMode, Repair, SnapshotRequest
from tranrepl.snapshot.reinitialization import mark_for_reinitialization

_NAMES = ("postgres", "mariadb", "sqlite")
_KEYS = {
    "postgres": """SELECT a.attname::text FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid
                     AND a.attnum = ANY (i.indkey) WHERE i.indisprimary AND i.indrelid = '{}'::regclass ORDER BY 1""",
    "mariadb": """SELECT column_name FROM information_schema.key_column_usage WHERE table_schema = DATABASE()
                     AND table_name = '{}' AND constraint_name = 'PRIMARY' ORDER BY 1""",
    "sqlite": "SELECT name FROM pragma_table_info('{}') WHERE pk > 0 ORDER BY 1",
}
_COLUMNS = """SELECT attname::text FROM pg_attribute WHERE attrelid = '{}'::regclass AND attnum > 0
                 AND NOT attisdropped ORDER BY 1"""


class Ends:
    """A publication of some tables, and its Subscribers."""

    def __init__(self, site: Site, schema: str, mariadb: MariaDbServer) -> None:
        self.site = site
        self.names = [it.name for it in site.publication.subscriptions]
        self._schema, self._mariadb = schema, mariadb

    def execute(self, name: str, statement: str, table: str = "vendor") -> Rows:
        """Run a statement at a Subscriber; `{}` is the table."""
        if name == "postgres":
            return self.site.at_subscriber(statement.format(f"{self._schema}.{table}"))
        if name == "mariadb":
            return list(self._mariadb.execute(statement.format(table), database=self._schema))
        return sqlite_execute(self.site.connections["sqlite"].database or "")(statement.format(table))

    def key(self, name: str, table: str = "vendor") -> list[str]:
        return [it for (it,) in self.execute(name, _KEYS[name], table)]

    def rows(self, name: str, table: str = "vendor", condition: str = "") -> list[tuple[str, ...]]:
        """Return a whole table's rows in some order, each value as a text; `name` may be the Publisher."""
        columns = ", ".join(it for (it,) in self.site.at_publisher(_COLUMNS.format(table)))
        query = f"SELECT {columns} FROM {{}} {condition}"
        found = self.site.at_publisher(query.format(table)) if name == "" else self.execute(name, query, table)
        return sorted(tuple(map(str, row)) for row in found)

    def assert_followed(self, *key: str, table: str = "vendor", names: tuple[str, ...] = ()) -> None:
        for name in names or self.names:
            assert (name, self.rows(name, table)) == (name, self.rows("", table))
            assert (name, self.key(name, table)) == (name, sorted(key))

    def mark(self, name: str) -> None:
        """Run `tranrepl reinitialize FILE -s NAME --article public.vendor`."""
        request = SnapshotRequest(publication=self.site.publication, subscription=name, articles=("public.vendor",))
        mark_for_reinitialization(request, self.site.topology)


def _ends(
    databases: Databases,
    mariadb: MariaDbServer,
    schema: str,
    folder: Path,
    tables: tuple[str, ...] = ("vendor",),
    names: tuple[str, ...] = _NAMES,
    **settings: Any,
) -> Ends:
    articles = [
        {
            "source": f"public.{it}",
            "destination": f"{schema}.{it}",
            "pre_creation_cmd": "delete",
            **STATEMENTS,
            **settings,
        }
        for it in tables
    ]
    subscriptions = [{"name": it, "connection": it, "sync_type": "automatic"} for it in names]
    site = Site(databases, folder / "store", articles, SparkHere(), subscriptions, replicate_ddl=True)
    site.connections["postgres"] = site.connections["subscriber"]
    site.connections["mariadb"] = mariadb.connection(schema, "mariadb")
    site.connections["sqlite"] = Connection("sqlite", "sqlite", database=str(folder / "subscriber.db"))
    site.at_subscriber(f"CREATE SCHEMA {schema}")
    return Ends(site, schema, mariadb)


# Every key that follows by itself: all tables in one publication, whose jobs run once for all.


@dataclass(frozen=True)
class _Case:
    """`{}` stands for the table, which has four rows of `columns`."""

    columns: str
    key: tuple[str, ...]
    """After the changes."""
    changes: tuple[str, ...]
    before: str = ""
    """It is delivered before the changes."""
    row: str = "n, n, 'code ' || n, 'name ' || n"
    after: str = "UPDATE {} SET name = 'after' WHERE name = 'name 3'; DELETE FROM {} WHERE name = 'name 4'"


_PARTS = "id int GENERATED BY DEFAULT AS IDENTITY, part int, code varchar(20) NOT NULL, name text, PRIMARY KEY ({})"
_TEXTS = "id int, part int, code text NOT NULL, name text, PRIMARY KEY ({})"
_ONE = {"row": "n * n * n * 40, 'name ' || n", "after": "UPDATE {} SET name = 'after' WHERE name IN ('name 3', 'new')"}
_REKEYED = "ALTER TABLE {} DROP CONSTRAINT {}_pkey, ADD PRIMARY KEY"
_REPLACED = (
    "BEGIN; ALTER TABLE {} ADD new_id bigint; UPDATE {} SET new_id = id * 10; "
    f"{_REKEYED} (new_id); ALTER TABLE {{}} DROP id; ALTER TABLE {{}} RENAME new_id TO id; COMMIT"
)
_TEXT = "ALTER TABLE {} ALTER id TYPE text USING lpad(id::text, 3, '0')"
_SHORT_TEXT = "ALTER TABLE {} ALTER id TYPE varchar(2) USING 'n' || id % 1000 / 40 % 10"
_CASES = {
    "another": _Case(_PARTS.format("id"), ("code",), (f"{_REKEYED} (code)", "UPDATE {} SET id = 1 WHERE id = 2")),
    "of_two": _Case(
        _PARTS.format("id"), ("code", "id"), (f"{_REKEYED} (id, code)", "INSERT INTO {} VALUES (1, 9, 'x', 'the same')")
    ),
    "replaced": _Case(_PARTS.format("id"), ("id",), (_REPLACED,)),
    "of_a_text_that_is_there": _Case(
        _TEXTS.format("id"), ("code",), (f"BEGIN; {_REKEYED} (code); ALTER TABLE {{}} DROP id; COMMIT",)
    ),
    "one_of_two": _Case(
        _PARTS.format("id, part"), ("id",), (f"BEGIN; {_REKEYED} (id); ALTER TABLE {{}} DROP part; COMMIT",)
    ),
    "of_an_added_column": _Case(
        _TEXTS.format("id"),
        ("added", "code"),
        (
            f"ALTER TABLE {{}} ADD added int NOT NULL DEFAULT 7, {_REKEYED.partition('{} ')[2]} (added, code)",
            "INSERT INTO {} VALUES (1, 9, 'x', 'new', 8)",
        ),
    ),
    "texts_that_look_like_numbers": _Case(
        "id int PRIMARY KEY, name text", ("id",), (_TEXT, "INSERT INTO {} VALUES ('0009', 'new')"), **_ONE
    ),
    "rows_of_before_are_too_long": _Case(
        "id int PRIMARY KEY, name text", ("id",), (_SHORT_TEXT, "INSERT INTO {} VALUES ('x', 'new')"), **_ONE
    ),
    "rows_of_before_are_no_numbers": _Case(
        "id varchar(30) PRIMARY KEY, name text",
        ("id",),
        ("ALTER TABLE {} ALTER id TYPE int USING substr(id, 2)::int", "INSERT INTO {} VALUES (9, 'new')"),
        before="UPDATE {} SET id = 'n' || id",
        **_ONE,
    ),
    "rows_of_before_would_be_rounded_to_one": _Case(
        "id numeric(10,2) PRIMARY KEY, name text",
        ("id",),
        ("ALTER TABLE {} ALTER id TYPE int USING (id * 100)::int", "INSERT INTO {} VALUES (9, 'new')"),
        before="UPDATE {} SET id = id / 10000",
        **_ONE,
    ),
    "dates": _Case(
        "id int PRIMARY KEY, name text",
        ("id",),
        (
            "ALTER TABLE {} ALTER id TYPE date USING '2024-01-01'::date + id",
            "INSERT INTO {} VALUES ('2001-1-1', 'new')",
        ),
        **_ONE,
    ),
}
_BETWEEN_SETUPS = "between_two_setups"


@pytest.fixture(scope="module")
def followed(
    postgres: PostgresServer, mariadb: MariaDbServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Ends]:
    """Yield the ends after all changes of all cases."""
    tables = (*_CASES, _BETWEEN_SETUPS)
    with mariadb.new_database() as schema, shared_databases(postgres, schema) as databases:
        ends = _ends(databases, mariadb, schema, tmp_path_factory.mktemp("keys"), tables)
        _happen(ends.site)
        yield ends


def _happen(site: Site) -> None:
    other = _CASES["of_two"]
    for table, case in {**_CASES, _BETWEEN_SETUPS: other}.items():
        site.at_publisher(
            f"CREATE TABLE {table} ({case.columns})",
            f"INSERT INTO {table} SELECT {case.row} FROM generate_series(1, 4) n",
        )
    site.set_up()
    site.at_publisher(*(_of(it, _BETWEEN_SETUPS) for it in other.changes))
    site.set_up()
    good_run(site)
    site.at_publisher(*(_of(it.before, table) for table, it in _CASES.items() if it.before))
    good_run(site)
    for table, case in _CASES.items():
        site.at_publisher(f"UPDATE {table} SET name = 'before' WHERE name = 'name 2'")
        site.at_publisher(*(_of(it, table) for it in case.changes))
    good_run(site)
    for table, case in {**_CASES, _BETWEEN_SETUPS: other}.items():
        site.at_publisher(*_of(case.after, table).split("; "))
    good_run(site)


def _of(statement: str, table: str) -> str:
    return statement.replace("{}", table)


@pytest.mark.parametrize("table", [*_CASES, _BETWEEN_SETUPS])
def test_each_key_and_the_rows_that_are_changed_by_it_follow(followed: Ends, table: str) -> None:
    followed.assert_followed(*_CASES.get(table, _CASES["of_two"]).key, table=table)


# What stops: the log reader, an article that is not to be copied, and rows of others.


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


@pytest.mark.parametrize(
    ("stored", "dropped", "remedy", "then", "key"),
    [
        pytest.param(
            stored,
            "ALTER TABLE vendor DROP CONSTRAINT vendor_pkey",
            "add one, or take the article out of the file; then `tranrepl setup FILE`",
            "ALTER TABLE vendor ADD PRIMARY KEY (id, code)",
            ("code", "id"),
            id=f"dropped and added again, {'commands' if stored else 'nothing'} stored",
            marks=[pytest.mark.slow] if stored else [],
        )
        for stored in (False, True)
    ]
    + [
        pytest.param(
            False,
            "BEGIN; ALTER TABLE vendor DROP COLUMN id; ALTER TABLE vendor ADD PRIMARY KEY (code); COMMIT",
            "give the table another primary key, where it has none yet; then `tranrepl setup FILE`",
            "INSERT INTO vendor VALUES ('y', 'behind it')",
            ("code",),
            id="its column dropped",
        )
    ],
)
def test_a_key_that_stops_the_log_reader_follows_by_setup(
    databases: DatabasesFactory,
    mariadb: MariaDbServer,
    mariadb_database: str,
    folder: Path,
    stored: bool,
    dropped: str,
    remedy: str,
    then: str,
    key: tuple[str, ...],
) -> None:
    ends = _ends(databases(), mariadb, mariadb_database, folder)
    site = _with_vendors(ends, "code varchar(20) NOT NULL").site
    site.at_publisher("UPDATE vendor SET name = 'before' WHERE id = 3")
    if stored:
        site.read_log().raise_error()
    site.at_publisher(dropped)
    error = whole_run(site)["log reader"].error
    assert error is not None
    assert error.remedy == remedy
    site.at_publisher(then)
    site.set_up()
    good_run(site)
    assert site.set_up() == []
    site.at_publisher("UPDATE vendor SET name = 'changed' WHERE code = 'code 2'", "DELETE FROM vendor WHERE code = 'y'")
    good_run(site)
    ends.assert_followed(*key)


def _with_vendors(ends: Ends, code: str = "code text NOT NULL") -> Ends:
    ends.site.at_publisher(
        f"CREATE TABLE vendor (id int PRIMARY KEY, {code}, name text)",
        "INSERT INTO vendor SELECT n, 'code ' || n, 'name ' || n FROM generate_series(1, 30) n",
    )
    ends.site.set_up()
    good_run(ends.site)
    return ends


def _give_key(ends: Ends, change: str) -> dict[str, str]:
    """Give the Publisher's table another key, change rows before and after it; return the remedies of deliveries."""
    ends.site.at_publisher(
        "UPDATE vendor SET name = 'before' WHERE id = 3",
        change,
        "UPDATE vendor SET id = 1 WHERE id < 6",
        "UPDATE vendor SET code = 'moved' WHERE id = 7",
        "DELETE FROM vendor WHERE id = 8",
        "INSERT INTO vendor VALUES (1, 'new', 'one')",
    )
    results, said = whole_run(ends.site), {}
    for name in ends.names:
        error = results[name].error
        assert error is not None
        assert f"public.vendor of subscription {name} is stopped: its primary key is another one" in error.message
        said[name] = error.remedy or ""
    return said


def _assert_goes_on(ends: Ends, *key: str) -> None:
    ends.site.at_publisher("UPDATE vendor SET id = 2 WHERE code = 'moved'", "DELETE FROM vendor WHERE code = 'new'")
    good_run(ends.site)
    ends.assert_followed(*key)


_BY_CODE = _of(f"{_REKEYED} (code)", "vendor")


@pytest.fixture
def stopping(databases: DatabasesFactory, mariadb: MariaDbServer, mariadb_database: str, folder: Path) -> Ends:
    return _with_vendors(_ends(databases(), mariadb, mariadb_database, folder, on_unknown_rows="stop"))


def test_a_stopped_article_gets_its_key_by_repair_or_by_a_snapshot(stopping: Ends) -> None:
    """Rows that the Subscriber has are kept by repair, so that what was changed by the new key finds them."""
    ends, site = stopping, stopping.site
    for name, remedy in _give_key(ends, _BY_CODE).items():
        assert f"`tranrepl validate FILE -s {name} --article public.vendor --repair`" in remedy or name == "sqlite"
        assert f"`tranrepl reinitialize FILE -s {name} --article public.vendor` copies" in remedy
    for name in ("postgres", "mariadb"):
        ends.execute(name, "UPDATE {} SET name = 'differs' WHERE id = 20")
        site.validate(name, articles=("public.vendor",), repair=Repair.APPLY).raise_error()
        ends.assert_followed("code", names=(name,))
    ends.mark("sqlite")
    site.take_snapshot("public.vendor", subscription="sqlite").raise_error()
    _assert_goes_on(ends, "code")


def test_rows_that_do_not_fit_are_not_deleted_by_repair(stopping: Ends) -> None:
    """Changes by the new key would not find them. The message has two ways on, and both are gone."""
    ends, site, names = stopping, stopping.site, ("postgres", "mariadb")
    for name in names:
        ends.execute(name, "INSERT INTO {} VALUES (99, 'code 4', 'twice')")
    before = {name: ends.rows(name, condition="WHERE id <> 3") for name in names}
    _give_key(ends, _BY_CODE)
    for name in names:
        _assert_refused(site.validate(name, articles=("public.vendor",), repair=Repair.APPLY).error, name, "code")
        assert ends.rows(name, condition="WHERE id <> 3") == before[name]
    ends.execute("postgres", "DELETE FROM {} WHERE id = 99")
    site.validate("postgres", articles=("public.vendor",), repair=Repair.APPLY).raise_error()
    for name in ("mariadb", "sqlite"):
        ends.mark(name)
    _assert_goes_on(ends, "code")


def _assert_refused(error: ErrorReport | None, name: str, key: str) -> None:
    assert error is not None
    assert f"do not fit its new primary key ({key})" in error.message, error
    assert f"`tranrepl reinitialize FILE -s {name} --article public.vendor` copies them" in (error.remedy or "")


def test_a_stopped_article_is_altered_by_validation_after_a_key_that_was_not_captured(
    databases: DatabasesFactory, mariadb: MariaDbServer, mariadb_database: str, folder: Path
) -> None:
    """Rows that do not fit the key are not deleted; the message has the way on."""
    settings: dict[str, Any] = {"names": ("postgres",), "on_unknown_rows": "stop"}
    ends = _with_vendors(_ends(databases(), mariadb, mariadb_database, folder, **settings))
    site = ends.site
    site.at_publisher("ALTER TABLE vendor DROP CONSTRAINT vendor_pkey")
    assert site.read_log().error is not None
    site.at_publisher("ALTER TABLE vendor ADD PRIMARY KEY (code)")
    ends.execute("postgres", "INSERT INTO {} VALUES (99, 'code 1')")
    site.set_up()
    site.at_publisher("INSERT INTO vendor VALUES (1, 'b')")
    site.read_log().raise_error()
    for _ in range(2):
        _assert_refused(site.validate("postgres", repair=Repair.APPLY).error, "postgres", "code")
    ends.execute("postgres", "DELETE FROM {} WHERE id = 99")
    site.validate("postgres", repair=Repair.APPLY).raise_error()
    good_run(site)
    ends.assert_followed("code")


@pytest.mark.parametrize(
    ("change", "others", "key", "mended"),
    [
        pytest.param(
            "ALTER TABLE vendor ALTER id TYPE int USING id::int",
            [("own", "x", "elsewhere")],
            "id",
            ("UPDATE {} SET id = '77' WHERE id = 'own'", [("elsewhere", "x", "77")]),
            id="another type",
        ),
        pytest.param(
            _BY_CODE,
            [("8", "x", "elsewhere"), ("9", "x", "elsewhere")],
            "code",
            ("DELETE FROM {} WHERE id = '9'", [("elsewhere", "x", "8")]),
            id="another key",
        ),
    ],
)
def test_rows_of_others_that_do_not_fit_stop_the_snapshot(
    databases: DatabasesFactory,
    mariadb: MariaDbServer,
    mariadb_database: str,
    folder: Path,
    change: str,
    others: Rows,
    key: str,
    mended: tuple[str, list[tuple[str, ...]]],
) -> None:
    ends = _ends(databases(), mariadb, mariadb_database, folder, filter="area = 'in'")
    site = ends.site
    site.at_publisher(
        "CREATE TABLE vendor (id varchar(20) PRIMARY KEY, code varchar(20) NOT NULL, area text)",
        "INSERT INTO vendor VALUES ('1', 'a', 'in'), ('2', 'b', 'in'), ('3', 'c', 'out')",
    )
    site.set_up()
    good_run(site)
    for name in _NAMES:
        for row in others:
            ends.execute(name, f"INSERT INTO {{}} VALUES {row}")
    site.at_publisher(change)
    for _ in range(2):
        results = whole_run(site)
        for name in _NAMES:
            error = results[f"{name} snapshot"].error
            assert error is not None, name
            assert error.message.startswith(f"article public.vendor: Subscriber {name}: rows of table ")
            assert f" leaves to others do not fit its new primary key ({key}): " in error.message
            assert error.remedy == "correct or delete them at the Subscriber, then `tranrepl run FILE`"
            assert len(ends.rows(name, condition="WHERE area = 'elsewhere'")) == len(others), name
    statement, left = mended
    for name in _NAMES:
        ends.execute(name, statement)
    good_run(site)
    site.at_publisher("UPDATE vendor SET area = 'in' WHERE code = 'c'", "DELETE FROM vendor WHERE code = 'a'")
    good_run(site)
    for name in _NAMES:
        assert ends.rows(name) == sorted([*left, *ends.rows("", condition="WHERE area = 'in'")]), name


def test_an_sqlite_key_to_which_foreign_keys_refer_is_not_dropped(
    databases: DatabasesFactory, mariadb: MariaDbServer, mariadb_database: str, folder: Path
) -> None:
    ends = _with_vendors(_ends(databases(), mariadb, mariadb_database, folder, names=("sqlite",)))
    ends.execute("sqlite", "CREATE TABLE invoice (id INTEGER PRIMARY KEY, vendor INTEGER REFERENCES vendor (id))")
    ends.site.at_publisher(_of(_REPLACED, "vendor"))
    error = whole_run(ends.site)["sqlite snapshot"].error
    assert error is not None
    assert "column id is to be dropped" in error.message
    assert "without these foreign keys" in (error.remedy or "")
    ends.execute("sqlite", "DROP TABLE invoice")
    good_run(ends.site)
    ends.assert_followed("id")


# Killed at MariaDB, where each statement commits by itself, between any two steps of the change.

_ADDED = (
    "ALTER TABLE vendor ADD COLUMN part int NOT NULL DEFAULT 7, DROP CONSTRAINT vendor_pkey, "
    "ADD PRIMARY KEY (part, code)"
)


def _at_mariadb(
    databases: DatabasesFactory, mariadb: MariaDbServer, schema: str, folder: Path, **settings: Any
) -> Ends:
    return _with_vendors(_ends(databases(), mariadb, schema, folder, names=("mariadb",), **settings))


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    ("change", "key"),
    [
        pytest.param(_of(_REPLACED, "vendor"), ("id",), id="replaced"),
        pytest.param("ALTER TABLE vendor ALTER id TYPE varchar(2) USING id % 60", ("id",), id="rows do not fit"),
        pytest.param(_of(_TEXT, "vendor"), ("id",), id="another type"),
        pytest.param(f"BEGIN; {_BY_CODE}; ALTER TABLE vendor DROP id; COMMIT", ("code",), id="of a text"),
    ],
)
def test_a_snapshot_that_is_killed_between_any_two_steps_goes_on(
    databases: DatabasesFactory,
    mariadb: MariaDbServer,
    mariadb_database: str,
    folder: Path,
    change: str,
    key: tuple[str, ...],
) -> None:
    ends = _at_mariadb(databases, mariadb, mariadb_database, folder)
    ends.site.at_publisher(change, "UPDATE vendor SET name = 'after' WHERE code = 'code 5'")
    ends.site.read_log().raise_error()
    snapshot = SiteJob("snapshot", "mariadb")
    steps = [step for step in CHANGE_FAILPOINTS if ChildJob(snapshot, ends.site, str(step)).killed()]
    assert steps == list(CHANGE_FAILPOINTS)
    good_run(ends.site)
    ends.assert_followed(*key)


_REPAIR, _SNAPSHOT = SiteJob("repair", "mariadb"), SiteJob("snapshot", "mariadb")
_TWICE = "INSERT INTO {} VALUES (99, 'code 4', 'twice')"
_TOO_LONG = "INSERT INTO {} VALUES (99, REPEAT('x', 4000), 'long')"


@pytest.mark.slow
@pytest.mark.parametrize(("unfit", "way"), [(_TWICE, "corrected"), (_TOO_LONG, "copied")])
@pytest.mark.parametrize("commands", ["SQL", "CALL"])
def test_nothing_is_changed_where_rows_do_not_fit(
    databases: DatabasesFactory,
    mariadb: MariaDbServer,
    mariadb_database: str,
    folder: Path,
    unfit: str,
    way: str,
    commands: str,
) -> None:
    settings: dict[str, Any] = dict.fromkeys(STATEMENTS, commands)
    ends = _at_mariadb(databases, mariadb, mariadb_database, folder, on_unknown_rows="stop", **settings)
    ends.execute("mariadb", unfit)
    _give_key(ends, _ADDED)
    before = ends.execute("mariadb", "SHOW CREATE TABLE {}")
    for _ in range(2):
        _assert_refused(_REPAIR(ends.site).error, "mariadb", "part, code")
    assert ends.execute("mariadb", "SHOW CREATE TABLE {}") == before
    if way == "corrected":
        ends.execute("mariadb", "DELETE FROM {} WHERE id = 99")
        _REPAIR(ends.site).raise_error()
    else:
        ends.mark("mariadb")
        # The delivery finishes the change that was begun; the snapshot waits for it.
        whole_run(ends.site)
        good_run(ends.site)
    _assert_goes_on(ends, "part", "code")


@pytest.mark.slow
@pytest.mark.parametrize("first", CHANGE_FAILPOINTS[:2])
@pytest.mark.parametrize("way", ["corrected", "copied"])
def test_a_killed_change_goes_on_by_each_way(
    databases: DatabasesFactory,
    mariadb: MariaDbServer,
    mariadb_database: str,
    folder: Path,
    first: Failpoint,
    way: str,
) -> None:
    """Rows that do not fit come while the change is half made."""
    ends = _at_mariadb(databases, mariadb, mariadb_database, folder, on_unknown_rows="stop")
    site = ends.site
    ends.execute("mariadb", "DELETE FROM {} WHERE id = 1")
    _give_key(ends, _ADDED)
    assert ChildJob(_REPAIR, site, str(first)).killed()
    if first is Failpoint.CHANGE_BEGUN:
        ends.execute("mariadb", _TWICE)
        _assert_refused(_REPAIR(site).error, "mariadb", "part, code")
    job = _REPAIR
    if way == "copied":
        ends.mark("mariadb")
        refused = _SNAPSHOT(site).error
        assert refused is not None
        assert refused.remedy == "`tranrepl distribute FILE --single-connection` finishes it"
        site.deliver("mariadb", mode=ApplyMode.SINGLE_CONNECTION).raise_error()
        job = _SNAPSHOT
    else:
        ends.execute("mariadb", "DELETE FROM {} WHERE id = 99")
    steps = [step for step in CHANGE_FAILPOINTS if ChildJob(job, site, str(step)).killed()]
    assert steps == list(CHANGE_FAILPOINTS) or way == "copied", steps
    job(site).raise_error()
    _assert_goes_on(ends, "part", "code")
