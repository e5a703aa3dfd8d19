"""Which batches are put together, and that many cost no more than their number."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
from hypothesis import given, strategies as st

from tranrepl.distributor.batch_files import is_small
from tranrepl.distributor.command_file import write_commands
from tranrepl.distributor.database import Batch
from tranrepl.distributor.merging import (
    FEWEST_BATCHES,
    LONGEST_SPAN,
    MOST_BYTES,
    MOST_COMMANDS,
    mergeable,
)
from tranrepl.distributor.store import store_at
from tranrepl.model.command_rows import ROW_LAYOUT

_NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
_Entered = list[tuple[Batch, datetime]]


def _seqno(number: int) -> bytes:
    return number.to_bytes(8, "big")


@st.composite
def _entered(draw: st.DrawFn) -> _Entered:
    """Batches of ten transactions each. Now and then one is large, or late."""
    entered: _Entered = []
    time = _NOON
    for at in range(draw(st.sampled_from([0, 9, 30, 80]))):
        commands = draw(st.sampled_from([10, 1_000, 1_000, 1_900, 2_001]))
        time += timedelta(minutes=draw(st.sampled_from([0, 0, 1, 1, 5, 45])))
        late = timedelta(minutes=draw(st.sampled_from([0, 0, 0, 0, 90])))
        log_bytes = draw(st.sampled_from([100] * 20 + [900_000] * 10 + [0]))
        ids = (at % 3, 3 + at % 5) if draw(st.integers(0, 40)) else None
        place = (_seqno(10 * at), _seqno(10 * at + 9))
        batch = Batch(str(at), *place, time, time, 10, commands, log_bytes, article_ids=ids)
        entered.append((batch, time + late))
    return entered


@given(_entered(), st.lists(st.integers(0, 1_500), max_size=2))
def test_consecutive_small_batches_of_an_hour_are_put_together(entered: _Entered, stands: Sequence[int]) -> None:
    batches = [batch for batch, _ in entered]
    watermarks = {_seqno(it) for it in stands}
    runs = list(mergeable(entered, watermarks))
    for run in runs:
        first = batches.index(run.batches[0])
        assert list(run.batches) == batches[first : first + len(run.batches)]
        joined = run.joined("folder")
        assert len(run.batches) >= FEWEST_BATCHES
        assert all(is_small(batch) and batch.log_bytes for batch in run.batches)
        assert joined.commands <= MOST_COMMANDS
        assert joined.log_bytes <= MOST_BYTES
        assert joined.last_commit_time - joined.first_commit_time <= LONGEST_SPAN
        assert run.entry_time == max(time for batch, time in entered if batch in run.batches)
        assert not [it for it in watermarks if any(it == batch.last_xact_seqno for batch in run.batches[:-1])], (
            "a Subscriber has a part of it"
        )
        assert (joined.transactions, joined.first_xact_seqno) == (10 * len(run.batches), _seqno(10 * first))
        ids = [it.article_ids for it in run.batches]
        known = None if None in ids else tuple(sorted({number for it in ids for number in it or ()}))
        assert joined.article_ids == known
    chosen = [batch for run in runs for batch in run.batches]
    assert chosen == sorted(set(chosen), key=lambda batch: batch.first_xact_seqno)


def test_a_batch_a_second_gives_one_for_each_clean_up() -> None:
    times = [_NOON + timedelta(seconds=at) for at in range(600)]
    entered = [(Batch(str(at), _seqno(8 * at), _seqno(8 * at), it, it, 1, 3, 300), it) for at, it in enumerate(times)]
    (run,) = mergeable(entered, {_seqno(0), _seqno(8 * 599)})
    assert [it.folder for it in run.batches] == [str(at) for at in range(1, 600)]


def test_thousands_of_small_batches_are_written_in_a_moment(tmp_path: Path) -> None:
    row = {"xact_seqno": _seqno(1), "command_id": 1, "commit_time": _NOON, "article_id": 1, "operation": 1}
    batch = pa.RecordBatch.from_pylist([row], ROW_LAYOUT)
    store, began = store_at(str(tmp_path / "store")), time.process_time()
    folder = write_commands(store, [batch] * 3_000)
    assert time.process_time() - began < 5, "weighed again with each that follows, they take minutes"
    with store.open(folder) as file:
        assert len(file.read()) > 3_000
