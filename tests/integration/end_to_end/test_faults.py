"""Jobs that are killed, driver, streams or all, or that lose their connection: nothing is lost or done twice, as an
audit of every single change at both ends shows."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from conftest import DatabasesFactory
from support.observed import (
    assert_each_change_is_stored_once,
    assert_each_change_was_made_once,
    assert_each_change_was_made_once_in_any_order,
    audited_site,
    distribution_rows,
    make_transactions,
    stored_commands,
    wait_until,
    watched,
    watermark,
)
from support.site import Rows, Site
from support.submitted_job import PATIENCE_SECONDS, POLL_SECONDS, SubmittedJob
from tranrepl.errors import ErrorKind, FencedError, TransientError
from tranrepl.failpoint import VARIABLE, Failpoint
from tranrepl.jobs.results import JobResult
from tranrepl.model.commands import FIRST_XACT_SEQNO


def _in_small_steps(site: Site, **subscription_settings: object) -> Site:
    """Return the same publication, with jobs that take long enough to be killed halfway."""
    return Site(
        site.databases,
        Path(site.publication.distributor.store),
        ["public.item"],
        site.spark,
        [{"name": "reporting", "connection": "subscriber", "commit_batch_size": 1, **subscription_settings}],
        log_reader={"read_batch_size": 20},
    )


_MOVED = "SELECT FROM msreplication_subscriptions WHERE transaction_timestamp > '\\x0000000000000000'"


def _rerun(job: Callable[[], JobResult]) -> JobResult:
    """Run a job until it has nothing left to do, as a schedule does. What a killed one left running at a server may
    delay it for a moment: the slot is in use, or the other one still delivers.
    """
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        try:
            result = job()
        except (TransientError, FencedError):
            time.sleep(POLL_SECONDS)
            continue
        if result.error is None and result.commands == 0:
            return result
        assert result.error is None or result.error.kind in (ErrorKind.TRANSIENT, ErrorKind.FENCED)
    raise AssertionError(f"not done within {PATIENCE_SECONDS} s")


@pytest.mark.slow
@pytest.mark.submit
def test_a_log_reader_killed_midway_stores_all_once_when_rerun(
    databases: DatabasesFactory, tmp_path: Path, spark: Any
) -> None:
    site = audited_site(databases(), tmp_path / "store", spark, step=None)
    make_transactions(site, 2000)

    with (
        watched(site.databases.distribution) as look,
        SubmittedJob("log-reader", _in_small_steps(site), tmp_path / "job") as job,
    ):
        wait_until(lambda: _is_writing_its_fourth_folder(look, tmp_path), job.runs)
        job.kill()
    stored = distribution_rows(site, "SELECT sum(transactions)::int FROM msrepl_batches")[0][0]
    assert 0 < stored < 2000

    _rerun(site.read_log)
    assert_each_change_is_stored_once(site)
    wait_until(lambda: site.at_publisher(_SLOTS) == [(1,)])
    site.run()
    assert_each_change_was_made_once(site)


_SLOTS = "SELECT count(*) FROM pg_replication_slots WHERE database = current_database()"


def _is_writing_its_fourth_folder(look: Callable[[str], Rows], tmp_path: Path) -> bool:
    registered = {folder for (folder,) in look("SELECT folder FROM msrepl_batches")}
    return len(registered) >= 3 and len(_folders(tmp_path) - registered) == 1


def _folders(tmp_path: Path) -> set[str]:
    store = tmp_path / "store"
    return {path.name for path in store.glob("[!_]*")} if store.exists() else set()


@pytest.mark.slow
@pytest.mark.submit
def test_processes_end_by_themselves_when_their_driver_is_killed(
    databases: DatabasesFactory, tmp_path: Path, spark: Any
) -> None:
    site = audited_site(databases(), tmp_path / "store", spark, step=None)
    last = _many_commands(site)
    with (
        watched(site.databases.subscriber) as look,
        SubmittedJob("distribute", _in_small_steps(site), tmp_path / "job") as job,
    ):
        wait_until(lambda: len(look(_MOVED)) == 1, job.runs)
        job.kill_driver()
        status, output = job.end()
        assert status == 1
        assert "Traceback" not in output.rpartition("error: ")[2]

    _rerun(site.deliver)
    assert watermark(site) == last
    assert_each_change_was_made_once(site)


@pytest.mark.slow
@pytest.mark.submit
def test_killed_streams_deliver_everything_once_when_rerun(
    databases: DatabasesFactory, tmp_path: Path, spark: Any
) -> None:
    site = audited_site(databases(), tmp_path / "store", spark, step=None)
    last = _many_commands(site)
    with (
        watched(site.databases.subscriber) as look,
        SubmittedJob("distribute", _in_small_steps(site, subscription_streams=2), tmp_path / "job") as job,
    ):
        wait_until(lambda: len(look(_MOVED)) > 1, job.runs)
        job.kill()
        assert FIRST_XACT_SEQNO < watermark(site) < last

    _rerun(site.deliver)
    assert watermark(site) == last
    assert_each_change_was_made_once_in_any_order(site)


@pytest.mark.slow
@pytest.mark.submit
def test_a_batch_is_finished_after_one_stream_committed_and_died(
    databases: DatabasesFactory, tmp_path: Path, spark: Any
) -> None:
    # The other stream's process lives on: Spark reports to it that the stage has failed.
    site = audited_site(databases(), tmp_path / "store", spark, subscription_streams=2)
    make_transactions(site, 200)
    site.read_log().raise_error()
    failpoint = {VARIABLE: f"{Failpoint.STREAM_COMMITTED}@1:2"}
    with SubmittedJob("distribute", site, tmp_path / "job", failpoint) as job:
        status, output = job.end()
    assert status == 1
    assert "Traceback" not in output.rpartition("error: ")[2]
    rows = site.at_subscriber("SELECT stream, transaction_timestamp FROM msreplication_subscriptions ORDER BY stream")
    assert rows[1][1] > rows[0][1] > FIRST_XACT_SEQNO

    site.deliver().raise_error()
    assert_each_change_was_made_once_in_any_order(site)


def _many_commands(site: Site) -> bytes:
    """Store commands without delivering them; return the last one's `xact_seqno`."""
    make_transactions(site, 1000)
    site.read_log().raise_error()
    return bytes.fromhex(stored_commands(site)[-1].xact_seqno)


def test_a_delivery_that_loses_its_connection_goes_on_from_its_last_commit(
    databases: DatabasesFactory, tmp_path: Path, spark: Any
) -> None:
    site = audited_site(databases(), tmp_path / "store", spark, step=None)
    make_transactions(site, 500)
    site.read_log().raise_error()
    with ThreadPoolExecutor(1) as pool, watched(site.databases.subscriber) as look:
        delivery = pool.submit(_in_small_steps(site).deliver)
        wait_until(lambda: len(look(_MOVED)) == 1, lambda: not delivery.done())
        look(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND application_name = 'tranrepl reporting'"
        )
        broken = delivery.result()
    assert broken.error is not None
    assert broken.error.kind is ErrorKind.TRANSIENT
    assert 0 < broken.transactions < 500
    assert broken.last_xact_seqno == watermark(site).hex()
    assert broken.transactions + site.deliver().transactions == 500
    assert_each_change_was_made_once(site)
