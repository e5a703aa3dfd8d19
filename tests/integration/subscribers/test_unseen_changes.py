"""A schema change that its transaction could not tell stops its article: the remedy is done, and rows are equal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from psycopg import IsolationLevel

from conftest import DatabasesFactory
from support.mariadb import MariaDbServer
from support.remedies import RUN, Walk
from support.site import Rows, Site
from support.spark_here import SparkHere

_KEY = "ALTER TABLE item DROP CONSTRAINT item_pkey, ADD CONSTRAINT item_key PRIMARY KEY (id)"
_ADD, _DROP = "ALTER TABLE item ADD COLUMN size int DEFAULT 7", "ALTER TABLE item DROP COLUMN note"
_RENAME = "ALTER TABLE item RENAME COLUMN note TO remark"
_CHANGES = {_ADD: "ALTER TABLE item ADD COLUMN size int", _DROP: _DROP, _RENAME: _RENAME}
"""What the second transaction does, and what a person does at the Subscriber then."""


class _Ends:
    """A publication with one Subscriber of some kind."""

    def __init__(self, site: Site, mariadb: MariaDbServer | None, schema: str) -> None:
        self.site, self._mariadb, self._schema = site, mariadb, schema

    def at_subscriber(self, statement: str) -> Rows:
        if self._mariadb is None:
            return self.site.at_subscriber(statement)
        return self._mariadb.execute(statement, database=self._schema)

    def alter(self, statement: str) -> None:
        self.at_subscriber(statement)


@pytest.fixture
def ends(
    databases: DatabasesFactory, mariadb: MariaDbServer, tmp_path: Path, kind: str, sync_type: str
) -> Iterator[_Ends]:
    other = kind == "mariadb"
    schema = f"unseen_{uuid4().hex[:8]}" if other else "public"
    article = {"source": "public.item", "destination": f"{schema}.item", "pre_creation_cmd": "delete"}
    subscription = {"name": "reporting", "connection": "subscriber", "sync_type": sync_type}
    site = Site(databases(), tmp_path / "store", [article], SparkHere(), [subscription], replicate_ddl=True)
    if other:
        mariadb.execute(f"CREATE DATABASE {schema}")
        site.connections["subscriber"] = mariadb.connection(schema, "subscriber")
    site.at_publisher("CREATE TABLE item (id int PRIMARY KEY, note text)")
    site.set_up()
    yield _Ends(site, mariadb if other else None, schema)
    if other:
        mariadb.execute(f"DROP DATABASE {schema}")


@pytest.mark.parametrize(
    ("kind", "sync_type", "second"),
    [
        ("postgres", "replication_support_only", _ADD),
        ("mariadb", "automatic", _RENAME),
        pytest.param("mariadb", "replication_support_only", _ADD, marks=pytest.mark.slow),
        pytest.param("postgres", "automatic", _ADD, marks=pytest.mark.slow),
        pytest.param("postgres", "automatic", _DROP, marks=pytest.mark.slow),
    ],
)
def test_the_remedy_of_a_change_that_was_not_told_ends_in_equal_rows(ends: _Ends, second: str) -> None:
    site = ends.site
    Walk(site).until(RUN)
    site.at_publisher("INSERT INTO item VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    Walk(site).until(RUN)
    _alter_unseen(site, _KEY, f"{second}; UPDATE item SET id = id + 10 WHERE id < 3; INSERT INTO item (id) VALUES (4)")
    site.at_publisher("DELETE FROM item WHERE id = 3", "INSERT INTO item (id) VALUES (5)")
    trail = Walk(site, {"setup": lambda _: ends.alter(_CHANGES[second])}).until(RUN)
    assert "at REPEATABLE READ or SERIALIZABLE, began before the table's last change was committed" in trail[0]
    rows = "SELECT * FROM item ORDER BY id"
    assert ends.at_subscriber(rows) == site.at_publisher(rows)
    site.at_publisher("UPDATE item SET id = id + 100")
    Walk(site).until(RUN)
    assert ends.at_subscriber(rows) == site.at_publisher(rows)


def _alter_unseen(site: Site, first: str, second: str) -> None:
    """Commit the second, whose transaction began before the first."""
    parameters = site.databases.publisher.libpq_parameters("test")
    with psycopg.connect(**parameters) as one, psycopg.connect(**parameters) as other:  # type: ignore[arg-type]
        other.isolation_level = IsolationLevel.REPEATABLE_READ
        other.execute("SELECT 1")
        one.execute(first.encode())
        one.commit()
        other.execute(second.encode())
