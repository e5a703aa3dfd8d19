"""Early warnings: `status` names each condition that will stop replication, once while it lasts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from conftest import DatabasesFactory
from support.observed import distribution_rows
from support.site import Site
from support.spark_here import SparkHere
from tranrepl.admin.early_warnings import (
    EarlyWarning,
    Known,
    WarningKind,
    current_warnings,
    new_early_warnings,
)
from tranrepl.distributor.database import DistributionDatabase
from tranrepl.distributor.database.overview import PublicationOverview
from tranrepl.distributor.teardown import remove_publication
from tranrepl.publisher.publisher import Danger, RetainedLog
from tranrepl.topology import Topology

_MEGABYTE = 1024 * 1024
_TOLD = "SELECT subscription, warning FROM msrepl_warnings ORDER BY 1, 2"


@pytest.fixture
def site(databases: DatabasesFactory, tmp_path: Path) -> Site:
    settings: dict[str, Any] = {"latency_threshold": 60, "retained_log_threshold": 100_000}
    site = Site(databases(), tmp_path / "store", ["public.item"], SparkHere(), **settings)
    site.at_publisher("CREATE TABLE item (id int PRIMARY KEY, note text)")
    site.set_up()
    return site


def _new(site: Site) -> Sequence[tuple[str, str]]:
    return [
        (it.subscription, it.kind.number) for it in new_early_warnings(Topology(site.publication, site.connections))
    ]


def _wait(site: Site, since: str) -> None:
    """Make what is stored look as if it had waited for so long."""
    distribution_rows(site, f"UPDATE msrepl_batches SET first_commit_time = now() - interval '{since}'")


def test_each_warning_is_told_once_until_it_has_passed(site: Site) -> None:
    assert _new(site) == []
    site.at_publisher("INSERT INTO item (id) VALUES (1)")
    site.read_log().raise_error()
    assert _new(site) == []
    _wait(site, "2 minutes")
    assert _new(site) == [("reporting", "14161")]
    assert _new(site) == []
    _wait(site, "70 hours")
    assert _new(site) == [("reporting", "14160")]
    site.deliver().raise_error()
    assert _new(site) == []
    assert distribution_rows(site, _TOLD) == []
    site.at_publisher("INSERT INTO item (id) VALUES (2)")
    site.read_log().raise_error()
    _wait(site, "2 minutes")
    (slow,) = new_early_warnings(Topology(site.publication, site.connections))
    assert slow.kind.number == "14161"
    assert re.search(r"waited for 2 min \(latency_threshold: \d+\); 1 undelivered command$", slow.text)


def test_log_above_the_threshold_is_told(site: Site) -> None:
    site.publication = site.publication.model_copy(update={"retained_log_threshold": 1})
    site.at_publisher("INSERT INTO item (id, note) SELECT n, repeat('x', 1000) FROM generate_series(1, 3000) n")
    (warning,) = new_early_warnings(Topology(site.publication, site.connections))
    assert (warning.kind, warning.subscription) == (WarningKind.RETAINED_LOG, "")
    assert "(retained_log_threshold: 1)" in warning.text


def test_teardown_removes_what_was_told(site: Site) -> None:
    site.at_publisher("INSERT INTO item (id) VALUES (1)")
    site.read_log().raise_error()
    _wait(site, "2 minutes")
    assert _new(site) != []
    with DistributionDatabase(site.connections["distribution"]) as database:
        remove_publication(database, database.publications.get(site.publication.publication))
    assert distribution_rows(site, _TOLD) == []


def _of_log(site: Site, retained: RetainedLog) -> list[EarlyWarning]:
    known = PublicationOverview("purchasing", "publisher", "/store", None, None, 0, ())
    return current_warnings(site.publication, Known(known, retained, None), datetime.now(UTC))


def test_each_danger_of_the_log_is_one_warning_in_the_publishers_words(site: Site) -> None:
    dangers = (Danger("it may be lost", "read it"), Danger("its time is over soon", "read it now"))
    found = _of_log(site, RetainedLog("extended", 700 * _MEGABYTE, None, dangers=dangers))
    assert [it.kind for it in found] == [WarningKind.LOG_IN_DANGER] * 2
    assert [(it.text, it.remedy) for it in found] == [(it.text, it.remedy) for it in dangers]
