"""Stored commands as a worker reads them: in order, and at no time more than it can hold."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from tranrepl.distribution import stored_range
from tranrepl.distribution.stored_range import StoredRange
from tranrepl.distributor.command_file import publish, write_commands
from tranrepl.distributor.database import Batch, PublicationRecord
from tranrepl.model.commands import ROW_LAYOUT, XACT_SEQNO_BYTES, Operation

_NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def _stored(store: Path, first: int, commands: int, image: str) -> Batch:
    """A batch of so many transactions, each with one INSERT."""
    numbers = range(first, first + commands)
    rows = pa.RecordBatch.from_pydict(
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
    folder = f"from_{first}"
    publish(store / folder, write_commands(store / folder, [rows]))
    weight = commands * len(image)
    return Batch(folder, _seqno(first), _seqno(first + commands - 1), _NOON, _NOON, commands, commands, weight)


def _seqno(number: int) -> bytes:
    return number.to_bytes(XACT_SEQNO_BYTES, "big")


def test_wide_rows_are_read_few_at_a_time_among_narrow_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_range, "_HANDED_OVER_BYTES", 1_000_000)
    record = PublicationRecord(1, "purchasing", str(tmp_path), "slot", None, None)
    batches = (_stored(tmp_path, 1, 30_000, "1\tx"), _stored(tmp_path, 40_000, 200, "y" * 20_000))
    read = list(StoredRange(record, batches, _seqno(0), _seqno(50_000), None).commands())
    numbers = [int.from_bytes(it, "big") for rows in read for it in rows["xact_seqno"].to_pylist()]
    assert numbers == [*range(1, 30_001), *range(40_000, 40_200)]
    assert len(read[0]) == 20_000
    assert max(rows.nbytes for rows in read) < 2_000_000
