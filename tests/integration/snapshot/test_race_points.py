"""Schema changes at each point of the hand-over from snapshot to log: both ends are equal at the end."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from conftest import DatabasesFactory
from support.equality import differing_rows
from support.site import Site
from support.snapshot_races import Race, racing_statements, run_until_settled
from support.spark_here import SparkHere
from support.subscribers import sqlite_execute
from tranrepl.connections import Connection
from tranrepl.errors import ConfigurationError, TransientError
from tranrepl.failpoint import Failpoint
from tranrepl.jobs.requests import SnapshotRequest
from tranrepl.snapshot.reinitialization import mark_for_reinitialization

_RACES = (
    Race(Failpoint.SNAPSHOT_INITIATED, read_log=True),
    Race(Failpoint.SNAPSHOT_EXPORTED, read_log=False),
    Race(Failpoint.RANGE_COMMITTED, read_log=False),
    Race(Failpoint.SNAPSHOT_LOADED, read_log=True),
    Race(Failpoint.SNAPSHOT_ENDED, read_log=False),
    Race(Failpoint.APPLIED, read_log=False),
)
_COLUMNS = "id int PRIMARY KEY, note text, number int, spare text"
# Each transaction, in the round of that number.
_CHANGES = {
    "added": "ALTER TABLE {t} ADD COLUMN c{n} int NOT NULL DEFAULT {n}; UPDATE {t} SET c{n} = id WHERE id % 3 = 0",
    "drawn": "ALTER TABLE {t} ADD COLUMN c{n} float8 DEFAULT random(); INSERT INTO {t} (id) VALUES (1000 + {n})",
    "dropped": "ALTER TABLE {t} DROP COLUMN d{n}; UPDATE {t} SET number = -number",
    "renamed": "ALTER TABLE {t} RENAME COLUMN d{n} TO e{n}; INSERT INTO {t} (id, e{n}) VALUES (1000 + {n}, 'new')",
    "swapped": "ALTER TABLE {t} RENAME note TO other; ALTER TABLE {t} RENAME spare TO note; "
    "ALTER TABLE {t} RENAME other TO spare; INSERT INTO {t} (id, note) VALUES (1000 + {n}, 'new')",
    "rewritten": "UPDATE {t} SET number = {n}; ALTER TABLE {t} ALTER note TYPE varchar({n}00) USING 'w' || note",
    "emptied": "INSERT INTO {t} (id) VALUES (-{n}); TRUNCATE {t}; INSERT INTO {t} (id, number) VALUES (1000, {n})",
}


def _site(databases: DatabasesFactory, tmp_path: Path, *tables: str) -> Site:
    site = _site_of(databases, tmp_path, *tables)
    for table in tables:
        site.at_publisher(f"CREATE TABLE {table} ({_COLUMNS})", _FILL.format(table))
    return site


def _site_of(databases: DatabasesFactory, tmp_path: Path, *tables: str, **settings: str) -> Site:
    articles = [{"source": f"public.{it}", "pre_creation_cmd": "truncate", **settings} for it in tables]
    subscription = {"name": "reporting", "connection": "subscriber", "sync_type": "automatic"}
    return Site(databases(), tmp_path / "store", articles, SparkHere(), [subscription], replicate_ddl=True)


_FILL = "INSERT INTO {} SELECT n, 'note ' || n, n, 's' FROM generate_series(1, 50) n"
_SHAPE = """
SELECT table_name, column_name, data_type, character_maximum_length FROM information_schema.columns
 WHERE table_name = ANY (string_to_array('{}', ' ')) ORDER BY 1, 2
"""


@pytest.mark.slow
def test_columns_and_rows_changed_at_any_point_are_the_same_at_both_ends(
    databases: DatabasesFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = _site(databases, tmp_path, *_CHANGES)
    rounds = range(1, len(_RACES) + 1)
    for table in ("dropped", "renamed"):
        site.at_publisher(f"ALTER TABLE {table} " + ", ".join(f"ADD COLUMN d{n} text DEFAULT 'd'" for n in rounds))
    site.set_up()
    shape = _SHAPE.format(" ".join(_CHANGES))
    for number, race in zip(rounds, _RACES, strict=True):
        if race.point is not Failpoint.APPLIED:
            _reinitialize(site)
        site.at_publisher(f"INSERT INTO added (id) VALUES (2000 + {number})")
        statements = [f"BEGIN; {it.format(t=table, n=number)}; COMMIT" for table, it in _CHANGES.items()]
        with racing_statements(site, race, statements, monkeypatch):
            run_until_settled(site)
        assert differing_rows(site) == {}, race
        assert site.at_subscriber(shape) == site.at_publisher(shape), race


def _reinitialize(site: Site) -> None:
    mark_for_reinitialization(SnapshotRequest(publication=site.publication, subscription="reporting"), site.topology)


_POINTS = (Failpoint.SNAPSHOT_EXPORTED, Failpoint.RANGE_COMMITTED)


@pytest.mark.parametrize("point", _POINTS)
def test_a_table_renamed_while_it_is_copied_stays_the_same_article(
    point: Failpoint, databases: DatabasesFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = _site(databases, tmp_path, "beside", "t")
    site.set_up()
    statements = ["ALTER TABLE t RENAME TO moved", "INSERT INTO moved VALUES (1001, 'new', 1)"]
    with racing_statements(site, Race(point, read_log=False), statements, monkeypatch):
        with pytest.raises(TransientError):
            site.take_snapshot()
        with pytest.raises(TransientError, match="not the one that is registered: that was renamed or dropped") as said:
            site.take_snapshot()
        assert "`tranrepl log-reader FILE` registers the schema change" in (said.value.report.remedy or "")
        run_until_settled(site)
    rows = site.at_publisher("SELECT * FROM moved ORDER BY id")
    assert len(rows) == 51
    assert site.at_subscriber("SELECT * FROM t ORDER BY id") == rows


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("point", _POINTS)
@pytest.mark.parametrize("first", [Site.read_log, Site.set_up])
def test_a_table_dropped_while_it_is_copied_and_created_again_is_published_by_setup(
    first: Callable[[Site], object],
    point: Failpoint,
    databases: DatabasesFactory,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = _site(databases, tmp_path, "beside", "t")
    site.set_up()
    statements = ["DROP TABLE t", f"CREATE TABLE t ({_COLUMNS})", "INSERT INTO t VALUES (1001, 'new', 1)"]
    with racing_statements(site, Race(point, read_log=False), statements, monkeypatch):
        with pytest.raises(TransientError):
            site.take_snapshot()
        first(site)
        missed = pytest.raises(ConfigurationError, match="dropped and made again") if first is Site.read_log else None
        with missed or nullcontext():
            run_until_settled(site)
    site.set_up()
    site.at_publisher("INSERT INTO t VALUES (1002, 'later', 2)")
    run_until_settled(site)
    assert differing_rows(site) == {}
    assert site.at_subscriber("SELECT id FROM t ORDER BY id") == [(1001,), (1002,)]


_ALL_POINTS = tuple(
    pytest.param(it, marks=() if it.point is Failpoint.RANGE_COMMITTED else pytest.mark.slow) for it in _RACES[:5]
)


@pytest.mark.parametrize("race", _ALL_POINTS)
@pytest.mark.parametrize("kind", ["postgres", pytest.param("sqlite", marks=pytest.mark.slow)])
def test_labels_renamed_at_any_point_are_the_same_at_both_ends(
    race: Race, kind: str, databases: DatabasesFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No lock of a table keeps a label, and each COPY writes those of now: here two take turns."""
    enum, tables = "CREATE TYPE mood AS ENUM ('sad', 'glad')", ("first", "second")
    fill = "INSERT INTO {} SELECT n, (ARRAY['sad', 'glad'])[n % 2 + 1]::mood FROM generate_series(1, 9) n"
    site = _site_of(databases, tmp_path, *tables, ins_cmd="SQL", upd_cmd="SQL", del_cmd="SQL")
    site.at_publisher(enum, *(f"CREATE TABLE {it} (id int PRIMARY KEY, mood mood)" for it in tables))
    site.at_publisher(*(fill.format(it) for it in tables))
    site.at_subscriber(enum)
    file = str(tmp_path / "subscriber.db")
    if kind == "sqlite":
        site.connections["subscriber"] = Connection(connection_id="subscriber", kind="sqlite", database=file)
    site.set_up()
    renames = (("sad", "blue"), ("glad", "sad"), ("blue", "glad"))
    statements = [f"ALTER TYPE mood RENAME VALUE '{before}' TO '{now}'" for before, now in renames]
    with racing_statements(site, race, [*statements, "INSERT INTO second VALUES (10, 'sad')"], monkeypatch):
        run_until_settled(site)
    at_subscriber = site.at_subscriber if kind == "postgres" else sqlite_execute(file)
    for it in tables:
        assert at_subscriber(f"SELECT * FROM {it} ORDER BY id") == site.at_publisher(f"SELECT * FROM {it} ORDER BY id")
