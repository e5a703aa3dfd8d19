"""Batches of messages cut at the ends of transactions."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from tranrepl.publisher.postgres import whole_transactions as module
from tranrepl.publisher.postgres.whole_transactions import HeldTooLongError, whole_transactions

_UNBOUNDED = 1 << 40
_HELD, _OTHERS = 1, (2, 3)

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


# Changes of tables, numbered so that no two are alike: of one that is held to the end of its transaction, and others.
_tables = st.lists(
    st.lists(st.lists(st.sampled_from([_HELD, *_OTHERS]), min_size=1, max_size=2, unique=True)), max_size=4
)


def _changes(transactions: list[list[list[int]]]) -> list[bytes]:
    """Make a change where a transaction names one table, a TRUNCATE where it names two."""
    messages = []
    for number, changed in enumerate(transactions):
        messages.append(b"B" + number.to_bytes(4, "big"))
        for place, tables in enumerate(changed):
            object_ids = b"".join(it.to_bytes(4, "big") for it in tables)
            row = b"I" + object_ids + place.to_bytes(4, "big") + bytes(30)
            messages.append(row if len(tables) == 1 else b"T" + len(tables).to_bytes(4, "big") + b"\0" + object_ids)
        messages.append(b"C" + number.to_bytes(4, "big"))
    return messages


def _is_held(message: bytes) -> bool:
    return message[:5] == b"I" + _HELD.to_bytes(4, "big")


def _cut_up(messages: list[bytes], size: int) -> list[pa.BinaryArray]:
    return [pa.array(messages[at : at + size], pa.binary()) for at in range(0, len(messages), size)]


@given(_tables, st.integers(1, 5), st.integers(60, 400))
def test_a_table_that_is_held_comes_together(transactions: list[list[list[int]]], size: int, most_held: int) -> None:
    messages = _changes(transactions)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MOST_HELD_BYTES", most_held)
        try:
            cut = list(whole_transactions(_cut_up(messages, size), 0, 0, lambda: [_HELD]))
        except HeldTooLongError:
            assert sum(map(len, filter(_is_held, messages))) + 4 * len(messages) > most_held - 60
            return
    out = _messages(cut)
    assert sorted(out) == sorted(messages)
    # Each by itself they are in order, within the bounds of their transactions.
    for chosen in (_is_held, lambda it: not _is_held(it)):
        assert list(filter(chosen, out)) == list(filter(chosen, messages))
    batch_of = [number for number, batch in enumerate(cut) for _ in range(len(batch))]
    parts: set[int] = set()
    for message, number in zip(out, batch_of, strict=True):
        if message[:1] == b"C" or (message[:1] == b"T" and _HELD.to_bytes(4, "big") in (message[6:10], message[10:14])):
            parts = set()
        elif _is_held(message):
            parts.add(number)
        assert len(parts) <= 1


@given(_tables, st.integers(1, 5))
def test_other_tables_are_not_held(transactions: list[list[list[int]]], size: int) -> None:
    messages = _changes([[it for it in changed if _HELD not in it] for changed in transactions])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MOST_HELD_BYTES", 0)
        cut = list(whole_transactions(_cut_up(messages, size), 0, 0, lambda: [_HELD]))
    assert _messages(cut) == messages
    assert all(len(batch) <= size for batch in cut)


@given(_batches(), st.integers(20, 100))
def test_messages_too_long_for_one_array_come_in_several(batches: list[pa.BinaryArray], largest: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_LARGEST_ARRAY", largest)
        cut = list(whole_transactions(batches, _UNBOUNDED))
    assert _messages(cut) == _messages(batches)
    assert all(batch.nbytes <= largest + 8 or len(batch) <= max(map(len, batches)) for batch in cut)
