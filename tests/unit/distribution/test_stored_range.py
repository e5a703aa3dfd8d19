"""Stored commands as a worker reads them: in order, and never more than it can hold at a time."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tranrepl.distribution import stored_range
from tranrepl.distribution.stored_range import StoredRange
from tranrepl.distributor import command_file
from tranrepl.distributor.batch_files import require_all_commands
from tranrepl.distributor.command_file import write_commands
from tranrepl.distributor.database import Batch, PublicationRecord
from tranrepl.distributor.store import store_at
from tranrepl.distributor.stored_commands import scan_batch
from tranrepl.errors import ConfigurationError, ErrorKind, ErrorReport, FencedError
from tranrepl.model.command_rows import ROW_LAYOUT
from tranrepl.model.commands import XACT_SEQNO_BYTES, Operation
from tranrepl.subscriber.batching.commit_batches import CommitLimits, commit_batches

_NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def _stored(store: Path, first: int, commands: int, image: str) -> Batch:
    """Store a batch of so many transactions, each with one INSERT."""
    folder = write_commands(store_at(str(store)), [_rows(range(first, first + commands), image)])
    weight = commands * len(image)
    return Batch(folder, _seqno(first), _seqno(first + commands - 1), _NOON, _NOON, commands, commands, weight)


def _rows(numbers: range, image: str) -> pa.RecordBatch:
    commands = len(numbers)
    return pa.RecordBatch.from_pydict(
        {
            "xact_seqno": [_seqno(it) for it in numbers],
            "command_id": [1] * commands,
            "commit_time": [_NOON] * commands,
            "article_id": [1] * commands,
            "operation": [int(Operation.INSERT)] * commands,
            "before": [None] * commands,
            "after": [image] * commands,
            "changed": [None] * commands,
        },
        schema=ROW_LAYOUT,
    )


def _seqno(number: int) -> bytes:
    return number.to_bytes(XACT_SEQNO_BYTES, "big")


def test_wide_rows_are_read_few_at_a_time_among_narrow_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_range, "_HANDED_OVER_BYTES", 1_000_000)
    record = PublicationRecord(1, "purchasing", store_at(str(tmp_path)), "slot", None, None)
    batches = (_stored(tmp_path, 1, 30_000, "1\tx"), _stored(tmp_path, 40_000, 200, "y" * 20_000))
    read = list(StoredRange(record, batches, _seqno(0), _seqno(50_000), None).commands())
    numbers = [int.from_bytes(it, "big") for rows in read for it in rows["xact_seqno"].to_pylist()]
    assert numbers == [*range(1, 30_001), *range(40_000, 40_200)]
    assert len(read[0]) == 20_000
    assert max(rows.nbytes for rows in read) < 2_000_000


def test_a_batch_whose_last_rows_no_filter_let_through_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command_file, "_ROW_GROUP_BYTES", 1)
    record = PublicationRecord(1, "purchasing", store_at(str(tmp_path)), "slot", None, None)
    folder = write_commands(record.store, [_rows(range(1, 31), "1\tx"), _rows(range(0), "1\tx")])
    require_all_commands(record, Batch(folder, _seqno(1), _seqno(30), _NOON, _NOON, 30, 30, log_bytes=10_000_000))


@pytest.mark.parametrize("end", ["last", "before"])
def test_row_groups_outside_the_range_are_not_read(end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_file, "_ROW_GROUP_BYTES", 1)
    record = PublicationRecord(1, "purchasing", store_at(str(tmp_path)), "slot", None, None)
    groups = [_rows(range(it, it + 1), "1\tx") for it in range(1, 31)]
    batch = Batch(
        write_commands(record.store, groups), _seqno(1), _seqno(30), _NOON, _NOON, 30, 30, log_bytes=10_000_000
    )
    (file,) = tmp_path.glob("*/*")
    with pq.ParquetFile(file) as stored:
        column = [stored.metadata.row_group(it).column(0) for it in range(stored.num_row_groups)]
    _damage(file, column[9], column[20])
    last, before = (_seqno(20), None) if end == "last" else (_seqno(30), _seqno(21))
    read = StoredRange(record, (batch,), _seqno(10), last, before)
    numbers = [int.from_bytes(it, "big") for rows in read.commands() for it in rows["xact_seqno"].to_pylist()]
    assert numbers == [*range(11, 21)]
    wider = StoredRange(record, (batch,), _seqno(9), last, before)
    with pytest.raises(ConfigurationError):
        list(wider.commands())


def _damage(file: Path, *columns: pq.ColumnChunkMetaData) -> None:
    content = bytearray(file.read_bytes())
    for it in columns:
        content[it.data_page_offset : it.data_page_offset + it.total_compressed_size] = bytes(it.total_compressed_size)
    file.write_bytes(content)


def test_a_batch_is_named_that_is_damaged_at_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_file, "_ROW_GROUP_BYTES", 1)
    record = PublicationRecord(1, "purchasing", store_at(str(tmp_path)), "slot", None, None)
    groups = [_rows(range(it, it + 5_000), "1\tx") for it in range(1, 30_000, 5_000)]
    folder = write_commands(record.store, groups)
    (file,) = tmp_path.glob("*/*")
    with pq.ParquetFile(file) as stored:
        _damage(file, stored.metadata.row_group(5).column(0))
    batch = Batch(folder, _seqno(1), _seqno(30_000), _NOON, _NOON, 30_000, 30_000, log_bytes=10_000_000)
    scanned = scan_batch(record, batch, pc.field("command_id") == 1)
    assert [len(next(scanned)) for _ in range(2)] == [0, 1000]
    with pytest.raises(ConfigurationError, match=folder):
        list(scanned)


def _small(store: Path, count: int) -> tuple[PublicationRecord, tuple[Batch, ...]]:
    """So many batches of four transactions each."""
    record = PublicationRecord(1, "purchasing", store_at(str(store)), "slot", None, None)
    batches = []
    for first in range(1, 4 * count, 4):
        folder = store / f"from_{first}"
        folder.mkdir()
        rows = _rows(range(first, first + 4), "1\tx")
        pq.write_table(pa.Table.from_batches([rows]), folder / "part-0.parquet", compression="none")
        batches.append(Batch(folder.name, _seqno(first), _seqno(first + 3), _NOON, _NOON, 4, 4, 100))
    return record, tuple(batches)


def test_small_batches_are_read_together(tmp_path: Path) -> None:
    record, batches = _small(tmp_path, 50)
    (read,) = StoredRange(record, batches, _seqno(2), _seqno(199), _seqno(150)).commands()
    assert [int.from_bytes(it, "big") for it in read["xact_seqno"].to_pylist()] == [*range(3, 150)]


def test_many_small_batches_take_time_in_proportion(tmp_path: Path) -> None:
    record, batches = _small(tmp_path, 2_000)

    def seconds(count: int) -> float:
        started = time.process_time()
        stored = StoredRange(record, batches[:count], _seqno(0), _seqno(100_000), None)
        pieces = commit_batches(stored.commands(), CommitLimits(10_000, 100_000))
        assert sum(len(it.commands) for it in pieces) == 4 * count
        return time.process_time() - started

    seconds(250)
    # Eight times as many: in proportion to their square, it would be sixty-four times as long.
    assert seconds(2_000) < 24 * min(seconds(250) for _ in range(3))


def test_a_value_in_another_error_is_not_taken_for_a_report() -> None:
    report = f"{stored_range._REPORT}{ErrorReport(kind=ErrorKind.FENCED, message='of a value').model_dump_json()}"
    assert stored_range.error_of_worker(f"Traceback:\nValueError: not a number: '{report}'\n at Python") is None
    assert isinstance(stored_range.error_of_worker(f"Traceback:\n{report}\n at Python"), FencedError)
