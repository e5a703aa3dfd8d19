"""An idle log reader compares tables and articles again where the catalogue or the articles changed, and only there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from conftest import DatabasesFactory
from support.databases import shared_databases
from support.embedded_postgres import PostgresServer
from support.site import Site
from tranrepl.distributor.database.articles import Articles
from tranrepl.errors import ConfigurationError
from tranrepl.jobs.results import JobResult
from tranrepl.publisher.postgres.publisher import PostgresPublisher

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TABLES = (
    "CREATE TABLE t (id int PRIMARY KEY, name varchar(9), more int DEFAULT 1, UNIQUE (name))",
    "CREATE TABLE p (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)",
    "CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (100)",
    "CREATE TABLE p2 (id int PRIMARY KEY, v text)",
    "CREATE SCHEMA s",
    "CREATE TABLE others (id int PRIMARY KEY)",
)
_OTHERS = (
    "INSERT INTO t VALUES (1, 'a'), (2, 'b'); UPDATE t SET more = 2; DELETE FROM t WHERE id = 1",
    "INSERT INTO p VALUES (1, 'a')",
    "VACUUM ANALYZE t",
    "CREATE TEMPORARY TABLE passing (id int)",
    "ALTER TABLE others ADD COLUMN v text",
    "DROP TABLE others",
)
_CHANGES = (
    "ALTER TABLE t ADD COLUMN c int",
    "ALTER TABLE t ALTER name TYPE varchar(10)",
    "ALTER TABLE t ALTER name TYPE text",
    "ALTER TABLE t ALTER name SET NOT NULL",
    "ALTER TABLE t ALTER more SET DEFAULT 3",
    "ALTER TABLE t ALTER more DROP DEFAULT",
    "ALTER TABLE t RENAME c TO d",
    "ALTER TABLE t DROP COLUMN d",
    "ALTER TABLE t REPLICA IDENTITY NOTHING",
    "ALTER TABLE t REPLICA IDENTITY USING INDEX t_name_key",
    "ALTER TABLE t DROP CONSTRAINT t_name_key",
    "TRUNCATE t",
    "VACUUM FULL t",
    "ALTER TABLE p1 ADD CHECK (id > 0)",
    "ALTER TABLE p ATTACH PARTITION p2 FOR VALUES FROM (100) TO (200)",
    "VACUUM FULL p2",
    "ALTER TABLE p DETACH PARTITION p2",
    "CREATE TABLE p3 PARTITION OF p FOR VALUES FROM (200) TO (300)",
    "DROP TABLE p3",
    "ALTER TABLE p1 SET SCHEMA s",
    "ALTER SCHEMA s RENAME TO r",
    "ALTER TABLE t RENAME TO u",
    "ALTER PUBLICATION {} SET (publish = 'insert')",
    "ALTER PUBLICATION {} SET (publish = 'insert, update, delete, truncate')",
    "ALTER PUBLICATION {} DROP TABLE u",
    "DROP TABLE p",
)


@pytest.fixture(scope="module")
def shared(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with shared_databases(postgres, "catalogue") as databases:
        site = Site(databases, tmp_path_factory.mktemp("catalogue") / "store", ["public.t", "public.p"])
        site.at_publisher(*_TABLES)
        site.set_up()
        yield site


def _state(site: Site) -> str | None:
    with site.topology.publisher("test") as publisher:
        return publisher.catalogue_state()


def test_each_change_of_what_is_published_makes_it_another_one(shared: Site) -> None:
    before = _state(shared)
    for statement in _OTHERS:
        shared.at_publisher(statement)
        assert _state(shared) == before, statement
    ((publication,),) = shared.at_publisher("SELECT quote_ident(pubname) FROM pg_publication")
    for statement in _CHANGES:
        shared.at_publisher(statement.replace("{}", publication))
        now = _state(shared)
        assert now != before, statement
        before = now


def test_articles_are_read_again_where_something_changed(
    databases: DatabasesFactory, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(databases(), tmp_path / "store", ["public.t", "public.p"], spark, replicate_ddl=True)
    site.at_publisher(*_TABLES)
    site.set_up()
    assert site.probe_log() is not None
    active, compared, delivered = (
        _counted(monkeypatch, *it) for it in ((Articles, "active"), (PostgresPublisher, "files"), (Articles, "by_id"))
    )
    assert site.probe_log() is not None
    assert active == []
    site.at_publisher("INSERT INTO t VALUES (1, 'a')")
    site.run().raise_error()
    assert (len(active), compared) == (1, []), "the job reads the articles, and compares no tables"
    assert [[str(it.source) for it in known.values()] for known in delivered] == [["public.t"]]
    assert site.probe_log() is not None
    assert len(active) == 1
    site.at_publisher("SET event_triggers = off; ALTER TABLE t RENAME name TO title; RESET event_triggers")
    site.at_publisher("INSERT INTO p VALUES (1, 'a')")
    for read in (site.run_log_reader, site.probe_log, site.probe_log):
        with pytest.raises(ConfigurationError, match="column name was dropped or renamed"):
            _done(read()).raise_error()


def _counted(monkeypatch: pytest.MonkeyPatch, of: type, name: str) -> list[Any]:
    """Return what calls of a method give from now on."""
    given: list[Any] = []
    method = getattr(of, name)

    def counted(*arguments: Any, **named: Any) -> Any:
        given.append(method(*arguments, **named))
        return given[-1]

    monkeypatch.setattr(of, name, counted)
    return given


def _done(result: JobResult | None) -> JobResult:
    assert result is not None
    return result
