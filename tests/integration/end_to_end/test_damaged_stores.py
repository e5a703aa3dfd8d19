"""Stores that are full, batches that are missing or damaged: an error that names them, nothing passed over."""

from __future__ import annotations

import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from conftest import DatabasesFactory
from support.continuous_reader import continuous_reader
from support.databases import Databases
from support.failing_jobs import error_of
from support.in_process import deliver_stored, read_log_into_store
from support.observed import (
    assert_each_change_is_stored_once,
    assert_each_change_was_made_once,
    audited_site,
    distribution_rows,
    make_transactions,
    watermark,
)
from support.site import Site
from support.spark_here import SparkHere
from tranrepl.admin.reinitialization import reinitialize
from tranrepl.admin.skip_and_retry import skip_transaction
from tranrepl.admin.status import status
from tranrepl.distributor.store_mark import MARK
from tranrepl.errors import ConfigurationError, ErrorKind, ErrorReport
from tranrepl.jobs.requests import Repair
from tranrepl.remedies import Place, next_steps


def test_a_store_that_is_full_stops_the_log_reader_and_loses_nothing(site: Site, tmp_path: Path) -> None:
    site.at_publisher(
        "INSERT INTO item SELECT n, n, (SELECT string_agg(md5(random()::text), '') FROM generate_series(1, 20) "
        "WHERE n > 0) FROM generate_series(1000, 1500) n"
    )
    with _small(tmp_path / "store"):
        error = error_of(read_log_into_store, site)
        assert (error.kind, error.remedy) == (ErrorKind.CONFIGURATION, "make room in the store")
        registered = {folder for (folder,) in distribution_rows(site, "SELECT folder FROM msrepl_batches")}
        assert {path.name for path in (tmp_path / "store").glob("[!_]*")} == registered
        kept = shutil.copytree(tmp_path / "store", tmp_path / "kept")
    shutil.copytree(kept, tmp_path / "store", dirs_exist_ok=True)
    read_log_into_store(site).raise_error()
    assert_each_change_is_stored_once(site)
    deliver_stored(site).raise_error()
    assert_each_change_was_made_once(site)


@pytest.mark.slow
@pytest.mark.new_sessions
def test_a_store_that_fills_up_ends_a_log_reader_that_stays_up(databases: DatabasesFactory, tmp_path: Path) -> None:
    site = audited_site(databases(), tmp_path / "store", SparkHere(), step=None)
    with _small(tmp_path / "store"):
        with continuous_reader(site) as reader:
            for n in range(1, 200):
                site.at_publisher(
                    f"INSERT INTO item SELECT {n}, {n}, string_agg(md5(n::text), '') FROM generate_series(1, 200) n"
                )
                if not reader.runs():
                    break
            error = reader.result().error
        assert error is not None
        assert (error.kind, error.remedy) == (ErrorKind.CONFIGURATION, "make room in the store")
        registered = {folder for (folder,) in distribution_rows(site, "SELECT folder FROM msrepl_batches")}
        assert {path.name for path in (tmp_path / "store").glob("[!_]*")} == registered != set()
        kept = shutil.copytree(tmp_path / "store", tmp_path / "kept")
    shutil.copytree(kept, tmp_path / "store", dirs_exist_ok=True)
    with continuous_reader(site) as reader:
        reader.stop().raise_error()
    assert_each_change_is_stored_once(site)
    deliver_stored(site).raise_error()
    assert_each_change_was_made_once(site)


@contextmanager
def _small(store: Path) -> Iterator[None]:
    """Put the store on a small file system of its own, or, where we may not mount one, limit the size of files."""
    mark = (store / MARK).read_text()
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
    (store / MARK).write_text(mark)
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
    """Overwrite the data, and keep the file's end, which says where its columns are."""
    content = bytearray(_file(folder).read_bytes())
    content[4 : len(content) // 2] = b"?" * (len(content) // 2 - 4)
    _file(folder).write_bytes(content)


def _take_from_another_batch(folder: Path) -> None:
    other = next(it for it in sorted(folder.parent.glob("[!_]*")) if it != folder and _rows(it) != _rows(folder))
    shutil.copy(_file(other), _file(folder))


def _take_commands_of_another_batch(folder: Path) -> None:
    """Hold as many commands as are registered, of other transactions."""
    number = _rows(folder)
    other = next(it for it in sorted(folder.parent.glob("[!_]*")) if it != folder)
    commands = pq.read_table(_file(other), partitioning=None)
    pq.write_table(pa.concat_tables([commands] * number).slice(0, number), _file(folder))


def _file(folder: Path) -> Path:
    (file,) = folder.glob("*.parquet")
    return file


def _rows(folder: Path) -> int:
    return int(pq.read_metadata(_file(folder)).num_rows)


_DAMAGES = [
    _remove_folder,
    _remove_file,
    _cut_file,
    _overwrite_data,
    _take_from_another_batch,
    _take_commands_of_another_batch,
]


@dataclass(frozen=True, slots=True)
class _Batches:
    """A site's three registered batches, in order, by their folders."""

    site: Site
    folders: Sequence[Path]
    last: Sequence[bytes]
    """`xact_seqno` that each ends with."""

    def error_with(self, damage: Callable[[Path], None], place: int) -> ErrorReport:
        """Return the error of a delivery while one of them is damaged."""
        folder = self.folders[place]
        kept = folder.parent.parent / "kept"
        shutil.copytree(folder, kept)
        damage(folder)
        error = error_of(Site.deliver, self.site)
        shutil.rmtree(folder, ignore_errors=True)
        kept.rename(folder)
        return error


def _registered(databases: Databases, tmp_path: Path, spark: Any) -> _Batches:
    store = tmp_path / "store"
    site = audited_site(databases, store, spark)
    make_transactions(site, 50)
    site.read_log().raise_error()
    rows = distribution_rows(site, "SELECT folder, last_xact_seqno FROM msrepl_batches ORDER BY first_xact_seqno")
    assert len(rows) == 3
    return _Batches(site, [store / folder for folder, _ in rows], [bytes(last) for _, last in rows])


@pytest.mark.spark
def test_a_missing_or_damaged_batch_is_named_and_not_passed_over(
    databases: DatabasesFactory, tmp_path: Path, spark: Any
) -> None:
    batches = _registered(databases(), tmp_path, spark)
    site, first = batches.site, batches.folders[0]
    before, place = watermark(site), Place("FILE", "reporting")
    for damage in _DAMAGES:
        error = batches.error_with(damage, 0)
        assert (error.kind, error.damaged_batch, damage) == (ErrorKind.CONFIGURATION, True, damage)
        assert error.message.startswith(f"store: batch {first.name} cannot be read: ")
        assert "\n" not in error.message
        assert "it holds 0 commands" not in error.message
        assert not next_steps(error, place), "a batch that cannot be read cannot be browsed"
        assert f"restore {first} from a backup" in (error.remedy or "")
        shown = status(site.topology).subscriptions[0].last_error
        assert shown is not None
        assert (shown.next_steps, shown.damaged_batch) == ((), True), "as recorded, too"
        assert watermark(site) == before
    site.deliver().raise_error()
    assert_each_change_was_made_once(site)


def test_who_would_skip_a_transaction_of_a_damaged_batch_is_told_the_ways_on(
    databases: DatabasesFactory, tmp_path: Path
) -> None:
    batches = _registered(databases(), tmp_path, SparkHere())
    _cut_file(batches.folders[0])
    with pytest.raises(ConfigurationError) as refused:
        skip_transaction(batches.site.topology, "reporting", batches.last[0])
    assert refused.value.report.damaged_batch
    assert f"restore {batches.folders[0]} from a backup" in (refused.value.report.remedy or "")
    reinitialize(batches.site.topology, "reporting")
    assert batches.site.differences() != [], "no snapshot copies them"
    batches.site.validate(repair=Repair.APPLY)
    assert batches.site.differences() == []


@pytest.mark.parametrize("damage", _DAMAGES)
def test_what_comes_before_a_damaged_batch_is_delivered(
    databases: DatabasesFactory, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    batches = _registered(databases(), tmp_path, SparkHere())
    site, last = batches.site, batches.last[0]
    before = watermark(site)
    error = batches.error_with(damage, 1)
    assert error.message.startswith(f"store: batch {batches.folders[1].name} cannot be read: ")
    # That data are not what they were is only told when their turn comes.
    assert before <= watermark(site) <= last
    assert damage is _overwrite_data or watermark(site) == last
    site.deliver().raise_error()
    assert_each_change_was_made_once(site)
