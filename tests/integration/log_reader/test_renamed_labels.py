"""Labels that are renamed while other transactions are open, whose rows come behind the rename in the log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from conftest import DatabasesFactory
from support.databases import Databases
from support.embedded_postgres import PostgresServer
from support.site import Site
from support.spark_here import SparkHere
from support.whole_run import whole_run

_TYPES = (
    "CREATE TYPE mood AS ENUM ('sad', 'glad', 'so so')",
    "CREATE DOMAIN lasting AS mood",
    "CREATE TYPE pair AS (mood mood, note text)",
)
_LABELS = "SELECT enum_range(NULL::mood)::text"
_ROWS = "SELECT * FROM item ORDER BY id"


@pytest.fixture(params=["from_15_to_18", "from_18_to_15"])
def ends(request: pytest.FixtureRequest) -> Databases:
    found: Databases = request.getfixturevalue(request.param)
    return found


def _site(ends: Databases, tmp_path: Path, columns: str) -> Site:
    site = Site(
        ends,
        tmp_path / "store",
        [{"source": "public.item", "replica_identity": "default", "upd_cmd": "SCALL"}],
        SparkHere(),
        [{"name": "reporting", "connection": "subscriber", "sync_type": "automatic"}],
        replicate_ddl=True,
    )
    site.at_publisher(*_TYPES, f"CREATE TABLE item (id int, {columns})")
    site.at_subscriber(*_TYPES)
    site.set_up()
    site.take_snapshot().raise_error()
    return site


@contextmanager
def _open_transaction(site: Site, *statements: str) -> Iterator[psycopg.Connection]:
    """Open a transaction that writes, and commit it at the end."""
    with psycopg.connect(**site.databases.publisher.libpq_parameters("test")) as session:  # type: ignore[arg-type]
        for it in statements:
            session.execute(it.encode())
        yield session


def _rename(before: str, now: str) -> str:
    return f"ALTER TYPE mood RENAME VALUE '{before}' TO '{now}'"


def test_rows_of_an_open_transaction_follow_a_rename(ends: Databases, tmp_path: Path) -> None:
    site = _site(ends, tmp_path, "feeling mood, always lasting, PRIMARY KEY (id, feeling)")
    site.at_publisher("INSERT INTO item VALUES (1, 'sad', 'sad'), (2, 'sad', 'sad'), (3, 'glad', 'so so')")
    site.read_log().raise_error()
    with _open_transaction(
        site,
        "UPDATE item SET id = 10 WHERE id = 1",
        "DELETE FROM item WHERE id = 2",
        "INSERT INTO item VALUES (4, 'sad', 'glad')",
    ) as session:
        site.at_publisher(_rename("sad", "blue"))
        session.execute("UPDATE item SET always = 'blue' WHERE id = 4")
        site.at_publisher(_rename("glad", "happy"), _rename("blue", "grey"), _rename("so so", "so"))
        session.execute("INSERT INTO item VALUES (5, 'happy', 'grey')")
    site.read_log().raise_error()
    site.deliver().raise_error()
    assert site.at_subscriber(_ROWS) == site.at_publisher(_ROWS)
    assert site.at_subscriber("SELECT id, feeling, always FROM item WHERE id IN (4, 10) ORDER BY id") == [
        (4, "grey", "grey"),
        (10, "grey", "grey"),
    ]


@pytest.mark.parametrize("renamed", [_rename("sad", "blue"), "ALTER TYPE mood RENAME TO humour"], ids=["label", "type"])
def test_a_column_is_added_with_the_label_and_the_type_of_before_a_rename(
    databases: DatabasesFactory, tmp_path: Path, renamed: str
) -> None:
    site = _site(databases(), tmp_path, "feeling mood, PRIMARY KEY (id)")
    site.at_publisher(
        "INSERT INTO item VALUES (1, 'glad')",
        f"BEGIN; ALTER TABLE item ADD COLUMN always mood DEFAULT 'sad'; {renamed}; COMMIT",
        "INSERT INTO item (id, feeling) VALUES (2, 'glad')",
    )
    site.read_log().raise_error()
    site.deliver().raise_error()
    assert site.at_subscriber(_ROWS) == site.at_publisher(_ROWS)


def test_labels_in_arrays_follow_a_rename(ends: Databases, tmp_path: Path) -> None:
    site = _site(ends, tmp_path, "all_of_them mood[], PRIMARY KEY (id)")
    site.at_publisher(_rename("so so", "so_so"))
    site.read_log().raise_error()
    insert = "INSERT INTO item VALUES (1, '{sad,sad,NULL,sad}'), (2, '{{sad,glad},{glad,sad}}'), (3, NULL), (4, '{}')"
    with _open_transaction(site, insert):
        site.at_publisher(_rename("sad", "dark blue"), _rename("glad", "happy"), _rename("dark blue", "black"))
    site.read_log().raise_error()
    site.deliver().raise_error()
    assert site.at_subscriber(_ROWS) == site.at_publisher(_ROWS)


@pytest.mark.parametrize(
    ("columns", "row", "changes", "reason"),
    [
        ("feeling mood, PRIMARY KEY (id)", "'sad'", (_rename("sad", "blue"), _rename("glad", "sad")), "column feeling"),
        ("two pair, PRIMARY KEY (id)", "'(sad,x)'", (_rename("sad", "blue"),), "column two"),
    ],
)
def test_an_article_is_reinitialized_where_the_log_does_not_tell_the_label(
    databases: DatabasesFactory, tmp_path: Path, columns: str, row: str, changes: tuple[str, ...], reason: str
) -> None:
    site = _site(databases(), tmp_path, columns)
    with _open_transaction(site, f"INSERT INTO item VALUES (1, {row}), (2, {row})"):
        site.at_publisher(*changes)
    read = site.read_log()
    read.raise_error()
    assert any("waits for a snapshot" in it and reason in it for it in read.notices), read.notices
    whole_run(site)
    assert site.at_subscriber(_ROWS) == site.at_publisher(_ROWS)


def test_labels_follow_that_setup_has_seen_before_the_log_reader(databases: DatabasesFactory, tmp_path: Path) -> None:
    site = _site(databases(), tmp_path, "feeling mood, PRIMARY KEY (id)")
    site.at_publisher("INSERT INTO item VALUES (1, 'sad')")
    site.at_publisher(_rename("sad", "blue"), "INSERT INTO item VALUES (2, 'blue')")
    site.set_up()
    site.at_publisher("ALTER TYPE mood ADD VALUE 'ok' BEFORE 'glad'", "INSERT INTO item VALUES (3, 'ok')")
    site.set_up()
    site.at_publisher("ALTER TABLE item ADD COLUMN price int", _rename("ok", "well"))
    for result in whole_run(site).values():
        result.raise_error()
    assert site.at_subscriber(_ROWS) == site.at_publisher(_ROWS)
    assert site.at_subscriber(_LABELS) == site.at_publisher(_LABELS)


def test_setup_goes_on_where_labels_are_others_in_a_way_that_nothing_tells(
    databases: DatabasesFactory, tmp_path: Path
) -> None:
    site = _site(databases(), tmp_path, "feeling mood, PRIMARY KEY (id)")
    _unannounced(site, _rename("sad", "blue"), "ALTER TYPE mood ADD VALUE 'ok'")
    site.at_publisher("ALTER TYPE mood ADD VALUE 'well'", "INSERT INTO item VALUES (1, 'blue')")
    stopped = site.read_log()
    assert stopped.error is not None
    assert "alter the type at the Subscribers too; then run `tranrepl setup FILE`" in (stopped.error.remedy or "")
    site.at_subscriber(_rename("sad", "blue"), *(f"ALTER TYPE mood ADD VALUE '{it}'" for it in ("ok", "well")))
    site.set_up()
    for result in whole_run(site).values():
        result.raise_error()
    assert site.at_subscriber(_ROWS) == site.at_publisher(_ROWS)


def _unannounced(site: Site, *statements: str) -> None:
    enable = "ALTER EVENT TRIGGER tranrepl_ddl_end ENABLE ALWAYS"
    with _open_transaction(site, "ALTER EVENT TRIGGER tranrepl_ddl_end DISABLE", *statements, enable):
        pass


def test_setup_takes_labels_as_they_are_where_the_log_did_not_announce_them(
    databases: DatabasesFactory, tmp_path: Path
) -> None:
    site = _site(databases(), tmp_path, "feeling mood, PRIMARY KEY (id)")
    _unannounced(site, _rename("sad", "blue"))
    site.set_up()
    site.at_publisher("CREATE TABLE beside (id int)")
    site.read_log().raise_error()
    site.set_up()
    with site.topology.distributor() as database:
        (article,) = database.articles.registered(database.publications.get("purchasing"))
    assert article.definition is not None
    assert [it.labels for it in article.definition.enumerated.values()] == [("blue", "glad", "so so")]


@pytest.mark.parametrize("server", ["postgres", "debian_postgres"])
def test_which_name_the_log_shows_depends_on_what_was_decoded_before(
    request: pytest.FixtureRequest, databases: DatabasesFactory, server: str
) -> None:
    publisher: PostgresServer = request.getfixturevalue(server)
    site = Site(databases(publisher=publisher), Path("unused"), ["public.item"], SparkHere())
    site.at_publisher(
        _TYPES[0],
        "CREATE TABLE item (id int PRIMARY KEY, feeling mood)",
        "CREATE PUBLICATION p FOR TABLE item",
        "SELECT pg_create_logical_replication_slot('s', 'pgoutput')",
    )
    try:
        shown = [_shown(site, between) for between in ((), ("INSERT INTO item VALUES (0, 'blue')",))]
    finally:
        site.at_publisher("SELECT pg_drop_replication_slot('s')")
    assert shown == [b"sad", b"blue"]


def _shown(site: Site, between: tuple[str, ...]) -> bytes:
    """Return the label of a row that was written as `sad` before its rename to `blue`, and committed after it."""
    with _open_transaction(site, "INSERT INTO item VALUES (1, 'sad')"):
        site.at_publisher(_rename("sad", "blue"), *between)
    messages = site.at_publisher(
        "SELECT data FROM pg_logical_slot_get_binary_changes('s', NULL, NULL, 'proto_version', '1', "
        "'publication_names', 'p')"
    )
    *_, last = [bytes(it) for (it,) in messages if bytes(it)[:1] == b"I"]
    site.at_publisher("DELETE FROM item", _rename("blue", "sad"))
    site.at_publisher(
        "SELECT count(*) FROM pg_logical_slot_get_binary_changes('s', NULL, NULL, 'proto_version', '1', "
        "'publication_names', 'p')"
    )
    return last.rsplit(b"t\0\0\0", 1)[1][1:]
