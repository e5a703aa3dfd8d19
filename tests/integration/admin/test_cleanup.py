"""Retention: what goes, what stays for whom, and what a subscription meets that has waited too long."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from conftest import DatabaseFactory, DatabasesFactory
from support.equality import differing_rows
from support.observed import ITEM, distribution_rows, insert_transactions, watermark
from support.partitioned_site import AUTOMATIC
from support.shell import publication_file, typed
from support.site import Site, execute
from support.spark_here import SparkHere
from tranrepl.admin.cleanup import clean_up
from tranrepl.admin.reinitialization import reinitialize
from tranrepl.distributor.cleanup import Cleanup
from tranrepl.distributor.store import store_at
from tranrepl.errors import ConfigurationError

_DAY = 24


def _site(databases: DatabasesFactory, tmp_path: Path, **retention: int) -> Site:
    store = {"connection": "distribution", "store": str(tmp_path / "store"), **retention}
    site = Site(databases(), tmp_path / "store", ["public.item"], SparkHere(), distributor=store)
    site.at_publisher(ITEM)
    site.set_up()
    return site


def _clean_up(site: Site) -> Cleanup:
    return clean_up(site.topology)


def _age(site: Site, hours: int) -> None:
    """Make all that is registered and recorded older."""
    for table, column in {
        "msrepl_batches": "entry_time",
        "mslogreader_history": "time",
        "msdistribution_history": "time",
        "msrepl_errors": "time",
    }.items():
        distribution_rows(site, f"UPDATE {table} SET {column} = {column} - interval '{hours} hours'")


def _stored(site: Site) -> tuple[int, int]:
    """Count the registered batches, and the folders in the store."""
    (rows,) = distribution_rows(site, "SELECT count(*) FROM msrepl_batches")
    store = Path(site.publication.distributor.store)
    return rows[0], len(list(store.glob("[!_]*"))) if store.exists() else 0


def _store(site: Site, *sizes: int) -> None:
    insert_transactions(site, *sizes)
    site.read_log().raise_error()


def _refusal(site: Site) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as refused:
        site.deliver()
    assert refused.value.report.number == "21074"
    assert "must be reinitialized" in refused.value.message
    return refused.value


def test_a_batch_goes_when_every_active_subscription_has_it(
    databases: DatabasesFactory, database: DatabaseFactory, tmp_path: Path
) -> None:
    site = _site(databases, tmp_path)
    names = {"reporting": "subscriber", "archive": "archive"}
    both = [{"name": name, "connection": connection} for name, connection in names.items()]
    two = Site(site.databases, tmp_path / "store", ["public.item"], SparkHere(), both)
    archive = two.connections["archive"] = database("archive")
    two.set_up()
    for size in (1, 2, 3):
        _store(two, size)
    two.deliver("reporting").raise_error()
    assert _clean_up(two) == Cleanup()

    # One that cannot be asked keeps all, though the history says what it has.
    two.deliver("archive").raise_error()
    two.connections["archive"] = replace(archive, database="absent")
    kept = _clean_up(two)
    assert (kept.batches, list(kept.unreachable), _stored(two)) == (0, ["archive"], (3, 3))
    two.connections["archive"] = archive
    done = _clean_up(two)
    assert (done.batches, done.commands, done.unreachable, _stored(two)) == (3, 6, {}, (0, 0))
    file = publication_file(tmp_path, [{"source": "public.item"}])
    nothing = typed("browse", file, environment=two.databases.environment)
    assert "and clean-up has removed them" in nothing.err
    assert _clean_up(two) == Cleanup()

    # Those that come later are delivered as ever.
    _store(two, 4)
    two.run()
    assert (differing_rows(two), differing_rows(two, archive)) == ({}, {})


def test_a_batch_is_kept_for_the_minimum(databases: DatabasesFactory, tmp_path: Path) -> None:
    site = _site(databases, tmp_path, min_distretention=_DAY)
    _store(site, 1)
    _age(site, _DAY)
    _store(site, 2)
    site.deliver().raise_error()
    assert _clean_up(site).batches == 1
    assert distribution_rows(site, "SELECT commands FROM msrepl_batches") == [(2,)]


def test_schema_changes_are_kept_for_an_article_that_waits_for_its_snapshot(
    databases: DatabasesFactory, tmp_path: Path
) -> None:
    tables = ("item", "event")
    articles = [f"public.{it}" for it in tables]
    site = Site(databases(), tmp_path / "store", articles, SparkHere(), [AUTOMATIC], replicate_ddl=True)
    site.at_publisher(*(f"CREATE TABLE {it} (id int PRIMARY KEY, code int NOT NULL)" for it in tables))
    site.set_up()
    site.take_snapshot().raise_error()
    more = [f"INSERT INTO {it} SELECT n, 10 - n FROM generate_series(1, 4) n" for it in tables]
    site.at_publisher(*more, "ALTER TABLE item DROP CONSTRAINT item_pkey, ADD PRIMARY KEY (code)")
    site.run()
    assert _clean_up(site).batches > 0
    site.take_snapshot().raise_error()
    assert differing_rows(site) == {}
    key = "SELECT pg_get_indexdef(indexrelid) FROM pg_index WHERE indrelid = 'item'::regclass AND indisprimary"
    assert site.at_subscriber(key) == site.at_publisher(key)

    site.at_publisher("INSERT INTO event VALUES (5, 5)")
    site.run()
    _clean_up(site)
    assert distribution_rows(site, "SELECT count(*) FROM msschema_changes") == [(0,)]


def test_who_waited_too_long_is_deactivated_and_must_be_reinitialized(
    databases: DatabasesFactory, tmp_path: Path
) -> None:
    site = _site(databases, tmp_path)
    file, environment = publication_file(tmp_path, ["public.item"]), site.databases.environment
    file.write_text(file.read_text(encoding="utf-8").replace("- public.item", "- source: public.item"))
    _store(site, 1)
    _age(site, 71)
    assert _clean_up(site) == Cleanup()
    _age(site, 1)
    outcome = typed("cleanup", file, environment=environment)
    assert outcome.status == 0
    assert "error: subscription reporting of publication purchasing was deactivated" in outcome.err
    assert "removed 1 batch, 1 command, 0 history rows, 0 tracer tokens, 0 orphan folders" in outcome.out
    assert distribution_rows(
        site, "SELECT error_code, subscription, error_text || remedy ~ 'max_distretention' FROM msrepl_errors"
    ) == [("21011", "reporting", True)]
    assert _stored(site) == (0, 0)
    assert "is inactive" in _refusal(site).message

    # The way back that the message tells.
    insert_transactions(site, 1)
    unread = typed("reinitialize", file, "-s", "reporting", environment=environment)
    assert (unread.status, "changes that are not read yet" in unread.err) == (1, True)
    site.read_log().raise_error()
    rows = site.at_publisher("SELECT id, xact, note FROM item")
    site.at_subscriber(*(f"INSERT INTO item VALUES ({id_}, {xact}, '{note}')" for id_, xact, note in rows))
    done = typed("reinitialize", file, "-s", "reporting", environment=environment)
    assert (done.status, done.out) == (0, f"reporting: begins after 0x{watermark(site).hex()}\n")
    _store(site, 5)
    assert site.deliver().commands == 5
    assert site.differences() == []


def test_a_subscription_without_undelivered_commands_is_never_deactivated(
    databases: DatabasesFactory, tmp_path: Path
) -> None:
    site = _site(databases, tmp_path, min_distretention=72)
    _store(site, 1)
    site.run()
    _age(site, 1000)
    assert _clean_up(site).deactivated == {}
    _store(site, 1)
    assert site.deliver().commands == 1


def test_a_subscriber_restored_from_before_what_is_kept_is_refused(databases: DatabasesFactory, tmp_path: Path) -> None:
    site = _site(databases, tmp_path)
    _store(site, 1)
    before = watermark(site)
    site.deliver().raise_error()
    _clean_up(site)
    site.at_subscriber(f"UPDATE msreplication_subscriptions SET transaction_timestamp = '\\x{before.hex()}'")
    assert "clean-up has removed" in _refusal(site).message
    start = reinitialize(site.topology, "reporting")
    assert (watermark(site), site.deliver().error) == (start, None)


def test_a_dead_subscriber_is_judged_by_its_history(databases: DatabasesFactory, tmp_path: Path) -> None:
    site = _site(databases, tmp_path)
    _store(site, 1)
    site.deliver().raise_error()
    alive = site.connections["subscriber"]
    site.connections["subscriber"] = replace(alive, database="absent")
    _age(site, 100)
    assert _clean_up(site).deactivated == {}, "it has all there is"
    _store(site, 1)
    _age(site, 100)
    assert list(_clean_up(site).deactivated) == ["reporting"]


def test_folders_that_no_batch_knows_go(databases: DatabasesFactory, tmp_path: Path) -> None:
    site = _site(databases, tmp_path)
    _store(site, 1)
    store = tmp_path / "store"
    (registered,) = store.glob("[!_]*")
    ages: Mapping[str, int] = {"0" * 32: 7, "1" * 32: 5, "readme": 7, registered.name: 7}
    for name, hours in ages.items():
        folder, then = store / name, time.time() - hours * 3600
        folder.mkdir(exist_ok=True)
        (folder / "part").touch()
        for path in (folder / "part", *folder.iterdir(), folder):
            os.utime(path, (then, then))
    counts = []
    for hours in (0, 5, 7):
        # Since the clean-up that found it.
        distribution_rows(
            site,
            f"UPDATE msrepl_replaced_folders SET replaced_time = now() - interval '{hours} h' RETURNING folder",
        )
        counts.append(_clean_up(site).orphan_folders)
    assert counts == [0, 0, 1]
    assert {it.name for it in store.glob("[!_]*")} == {"1" * 32, "readme", registered.name}
    assert site.deliver().commands == 1


def test_nothing_is_forgotten_where_the_store_cannot_be_reached(databases: DatabasesFactory, tmp_path: Path) -> None:
    site = _site(databases, tmp_path)
    _store(site, 1)
    site.deliver().raise_error()
    distribution_rows(site, "UPDATE mspublications SET store = 'absent://elsewhere/store'")
    with pytest.raises(ConfigurationError, match="no store is at absent://"):
        _clean_up(site)
    assert _stored(site)[0] == 1
    store_at(f"file://{tmp_path}/store").remove([next((tmp_path / "store").glob("[!_]*")).name])
    assert _stored(site) == (1, 0)


def test_history_goes_but_not_what_it_adds_up_to(databases: DatabasesFactory, tmp_path: Path) -> None:
    site = _site(databases, tmp_path)
    file = publication_file(tmp_path, [{"source": "public.item"}])
    _store(site, 3)
    site.deliver().raise_error()
    site.deliver()
    site.at_subscriber("DELETE FROM item WHERE id = 1")
    site.at_publisher("UPDATE item SET xact = 9 WHERE id = 1")
    site.read_log().raise_error()
    assert site.deliver().error is not None
    _age(site, 49)
    site.at_publisher("DELETE FROM item WHERE id = 1")
    histories = ("mslogreader_history", "msdistribution_history", "msrepl_errors")
    assert [len(distribution_rows(site, f"SELECT 1 FROM {it}")) for it in histories] == [2, 3, 1]
    assert _clean_up(site).history_rows == 1 + 2
    # The newest of each agent stays, with its error.
    assert [len(distribution_rows(site, f"SELECT 1 FROM {it}")) for it in histories] == [1, 1, 1]
    status = typed("status", file, "--json", environment=site.databases.environment).out
    assert '"public.item": 3' in status
    execute(site.databases.distribution, "DELETE FROM msdistribution_history")
    assert _clean_up(site).history_rows == 1
