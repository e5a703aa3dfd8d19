"""Databases that are down, connections that are cut, also in the middle of COMMIT, stores that are full or damaged, and
jobs that go on after another one has finished: an error that says so, nothing lost, nothing done twice."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from conftest import DatabasesFactory
from support.child_job import DISTRIBUTION, ChildJob
from support.databases import Databases
from support.embedded_postgres import PostgresServer, ServerSettings
from support.in_process import deliver_stored, read_log_into_store
from support.observed import (
    assert_each_change_is_stored_once,
    assert_each_change_was_made_once,
    audited_site,
    distribution_rows,
    make_transactions,
    wait_until,
    watched,
    watermark,
)
from support.proxy import Cut, Proxy, When
from support.site import Site
from tranrepl.connections import Connection
from tranrepl.distributor.command_file import count_commands
from tranrepl.distributor.database.publications import PublicationRecord, Publications
from tranrepl.errors import ErrorKind, ErrorReport, ReplicationError
from tranrepl.jobs.results import JobResult

Job = Callable[[Site], JobResult]

_TRANSACTIONS = 60


def _error(job: Job, site: Site) -> ErrorReport:
    """What stopped the job, whichever way it says so."""
    try:
        report = job(site).error
    except ReplicationError as error:
        report = error.report
    assert report is not None
    return report


@contextmanager
def _network(site: Site) -> Iterator[dict[str, Proxy]]:
    """A proxy before each database of the site's jobs."""
    with ExitStack() as stack:
        proxies = {name: stack.enter_context(Proxy(it)) for name, it in site.connections.items()}
        direct, site.connections = site.connections, {name: proxy.connection for name, proxy in proxies.items()}
        yield proxies
        site.connections = direct


@pytest.fixture
def site(databases: DatabasesFactory, tmp_path: Path) -> Site:
    site = audited_site(databases(), tmp_path / "store")
    make_transactions(site, _TRANSACTIONS)
    return site


def test_a_database_that_is_down_is_a_transient_error_and_changes_nothing(site: Site) -> None:
    with _network(site) as proxies:
        for job, needed in ((read_log_into_store, "publisher"), (read_log_into_store, "distribution")):
            _assert_refused(job, site, proxies[needed])
        assert distribution_rows(site, "SELECT count(*) FROM msrepl_batches") == [(0,)]
        read_log_into_store(site).raise_error()
        before = watermark(site)
        for job, needed in ((deliver_stored, "distribution"), (deliver_stored, "subscriber")):
            _assert_refused(job, site, proxies[needed])
        assert watermark(site) == before
        # The Publisher is not needed to deliver.
        proxies["publisher"].break_down()
        deliver_stored(site).raise_error()
    assert_each_change_was_made_once(site)


def _assert_refused(job: Job, site: Site, proxy: Proxy) -> None:
    proxy.break_down()
    error = _error(job, site)
    assert (error.kind, error.remedy) == (ErrorKind.TRANSIENT, "check host and port, and that the server runs")
    assert f"connection {proxy.connection}" in error.message
    proxy.repair()


_REGISTERS = b"INSERT INTO msrepl_batches"
_SETS_WATERMARK = b"SET transaction_timestamp"


def test_a_cut_log_reader_stores_all_once_when_rerun(site: Site) -> None:
    cuts = [
        ("publisher", Cut(b"pg_logical_slot_get_binary_changes", When.AFTER)),
        ("publisher", Cut(b"pg_replication_slot_advance", When.AFTER)),
        ("distribution", Cut(b"COMMIT", When.BEFORE, _REGISTERS)),
        ("distribution", Cut(b"COMMIT", When.AFTER, _REGISTERS)),
    ]
    for place, cut in cuts:
        site.at_publisher(*_MORE)
        with _network(site) as proxies:
            proxies[place].cut_at(cut)
            error = _error(read_log_into_store, site)
            assert (proxies[place].has_cut(), error.kind, cut) == (True, ErrorKind.TRANSIENT, cut)
        read_log_into_store(site).raise_error()
        assert_each_change_is_stored_once(site)
    deliver_stored(site).raise_error()
    assert_each_change_was_made_once(site)


_MORE = ("UPDATE item SET xact = xact + 1 WHERE id % 7 = 0", "UPDATE item SET xact = xact + 1 WHERE id % 5 = 0")


def test_a_cut_delivery_makes_every_change_once_when_rerun(site: Site) -> None:
    cuts = [
        (Cut(b"COPY", When.AFTER), False),
        (Cut(b"COMMIT", When.BEFORE, _SETS_WATERMARK), False),
        (Cut(b"COMMIT", When.AFTER, _SETS_WATERMARK), True),
    ]
    for cut, commits in cuts:
        site.at_publisher(*_MORE)
        read_log_into_store(site).raise_error()
        before = watermark(site)
        with _network(site) as proxies:
            proxies["subscriber"].cut_at(cut)
            result = deliver_stored(site)
            assert proxies["subscriber"].has_cut()
        assert result.error is not None
        assert (result.error.kind, result.transactions, cut) == (ErrorKind.TRANSIENT, 0, cut)
        assert (watermark(site) > before) == commits
        deliver_stored(site).raise_error()
        assert_each_change_was_made_once(site)


def test_a_crashed_subscriber_loses_watermark_and_rows_together(databases: DatabasesFactory, tmp_path: Path) -> None:
    with PostgresServer(ServerSettings(tmp_path / "server", fsync=False)) as server:
        server.create_database("subscriber")
        others = databases()
        site = audited_site(
            Databases(others.publisher, server.connection("subscriber"), others.distribution), tmp_path / "store"
        )
        make_transactions(site, _TRANSACTIONS)
        read_log_into_store(site).raise_error()
        with _locked(site.databases.subscriber, "item") as held_up, ChildJob(DISTRIBUTION, site) as job:
            held_up()
            server.kill()
            crashed = job.result().error
        assert crashed is not None
        assert crashed.kind is ErrorKind.TRANSIENT
        assert _error(deliver_stored, site).kind is ErrorKind.TRANSIENT
        server.start()
        deliver_stored(site).raise_error()
        assert_each_change_was_made_once(site)


@contextmanager
def _locked(connection: Connection, table: str) -> Iterator[Callable[[], None]]:
    """Hold whoever comes to the table up. Yields what waits until somebody is held up there."""
    parameters: Any = connection.libpq_parameters("test")
    with watched(connection) as look, suppress(psycopg.OperationalError), psycopg.connect(**parameters) as session:
        session.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
        yield lambda: wait_until(lambda: len(look(_WAITING)) == 1)


_WAITING = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
_END_JOBS = (
    "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
    "WHERE datname = current_database() AND application_name LIKE 'tranrepl%'"
)


# A job that goes on after another one has finished


def test_a_delivery_that_goes_on_where_another_one_has_delivered_is_fenced(site: Site) -> None:
    """It stands after it has read its watermark, before its first transaction."""
    read_log_into_store(site).raise_error()
    with ChildJob(DISTRIBUTION, site) as job:
        with _locked(site.databases.distribution, "msrepl_batches") as held_up:
            held_up()
            job.stop()
        delivered = deliver_stored(site)
        job.go_on()
        late = job.result()
    assert (delivered.error, delivered.transactions) == (None, _TRANSACTIONS)
    assert late.error is not None
    assert (late.error.kind, late.transactions) == (ErrorKind.FENCED, 0)
    assert_each_change_was_made_once(site)


def test_a_delivery_changes_nothing_after_its_transaction_was_ended(site: Site) -> None:
    """It stands inside its transaction; the server ends sessions whose client it believes dead."""
    read_log_into_store(site).raise_error()
    with ChildJob(DISTRIBUTION, site) as job:
        with _locked(site.databases.subscriber, "item") as held_up:
            held_up()
            job.stop()
        site.at_subscriber(_END_JOBS)
        delivered = deliver_stored(site)
        job.go_on()
        late = job.result()
    assert (delivered.error, delivered.transactions) == (None, _TRANSACTIONS)
    assert late.error is not None
    assert (late.error.kind, late.transactions) == (ErrorKind.TRANSIENT, 0)
    assert_each_change_was_made_once(site)


def test_a_log_reader_goes_on_after_one_that_overtook_it(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads how far the log is registered; the other one registers more, and advances; it looks at the slot."""
    original = Publications.get

    def overtaken(publications: Publications, name: str) -> PublicationRecord:
        record = original(publications, name)
        monkeypatch.undo()
        read_log_into_store(site).raise_error()
        return record

    monkeypatch.setattr(Publications, "get", overtaken)
    late = read_log_into_store(site)
    assert (late.error, late.transactions) == (None, 0)
    assert_each_change_is_stored_once(site)


# The store


def test_a_store_that_is_full_stops_the_log_reader_and_loses_nothing(site: Site, tmp_path: Path) -> None:
    site.at_publisher(
        "INSERT INTO item SELECT n, n, (SELECT string_agg(md5(random()::text), '') FROM generate_series(1, 20) "
        "WHERE n > 0) FROM generate_series(1000, 1500) n"
    )
    with _small(tmp_path / "store"):
        error = _error(read_log_into_store, site)
        assert (error.kind, error.remedy) == (ErrorKind.CONFIGURATION, "make room in the store")
        registered = {folder for (folder,) in distribution_rows(site, "SELECT folder FROM msrepl_batches")}
        assert {path.name for path in (tmp_path / "store").iterdir()} == registered
        kept = shutil.copytree(tmp_path / "store", tmp_path / "kept")
    shutil.copytree(kept, tmp_path / "store", dirs_exist_ok=True)
    read_log_into_store(site).raise_error()
    assert_each_change_is_stored_once(site)
    deliver_stored(site).raise_error()
    assert_each_change_was_made_once(site)


@contextmanager
def _small(store: Path) -> Iterator[None]:
    """A store with room for little: a file system of its own, or, where we may not mount one, of small files."""
    store.mkdir(exist_ok=True)
    mounted = subprocess.run(
        [_program("mount"), "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(store)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (128 * 1024, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        return
    try:
        yield
    finally:
        subprocess.run([_program("umount"), str(store)], check=True)


def _program(name: str) -> str:
    return shutil.which(name) or f"/bin/{name}"


def _remove_folder(folder: Path) -> None:
    shutil.rmtree(folder)


def _remove_file(folder: Path) -> None:
    _file(folder).unlink()


def _cut_file(folder: Path) -> None:
    file = _file(folder)
    file.write_bytes(file.read_bytes()[:-100])


def _overwrite_data(folder: Path) -> None:
    """The file's end, which tells where its columns are, stays whole."""
    content = bytearray(_file(folder).read_bytes())
    content[4 : len(content) // 2] = b"?" * (len(content) // 2 - 4)
    _file(folder).write_bytes(content)


def _take_from_another_batch(folder: Path) -> None:
    other = next(it for it in sorted(folder.parent.iterdir()) if it != folder and _rows(it) != _rows(folder))
    shutil.copy(_file(other), _file(folder))


def _file(folder: Path) -> Path:
    (file,) = folder.glob("*.parquet")
    return file


def _rows(folder: Path) -> int:
    return count_commands(folder)


_DAMAGES = [_remove_folder, _remove_file, _cut_file, _overwrite_data, _take_from_another_batch]


@dataclass(frozen=True, slots=True)
class _Batches:
    """Three of them that a site has registered, in order, by their folders."""

    site: Site
    folders: Sequence[Path]
    last: Sequence[bytes]
    """`xact_seqno` that each ends with."""

    def error_with(self, damage: Callable[[Path], None], place: int) -> ErrorReport:
        """Of a delivery while one of them is damaged."""
        folder = self.folders[place]
        kept = folder.parent.parent / "kept"
        shutil.copytree(folder, kept)
        damage(folder)
        error = _error(Site.deliver, self.site)
        shutil.rmtree(folder, ignore_errors=True)
        kept.rename(folder)
        return error


@pytest.fixture
def batches(databases: DatabasesFactory, tmp_path: Path, spark: Any) -> _Batches:
    store = tmp_path / "store"
    site = audited_site(databases(), store, spark)
    make_transactions(site, 50)
    site.read_log().raise_error()
    rows = distribution_rows(site, "SELECT folder, last_xact_seqno FROM msrepl_batches ORDER BY first_xact_seqno")
    assert len(rows) == 3
    return _Batches(site, [store / folder for folder, _ in rows], [bytes(last) for _, last in rows])


def test_a_missing_or_damaged_batch_is_named_and_not_passed_over(batches: _Batches) -> None:
    site, first = batches.site, batches.folders[0]
    before = watermark(site)
    for damage in _DAMAGES:
        error = batches.error_with(damage, 0)
        assert (error.kind, damage) == (ErrorKind.CONFIGURATION, damage)
        assert error.message.startswith(f"store: batch {first.name} cannot be read: ")
        assert "\n" not in error.message
        assert f"restore {first} from a backup" in (error.remedy or "")
        assert watermark(site) == before
    site.deliver().raise_error()
    assert_each_change_was_made_once(site)


@pytest.mark.parametrize("damage", _DAMAGES)
def test_what_comes_before_a_damaged_batch_is_delivered(batches: _Batches, damage: Callable[[Path], None]) -> None:
    site, last = batches.site, batches.last[0]
    before = watermark(site)
    error = batches.error_with(damage, 1)
    assert error.message.startswith(f"store: batch {batches.folders[1].name} cannot be read: ")
    # That data are not what they were is only told when their turn comes.
    assert before <= watermark(site) <= last
    assert damage is _overwrite_data or watermark(site) == last
    site.deliver().raise_error()
    assert_each_change_was_made_once(site)


# Python workers


def test_a_python_worker_that_is_killed_is_a_transient_error(
    databases: DatabasesFactory, tmp_path: Path, spark: Any
) -> None:
    site = audited_site(databases(), tmp_path / "store", spark)
    make_transactions(site, _TRANSACTIONS)
    site.read_log().raise_error()
    with ThreadPoolExecutor(1) as pool, _locked(site.databases.subscriber, "item") as held_up:
        delivery = pool.submit(_error, Site.deliver, site)
        held_up()
        _kill_python_workers()
        error = delivery.result()
    assert error.kind is ErrorKind.TRANSIENT
    assert "Python worker" in error.message
    site.deliver().raise_error()
    assert_each_change_was_made_once(site)


def _kill_python_workers() -> None:
    """SIGKILL to those of this process's Spark: they are children of its daemon, that one is the JVM's."""
    for path in Path("/proc").iterdir():
        if not path.name.isdecimal():
            continue
        pid = int(path.name)
        daemon = _parent(pid)
        if _is_pyspark(pid) and _is_pyspark(daemon) and _parent(_parent(daemon)) == os.getpid():
            os.kill(pid, signal.SIGKILL)


def _is_pyspark(pid: int) -> bool:
    with suppress(OSError):
        return b"pyspark.daemon" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def _parent(pid: int) -> int:
    """0 for a process that has ended."""
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])
    return 0
