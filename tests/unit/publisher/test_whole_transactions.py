"""Batches of messages cut at the ends of transactions."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from tranrepl.publisher.postgres import slot_messages as module
from tranrepl.publisher.postgres.slot_messages import whole_transactions

_UNBOUNDED = 1 << 40

# A transaction is its row messages; each message begins with its kind.
_transactions = st.lists(st.lists(st.binary(max_size=20).map(lambda it: b"I" + it), max_size=5), max_size=6)


@st.composite
def _batches(draw: st.DrawFn) -> list[pa.BinaryArray]:
    messages = [it for rows in draw(_transactions) for it in (b"B", *rows, b"C")]
    cuts = sorted(draw(st.lists(st.integers(0, len(messages)), max_size=6)))
    whole = pa.array([b"Cbefore", *messages, b"Cafter"], pa.binary())
    bounds = [0, *cuts, len(messages)]
    return [whole.slice(start + 1, end - start) for start, end in pairwise(bounds)]


def _messages(batches: list[pa.BinaryArray]) -> list[bytes]:
    return [message for batch in batches for message in batch.to_pylist()]


@given(_batches())
def test_every_batch_is_of_whole_transactions(batches: list[pa.BinaryArray]) -> None:
    cut = list(whole_transactions(batches, _UNBOUNDED))
    assert _messages(cut) == _messages(batches)
    assert all(batch.to_pylist()[-1][:1] == b"C" for batch in cut)


@given(_batches(), st.integers(0, 60), st.integers(0, 200))
def test_what_is_held_is_bounded_and_nothing_is_lost(
    batches: list[pa.BinaryArray], most_bytes: int, least_bytes: int
) -> None:
    cut = list(whole_transactions(batches, most_bytes, least_bytes))
    assert _messages(cut) == _messages(batches)
    assert all(len(batch) for batch in cut)


@given(_batches(), st.integers(0, 200))
def test_all_batches_but_the_last_have_the_least_size(batches: list[pa.BinaryArray], least_bytes: int) -> None:
    cut = list(whole_transactions(batches, _UNBOUNDED, least_bytes))
    assert _messages(cut) == _messages(batches)
    assert all(batch.to_pylist()[-1][:1] == b"C" for batch in cut)
    assert all(batch.nbytes >= least_bytes for batch in cut[:-1])


@given(_batches(), st.integers(20, 100))
def test_messages_too_long_for_one_array_come_in_several(batches: list[pa.BinaryArray], largest: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_LARGEST_ARRAY", largest)
        cut = list(whole_transactions(batches, _UNBOUNDED))
    assert _messages(cut) == _messages(batches)
    assert all(batch.nbytes <= largest + 8 or len(batch) <= max(map(len, batches)) for batch in cut)
