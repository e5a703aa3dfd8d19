"""Early warnings of runs that are not, and of a store that is nearly full; and while the Publisher is away."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from conftest import DatabasesFactory
from support.observed import distribution_rows
from support.site import Site
from support.spark_here import SparkHere
from tranrepl.admin.early_warnings import EarlyWarning, WarningKind, missed_at, new_early_warnings
from tranrepl.distributor.store import store_at
from tranrepl.topology import Topology


@pytest.fixture
def site(databases: DatabasesFactory, tmp_path: Path) -> Site:
    subscriptions = [{"name": it, "connection": "subscriber"} for it in ("reporting", "archive")]
    settings: dict[str, Any] = {"schedule": "*/5 * * * *", "retained_log_threshold": 1_000_000}
    site = Site(databases(), tmp_path / "store", ["public.item"], SparkHere(), subscriptions, **settings)
    site.at_publisher("CREATE TABLE item (id int PRIMARY KEY, note text)")
    site.set_up()
    return site


def _new(site: Site) -> list[EarlyWarning]:
    return new_early_warnings(Topology(site.publication, site.connections))


def _kinds(site: Site) -> list[tuple[str, str]]:
    return [(it.subscription, it.kind.value) for it in _new(site)]


def _last_ran(site: Site, minutes: int, table: str = "msdistribution_history", where: str = "true") -> None:
    distribution_rows(site, f"UPDATE {table} SET time = now() - interval '{minutes} minutes' WHERE {where}")


def test_whole_intervals_without_a_run_are_missed() -> None:
    def at(hour: int, minute: int) -> datetime:
        return datetime(2026, 3, 29, hour, minute, tzinfo=UTC)

    assert missed_at("*/5 * * * *", at(10, 1), 3) == at(10, 20)
    assert missed_at("*/5 * * * *", at(10, 0), 1) == at(10, 10)
    assert missed_at("0 3 * * *", at(4, 0), 1) == at(3, 0) + timedelta(days=2)


def test_an_agent_that_has_not_run_is_told(site: Site) -> None:
    site.run()
    assert _kinds(site) == []
    _last_ran(site, 14)
    assert _kinds(site) == []
    only = "subscription_id = (SELECT subscription_id FROM mssubscriptions WHERE subscription = 'archive')"
    _last_ran(site, 21, where=only)
    (told,) = _new(site)
    assert (told.kind, told.subscription) == (WarningKind.NO_RUN, "archive")
    assert told.text.startswith(
        "the delivery to subscription archive has not run for 21 minutes (schedule: */5 * * * *"
    )
    # Where the log reader does not run either, that says all.
    _last_ran(site, 21, "mslogreader_history")
    _last_ran(site, 21)
    assert _kinds(site) == [("", "no run")]
    assert _kinds(site) == []
    site.run()
    assert _kinds(site) == []
    _last_ran(site, 21, "mslogreader_history")
    assert _kinds(site) == [("", "no run")]


def test_an_agent_that_begins_and_says_nothing_is_suspect(site: Site) -> None:
    site.run()
    with site.topology.distributor() as database:
        record = database.publications.get("purchasing")
        database.history.begin_run(record, database.subscriptions.get(record, "archive"))
    assert _kinds(site) == []
    _last_ran(site, 30, where="runstatus = 1")
    (told,) = _new(site)
    assert (told.kind, told.kind.number, told.subscription) == (WarningKind.AGENT_SUSPECT, "20554", "archive")
    assert "has not logged a progress message in 30 minutes" in told.text


def test_an_agent_that_should_deliver_continuously_and_is_not_is_told(site: Site) -> None:
    site.publication = site.publication.model_copy(update={"schedule": "continuous", "run_for": 3600})
    site.run()
    _last_ran(site, 9)
    assert _kinds(site) == []
    _last_ran(site, 11, where="subscription_id = (SELECT min(subscription_id) FROM mssubscriptions)")
    (told,) = _new(site)
    assert (told.kind, told.subscription) == (WarningKind.NO_RUN, "reporting")
    assert "has not run for 11 minutes (schedule: continuous; run_for: 3600)" in told.text
    # A continuous one that has nothing to do says nothing until its run ends.
    with site.topology.distributor() as database:
        database.history.begin_run(database.publications.get("purchasing"))
    _last_ran(site, 74, "mslogreader_history", "runstatus = 1")
    assert _kinds(site) == []
    _last_ran(site, 76, "mslogreader_history", "runstatus = 1")
    assert _kinds(site) == [("", "agent suspect")]


def test_without_a_schedule_no_run_is_missed(site: Site) -> None:
    site.run()
    site.publication = site.publication.model_copy(update={"schedule": None})
    _last_ran(site, 1000)
    assert _kinds(site) == []


def test_a_store_that_is_nearly_full_is_told(site: Site) -> None:
    store = site.publication.distributor
    space = store_at(store.store).space()
    assert space is not None
    disk = os.statvfs(Path(store.store).parent)
    part = min(disk.f_bavail / disk.f_blocks, disk.f_favail / disk.f_files if disk.f_files else 1)
    assert space.free_percent == pytest.approx(100 * part, abs=1)
    assert space.free_bytes == pytest.approx(disk.f_bavail * disk.f_frsize, rel=0.05)

    def with_threshold(percent: int) -> list[tuple[str, str]]:
        distributor = store.model_copy(update={"store_free_threshold": percent})
        site.publication = site.publication.model_copy(update={"distributor": distributor})
        return _kinds(site)

    assert with_threshold(max(0, int(space.free_percent) - 3)) == []
    above = min(100, int(space.free_percent) + 3)
    assert with_threshold(above) == [("", "store nearly full")]
    assert with_threshold(above) == []


def test_a_store_that_is_not_mounted_here_tells_nothing() -> None:
    assert store_at("file:///nowhere/at/all").space() is not None


def test_what_is_told_of_a_publisher_stays_told_while_it_is_away(site: Site) -> None:
    site.run()
    site.publication = site.publication.model_copy(update={"catalog_xmin_threshold": 1})
    site.at_publisher("SELECT txid_current()", "SELECT txid_current()")
    assert _kinds(site) == [("", "catalog_xmin")]
    there = site.connections["publisher"]
    site.connections["publisher"] = replace(there, port=1)
    _last_ran(site, 21)
    assert _kinds(site) == [("archive", "no run"), ("reporting", "no run")]
    site.connections["publisher"] = there
    assert _kinds(site) == []
