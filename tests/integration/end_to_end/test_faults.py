"""Jobs that are killed, that lose their connection, or that meet another one at the same work: nothing is lost or done
twice, as an audit of every single change at both ends shows."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Self

import psycopg
import pytest
import yaml

from conftest import DatabasesFactory
from support.databases import Databases
from support.observed import (
    AUDIT,
    ITEM,
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
from tranrepl.distributor.database.batches import Batches
from tranrepl.errors import ErrorKind, FencedError, TransientError
from tranrepl.failpoint import VARIABLE, Failpoint
from tranrepl.jobs.results import JobResult
from tranrepl.model.commands import FIRST_XACT_SEQNO

_PATIENCE_SECONDS = 300.0
_POLL_SECONDS = 0.03


def _audited_site(databases: Databases, tmp_path: Path, spark: Any) -> Site:
    """With the default sizes of batches and commit batches."""
    site = Site(databases, tmp_path / "store", ["public.item"], spark)
    site.at_publisher(ITEM)
    site.set_up()
    site.at_publisher(AUDIT)
    site.at_subscriber(AUDIT)
    return site


def _in_small_steps(site: Site, **subscription_settings: object) -> Site:
    """The same publication, whose jobs take long enough to be met in the middle."""
    return Site(
        site.databases,
        Path(site.publication.distributor.store),
        ["public.item"],
        site.spark,
        [{"name": "reporting", "connection": "subscriber", "commit_batch_size": 1, **subscription_settings}],
        log_reader={"read_batch_size": 20},
    )


_MOVED = "SELECT FROM msreplication_subscriptions WHERE transaction_timestamp > '\\x0000000000000000'"


# Killed drivers


class _SubmittedJob:
    """`tranrepl VERB FILE` as a person runs it; all processes that it starts are in one session of their own."""

    def __init__(
        self, verb: str, site: Site, folder: Path, environment: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        folder.mkdir()
        file = folder / "purchasing.yaml"
        file.write_text(yaml.safe_dump(site.publication.model_dump(mode="json")), encoding="utf-8")
        self._log = folder / "job.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [str(Path(sys.executable).parent / "tranrepl"), verb, str(file), "--master", "local[2]"],
                env={**os.environ, **site.databases.environment, **_leaving_nothing_outside(folder), **environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def runs(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """SIGKILL to the driver and to everything around it, at once."""
        while running := self._processes():
            for pid in running:
                _kill(pid)
            self._process.poll()
            time.sleep(_POLL_SECONDS)
        self._process.wait()

    def kill_driver(self) -> None:
        """SIGKILL to the driver's JVM alone: its Python processes find out by themselves."""
        drivers = [pid for pid in self._processes() if _name(pid) == "java"]
        assert len(drivers) == 1
        _kill(drivers[0])

    def end(self) -> tuple[int, str]:
        """Exit status and output of a job that ends by itself."""
        status = self._process.wait(_PATIENCE_SECONDS)
        return status, self._log.read_text(encoding="utf-8")

    def _processes(self) -> list[int]:
        """Living processes of the job's session."""
        pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]
        return [pid for pid in pids if _session_of(pid) == self._process.pid]


def _leaving_nothing_outside(folder: Path) -> dict[str, str]:
    """Where a job that gets no chance to clean up puts its temporary files."""
    return {
        "TMPDIR": str(folder),
        "SPARK_LOCAL_DIRS": str(folder),
        "SPARK_SUBMIT_OPTS": f"-Djava.io.tmpdir={folder}",
    }


def _session_of(pid: int) -> int | None:
    """None for a process that has ended."""
    with suppress(OSError):
        state, _, _, session = _stat(pid)[:4]
        return int(session) if state != "Z" else None
    return None


def _stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat after the name, which may hold spaces: state, parent, group, session …"""
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()


def _name(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip()
    return ""


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _rerun(job: Callable[[], JobResult]) -> JobResult:
    """Run a job until it has nothing left to do, as a schedule does. What the killed one left running at a server may
    hold it up for a moment: the slot is in use, or the other one still delivers."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < deadline:
        try:
            result = job()
        except (TransientError, FencedError):
            time.sleep(_POLL_SECONDS)
            continue
        if result.error is None and result.commands == 0:
            return result
        assert result.error is None or result.error.kind in (ErrorKind.TRANSIENT, ErrorKind.FENCED)
    raise AssertionError(f"not done within {_PATIENCE_SECONDS} s")


@pytest.mark.submit
def test_a_log_reader_killed_midway_stores_all_once_when_rerun(
    databases: DatabasesFactory, tmp_path: Path, spark: Any
) -> None:
    site = _audited_site(databases(), tmp_path, spark)
    make_transactions(site, 2000)

    with (
        watched(site.databases.distribution) as look,
        _SubmittedJob("log-reader", _in_small_steps(site), tmp_path / "job") as job,
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
    return {path.name for path in store.iterdir()} if store.exists() else set()


def _registered_folders(site: Site) -> set[str]:
    return {folder for (folder,) in distribution_rows(site, "SELECT folder FROM msrepl_batches")}


@pytest.mark.submit
def test_processes_end_by_themselves_when_their_driver_is_killed(
    databases: DatabasesFactory, tmp_path: Path, spark: Any
) -> None:
    site = _audited_site(databases(), tmp_path, spark)
    last = _many_commands(site)
    with (
        watched(site.databases.subscriber) as look,
        _SubmittedJob("distribute", _in_small_steps(site), tmp_path / "job") as job,
    ):
        wait_until(lambda: len(look(_MOVED)) == 1, job.runs)
        job.kill_driver()
        status, output = job.end()
        assert status == 1
        assert "Traceback" not in output.rpartition("error: ")[2]

    _rerun(site.deliver)
    assert watermark(site) == last
    assert_each_change_was_made_once(site)


@pytest.mark.submit
def test_killed_streams_deliver_everything_once_when_rerun(
    databases: DatabasesFactory, tmp_path: Path, spark: Any
) -> None:
    site = _audited_site(databases(), tmp_path, spark)
    last = _many_commands(site)
    with (
        watched(site.databases.subscriber) as look,
        _SubmittedJob("distribute", _in_small_steps(site, subscription_streams=2), tmp_path / "job") as job,
    ):
        wait_until(lambda: len(look(_MOVED)) > 1, job.runs)
        job.kill()
        assert FIRST_XACT_SEQNO < watermark(site) < last

    _rerun(site.deliver)
    assert watermark(site) == last
    assert_each_change_was_made_once_in_any_order(site)


@pytest.mark.submit
def test_a_batch_is_finished_after_one_stream_committed_and_died(
    databases: DatabasesFactory, tmp_path: Path, spark: Any
) -> None:
    """The other stream's process lives on: Spark tells it that the stage has failed."""
    site = audited_site(databases(), tmp_path / "store", spark, subscription_streams=2)
    make_transactions(site, 200)
    site.read_log().raise_error()
    failpoint = {VARIABLE: f"{Failpoint.STREAM_COMMITTED}@1:2"}
    with _SubmittedJob("distribute", site, tmp_path / "job", failpoint) as job:
        status, output = job.end()
    assert status == 1
    assert "Traceback" not in output.rpartition("error: ")[2]
    rows = site.at_subscriber("SELECT stream, transaction_timestamp FROM msreplication_subscriptions ORDER BY stream")
    assert rows[1][1] > rows[0][1] > FIRST_XACT_SEQNO

    site.deliver().raise_error()
    assert_each_change_was_made_once_in_any_order(site)


def _many_commands(site: Site) -> bytes:
    """Stored, and still to be delivered; the last one's `xact_seqno`."""
    make_transactions(site, 1000)
    site.read_log().raise_error()
    return bytes.fromhex(stored_commands(site)[-1].xact_seqno)


def test_a_delivery_that_loses_its_connection_goes_on_from_its_last_commit(
    databases: DatabasesFactory, tmp_path: Path, spark: Any
) -> None:
    site = _audited_site(databases(), tmp_path, spark)
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


# Two at once


def test_of_two_deliveries_at_once_one_delivers_and_the_other_does_nothing(
    databases: DatabasesFactory, tmp_path: Path, spark: Any
) -> None:
    site = _audited_site(databases(), tmp_path, spark)
    make_transactions(site, 300)
    stored = site.read_log()
    with ThreadPoolExecutor(2) as pool:
        with _locked_watermark(site) as waiting:
            deliveries = [pool.submit(site.deliver) for _ in range(2)]
            wait_until(lambda: waiting() == len(deliveries))
        results = [delivery.result() for delivery in deliveries]
    fenced, delivered = sorted(results, key=lambda result: result.error is None)
    assert (delivered.error, delivered.commands) == (None, stored.commands)
    assert fenced.error is not None
    assert (fenced.error.kind, fenced.transactions, fenced.commands) == (ErrorKind.FENCED, 0, 0)
    assert_each_change_was_made_once(site)


@contextmanager
def _locked_watermark(site: Site) -> Iterator[Callable[[], int]]:
    """Hold up deliveries where they read their watermark, so that they go on from the same one. Yields how many wait
    there."""
    subscriber = site.databases.subscriber
    waiting = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    with watched(subscriber) as look, psycopg.connect(**subscriber.libpq_parameters("test")) as lock:  # type: ignore[arg-type]
        lock.execute("SELECT FROM msreplication_subscriptions FOR UPDATE")
        yield lambda: len(look(waiting))


def test_of_two_log_readers_at_once_one_stores_and_the_other_is_fenced(
    databases: DatabasesFactory, tmp_path: Path, spark: Any
) -> None:
    """The second one reads and registers all while the first one is about to register the same."""
    site = _audited_site(databases(), tmp_path, spark)
    make_transactions(site, 60)
    original, faster = Batches.register, threading.Event()

    def overtaken(*arguments: Any) -> Any:
        if not faster.is_set():
            faster.set()
            assert site.read_log().transactions == 60
        return original(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Batches, "register", overtaken)
        result = site.read_log()
    assert result.error is not None
    assert (result.error.kind, result.transactions) == (ErrorKind.FENCED, 0)
    assert len(_registered_folders(site)) == 1
    assert_each_change_is_stored_once(site)
    site.run()
    assert_each_change_was_made_once(site)
