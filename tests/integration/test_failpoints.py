"""Jobs killed by SIGKILL before and after every change of state, and run again: every change is made once."""

from __future__ import annotations

from itertools import cycle
from pathlib import Path

import pytest

from conftest import DatabasesFactory
from integration.observed import (
    assert_each_change_is_stored_once,
    assert_each_change_was_made_once,
    assert_each_change_was_made_once_in_any_order,
    audited_site,
    make_transactions,
)
from sandbox.child_job import DISTRIBUTION, LOG_READER, ChildJob, Job
from sandbox.site import Site
from tranrepl.failpoint import Failpoint
from tranrepl.settings import StreamAssignment

_TRANSACTIONS = 70
"""Enough for several batches and commit batches."""

_OF_LOG_READER = [
    Failpoint.FETCHED,
    Failpoint.STAGED,
    Failpoint.PUBLISHED,
    Failpoint.REGISTERED,
    Failpoint.ADVANCED,
]
_OF_ONE_CONNECTION = [
    Failpoint.BEGIN,
    Failpoint.APPLIED,
    Failpoint.BEFORE_COMMIT,
    Failpoint.WATERMARK_SET,
    Failpoint.AFTER_COMMIT,
]

_OF_STREAMS = [
    f"{Failpoint.BEGIN}@0",
    f"{Failpoint.BEGIN}@1",
    f"{Failpoint.APPLIED}@1",
    f"{Failpoint.VOTED}@0",
    f"{Failpoint.VOTED}@1",
    f"{Failpoint.STREAM_COMMITTED}@1",
    f"{Failpoint.BEFORE_COMMIT}@0",
    f"{Failpoint.WATERMARK_SET}@0",
    f"{Failpoint.AFTER_COMMIT}@0",
]


@pytest.fixture
def site(databases: DatabasesFactory, tmp_path: Path) -> Site:
    return audited_site(databases(), tmp_path / "store")


@pytest.mark.parametrize("failpoint", _OF_LOG_READER)
def test_a_log_reader_killed_anywhere_stores_everything_once_when_run_again(failpoint: Failpoint, site: Site) -> None:
    make_transactions(site, _TRANSACTIONS)
    _kill_first_and_second_time(LOG_READER, site, failpoint)
    _run(LOG_READER, site)
    assert_each_change_is_stored_once(site)
    _run(DISTRIBUTION, site)
    assert_each_change_was_made_once(site)


@pytest.mark.parametrize("failpoint", _OF_ONE_CONNECTION)
def test_a_delivery_killed_anywhere_makes_every_change_once_when_run_again(failpoint: Failpoint, site: Site) -> None:
    make_transactions(site, _TRANSACTIONS)
    _run(LOG_READER, site)
    _kill_first_and_second_time(DISTRIBUTION, site, f"{failpoint}@0")
    _run(DISTRIBUTION, site)
    assert_each_change_was_made_once(site)


@pytest.mark.parametrize(("failpoint", "assignment"), list(zip(_OF_STREAMS, cycle(StreamAssignment), strict=False)))
def test_streams_killed_anywhere_make_every_change_once_when_run_again(
    failpoint: str, assignment: StreamAssignment, databases: DatabasesFactory, tmp_path: Path
) -> None:
    site = audited_site(databases(), tmp_path / "store", subscription_streams=2, stream_assignment=assignment)
    make_transactions(site, _TRANSACTIONS)
    _run(LOG_READER, site)
    assert ChildJob(DISTRIBUTION, site, f"{failpoint}:2").killed()
    _run(DISTRIBUTION, site)
    assert_each_change_was_made_once_in_any_order(site)


def _kill_first_and_second_time(job: Job, site: Site, failpoint: str) -> None:
    for nth in (1, 2):
        assert ChildJob(job, site, f"{failpoint}:{nth}").killed()


def _run(job: Job, site: Site) -> None:
    ChildJob(job, site).result().raise_error()
