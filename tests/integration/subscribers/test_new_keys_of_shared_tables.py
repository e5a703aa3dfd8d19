"""An article with a row filter whose primary key, or its type, changes: rows of others in its table that do not fit the
key stay, and the snapshot says what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import DatabasesFactory
from support.mariadb import MariaDbServer
from support.site import Rows, Site
from support.spark_here import SparkHere
from support.subscribers import STATEMENTS, sqlite_execute
from support.whole_run import good_run, whole_run
from tranrepl.connections import Connection

_NAMES = ("postgres", "mariadb", "sqlite")
_ROWS = "SELECT id, code, area FROM {} ORDER BY area, id"


class _Ends:
    """A publication of one table with a Subscriber of each kind."""

    def __init__(self, site: Site, schema: str, mariadb: MariaDbServer) -> None:
        self.site = site
        self._schema, self._mariadb = schema, mariadb

    def execute(self, name: str, statement: str) -> Rows:
        if name == "postgres":
            return self.site.at_subscriber(statement.format(f"{self._schema}.vendor"))
        if name == "mariadb":
            return list(self._mariadb.execute(statement.format("vendor"), database=self._schema))
        return sqlite_execute(self.site.connections["sqlite"].database or "")(statement.format("vendor"))

    def errors(self) -> dict[str, tuple[str, str]]:
        """Return what a whole run says of each Subscriber, and the remedy."""
        results = whole_run(self.site)
        said = {}
        for name in _NAMES:
            error = results[f"{name} snapshot"].error
            assert error is not None, name
            said[name] = (error.message, error.remedy or "")
        return said

    def published(self, *others: object) -> Rows:
        return [*others, *self.site.at_publisher(_ROWS.format("vendor WHERE area = 'in'"))]  # type: ignore[list-item]


def _ends(
    databases: DatabasesFactory, mariadb: MariaDbServer, schema: str, tmp_path: Path, **settings: str | None
) -> _Ends:
    article = {
        "source": "public.vendor",
        "destination": f"{schema}.vendor",
        "pre_creation_cmd": "delete",
        "filter": "area = 'in'",
        **STATEMENTS,
        **settings,
    }
    subscriptions = [{"name": it, "connection": it, "sync_type": "automatic"} for it in _NAMES]
    site = Site(databases(), tmp_path / "store", [article], SparkHere(), subscriptions, replicate_ddl=True)
    site.connections["postgres"] = site.connections["subscriber"]
    site.connections["mariadb"] = mariadb.connection(schema, "mariadb")
    site.connections["sqlite"] = Connection("sqlite", "sqlite", database=str(tmp_path / "file.db"))
    site.at_publisher(
        "CREATE TABLE vendor (id varchar(20) PRIMARY KEY, code varchar(20) NOT NULL, area text)",
        "INSERT INTO vendor VALUES ('1', 'a', 'in'), ('2', 'b', 'in'), ('3', 'c', 'out')",
    )
    site.at_subscriber(f"CREATE SCHEMA {schema}")
    site.set_up()
    good_run(site)
    return _Ends(site, schema, mariadb)


@pytest.fixture
def ends(databases: DatabasesFactory, mariadb: MariaDbServer, mariadb_database: str, tmp_path: Path) -> _Ends:
    return _ends(databases, mariadb, mariadb_database, tmp_path)


_RETYPE = ("ALTER TABLE vendor ALTER id TYPE int USING id::int",)
_OTHER_KEY = ("ALTER TABLE vendor DROP CONSTRAINT vendor_pkey, ADD PRIMARY KEY (code)",)


@pytest.mark.parametrize(
    ("changes", "others", "key", "mended"),
    [
        pytest.param(
            _RETYPE,
            [("own", "x", "elsewhere")],
            "id",
            ("UPDATE {} SET id = '77' WHERE id = 'own'", [(77, "x", "elsewhere")]),
            id="corrected",
        ),
        pytest.param(_RETYPE, [("own", "x", "elsewhere")], "id", ("DELETE FROM {} WHERE id = 'own'", []), id="deleted"),
        pytest.param(
            _OTHER_KEY,
            [("8", "x", "elsewhere"), ("9", "x", "elsewhere")],
            "code",
            ("DELETE FROM {} WHERE id = '9'", [("8", "x", "elsewhere")]),
            id="another key",
        ),
    ],
)
def test_rows_of_others_that_do_not_fit_stop_the_snapshot(
    ends: _Ends, changes: tuple[str, ...], others: Rows, key: str, mended: tuple[str, Rows]
) -> None:
    for name in _NAMES:
        for row in others:
            ends.execute(name, f"INSERT INTO {{}} VALUES {row}")
    ends.site.at_publisher(*changes)
    for _ in range(2):
        for name, (message, remedy) in ends.errors().items():
            assert message.startswith(f"article public.vendor: Subscriber {name}: rows of table "), message
            assert f" leaves to others do not fit its new primary key ({key}): " in message
            assert remedy == "correct or delete them at the Subscriber, then `tranrepl run FILE`"
            assert [it for it in ends.execute(name, _ROWS) if it[2] == "elsewhere"] == others, name
    statement, left = mended
    for name in _NAMES:
        ends.execute(name, statement)
    good_run(ends.site)
    for name in _NAMES:
        assert ends.execute(name, _ROWS) == ends.published(*left), name
    ends.site.at_publisher("UPDATE vendor SET area = 'in' WHERE code = 'c'", "DELETE FROM vendor WHERE code = 'a'")
    good_run(ends.site)
    for name in _NAMES:
        assert ends.execute(name, _ROWS) == ends.published(*left), name


def test_rows_of_an_article_without_a_filter_go(
    databases: DatabasesFactory, mariadb: MariaDbServer, mariadb_database: str, tmp_path: Path
) -> None:
    """They are copied anew, at PostgreSQL too."""
    ends = _ends(databases, mariadb, mariadb_database, tmp_path, filter=None)
    ends.site.at_publisher("INSERT INTO vendor VALUES ('x4', 'd', 'in')")
    good_run(ends.site)
    ends.site.at_publisher("ALTER TABLE vendor ALTER id TYPE int USING right(id, 1)::int")
    good_run(ends.site)
    for name in _NAMES:
        assert ends.execute(name, _ROWS) == ends.site.at_publisher(_ROWS.format("vendor")), name
