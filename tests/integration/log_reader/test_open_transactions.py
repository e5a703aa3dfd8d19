"""Schema changes of transactions that are open beside one another: each announces the table as it sees it."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from psycopg import IsolationLevel

from conftest import DatabasesFactory
from support.site import Site
from support.spark_here import SparkHere
from tranrepl.errors import ConfigurationError

_MOOD = "CREATE TYPE mood AS ENUM ('sad', 'glad')"
_ROWS = "SELECT * FROM item ORDER BY id"


@pytest.fixture
def site(databases: DatabasesFactory, tmp_path: Path) -> Site:
    site = Site(databases(), tmp_path / "store", ["public.item"], SparkHere(), replicate_ddl=True)
    site.at_publisher(
        _MOOD,
        "CREATE TABLE item (id int PRIMARY KEY, feeling mood, note text)",
        "CREATE INDEX note_index ON item (note)",
    )
    site.at_subscriber(_MOOD)
    site.set_up()
    return site


def _session(site: Site) -> psycopg.Connection:
    return psycopg.connect(**site.databases.publisher.libpq_parameters("test"))  # type: ignore[arg-type]


def _interleaved(
    site: Site,
    first: str,
    second: str,
    *,
    first_ends_first: bool,
    isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
) -> None:
    """Run one statement each in two transactions that are open side by side."""
    with _session(site) as one, _session(site) as other:
        other.isolation_level = isolation
        other.execute("SELECT 1")
        one.execute(first)
        if isolation is not IsolationLevel.READ_COMMITTED:
            one.commit()
        other.execute(second)
        for session in (one, other) if first_ends_first else (other, one):
            session.commit()


def _deliver_and_compare(site: Site) -> None:
    site.at_publisher("INSERT INTO item (id) VALUES (7)")
    read = site.read_log()
    read.raise_error()
    if any("is stopped" in it and "was renamed" in it for it in read.notices):
        site.validate(repair="apply").raise_error()
    site.deliver().raise_error()
    assert site.at_subscriber(_ROWS) == site.at_publisher(_ROWS)


@pytest.mark.parametrize("first_ends_first", [True, False])
def test_a_type_is_altered_while_a_column_is_added(site: Site, first_ends_first: bool) -> None:
    site.at_publisher("INSERT INTO item VALUES (1, 'sad')")
    _interleaved(
        site,
        "ALTER TABLE item ADD COLUMN price int DEFAULT 5",
        "ALTER TYPE mood ADD VALUE 'ok' BEFORE 'glad'",
        first_ends_first=first_ends_first,
    )
    site.at_publisher("UPDATE item SET feeling = 'ok', price = 6")
    _deliver_and_compare(site)


@pytest.mark.parametrize("first_ends_first", [True, False])
def test_a_label_is_renamed_while_a_column_is_added(site: Site, first_ends_first: bool) -> None:
    site.at_publisher("INSERT INTO item VALUES (1, 'sad')")
    _interleaved(
        site,
        "ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'",
        "ALTER TABLE item ADD COLUMN price int DEFAULT 5",
        first_ends_first=first_ends_first,
    )
    site.at_publisher("INSERT INTO item VALUES (2, 'blue', 'note', 6)")
    _deliver_and_compare(site)


def test_a_type_is_altered_while_a_column_is_dropped_and_one_renamed(site: Site) -> None:
    site.at_publisher(
        "ALTER TABLE item ADD COLUMN a int, ADD COLUMN b int", "INSERT INTO item VALUES (1, 'sad', 'note', 2, 3)"
    )
    _interleaved(
        site,
        "ALTER TABLE item DROP COLUMN a; ALTER TABLE item RENAME b TO c",
        "ALTER TYPE mood RENAME VALUE 'glad' TO 'happy'",
        first_ends_first=True,
    )
    site.at_publisher("UPDATE item SET feeling = 'happy', c = 4")
    _deliver_and_compare(site)


_ADDED = "ALTER TABLE item ADD COLUMN price int DEFAULT 5"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (_ADDED, "ALTER TABLE item ADD COLUMN size int DEFAULT 7"),
        (_ADDED, "ALTER TABLE item DROP COLUMN price"),
        ("ALTER TABLE item RENAME note TO remark", "ALTER TABLE item ALTER remark SET NOT NULL"),
        ("CREATE UNIQUE INDEX ON item (note)", "ALTER TABLE item RENAME note TO remark"),
    ],
)
@pytest.mark.parametrize("isolation", [IsolationLevel.REPEATABLE_READ, IsolationLevel.SERIALIZABLE])
def test_a_transaction_that_does_not_see_the_last_change_stops(
    site: Site, first: str, second: str, isolation: IsolationLevel
) -> None:
    site.at_publisher("INSERT INTO item (id, feeling, note) VALUES (1, 'sad', 'a'), (2, 'glad', 'b')")
    _interleaved(site, first, second, first_ends_first=True, isolation=isolation)
    with pytest.raises(ConfigurationError, match="began before the table's last change was committed"):
        site.read_log().raise_error()
    site.deliver().raise_error()
    assert site.at_subscriber("SELECT id FROM item ORDER BY id") == [(1,), (2,)]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("ALTER TYPE mood RENAME VALUE 'glad' TO 'happy'", "ALTER TABLE item ALTER feeling SET DEFAULT 'sad'"),
        ("CREATE TABLE beside (id int)", "ALTER TABLE item ADD COLUMN size int DEFAULT 7"),
    ],
)
def test_what_another_transaction_did_to_other_objects_does_not_stop(site: Site, first: str, second: str) -> None:
    _alter_unseen_and_compare(site, first, second)


def test_a_column_is_added_of_a_type_that_its_transaction_does_not_see(site: Site) -> None:
    tag = "CREATE DOMAIN tag AS text"
    site.at_subscriber(tag)
    _alter_unseen_and_compare(site, tag, "ALTER TABLE item ADD COLUMN t tag")
    site.at_publisher("ALTER TABLE item ADD COLUMN u tag DEFAULT 'u'", "UPDATE item SET t = 't' WHERE id = 7")
    site.read_log().raise_error()
    site.deliver().raise_error()
    assert site.at_subscriber(_ROWS) == site.at_publisher(_ROWS)


def test_a_type_that_is_altered_after_it_was_not_seen_stops_its_article(site: Site) -> None:
    tag = "CREATE DOMAIN tag AS text"
    site.at_subscriber(tag)
    _alter_unseen_and_compare(site, tag, "ALTER TABLE item ADD COLUMN t tag")
    site.at_publisher("ALTER DOMAIN tag ADD CHECK (VALUE <> 'x')", "UPDATE item SET t = 'y'")
    with pytest.raises(ConfigurationError, match="the type of column t, or one that it is made of, was altered"):
        site.read_log().raise_error()


def _alter_unseen_and_compare(site: Site, first: str, second: str) -> None:
    site.at_publisher("INSERT INTO item (id, feeling, note) VALUES (1, 'sad', 'a'), (2, 'glad', 'b')")
    second = f"{second}; UPDATE item SET id = id + 10; INSERT INTO item (id) VALUES (3)"
    _interleaved(site, first, second, first_ends_first=True, isolation=IsolationLevel.REPEATABLE_READ)
    _deliver_and_compare(site)


def test_a_table_that_is_told_as_it_is_goes_on_at_repeatable_read(site: Site) -> None:
    site.at_publisher("ALTER TABLE item ADD COLUMN price int")
    with _session(site) as session:
        session.isolation_level = IsolationLevel.REPEATABLE_READ
        session.execute("ALTER TABLE item ADD COLUMN size int")
        session.execute("ALTER TABLE item ADD COLUMN weight int")
        session.execute("INSERT INTO item VALUES (1, 'sad', 'note', 2, 3, 4)")
    _deliver_and_compare(site)


def test_a_table_is_altered_in_a_schema_that_its_transaction_does_not_see(site: Site) -> None:
    second = "ALTER TABLE item SET SCHEMA fresh; ALTER TABLE fresh.item ADD COLUMN size int DEFAULT 7; "
    second += "INSERT INTO fresh.item (id) VALUES (1)"
    first = "CREATE SCHEMA fresh"
    _interleaved(site, first, second, first_ends_first=True, isolation=IsolationLevel.REPEATABLE_READ)
    site.read_log().raise_error()
    site.deliver().raise_error()
    assert site.at_subscriber(_ROWS) == site.at_publisher("SELECT * FROM fresh.item ORDER BY id")
