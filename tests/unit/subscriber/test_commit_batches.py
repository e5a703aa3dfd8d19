"""Commit batches against a cut that looks at one transaction after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from support.example_counts import examples
from tranrepl.errors import InternalError
from tranrepl.model.command_rows import ROW_LAYOUT
from tranrepl.model.commands import Operation
from tranrepl.subscriber.batching import commit_batches as module
from tranrepl.subscriber.batching.commit_batches import CommitLimits, Piece, commit_batches

Command = tuple[int, int]
"""`xact_seqno` as a number, and `command_id`."""
Delivered = tuple[list[Command], int, int]
"""What a commit holds: its commands, how many transactions ended with it, the watermark."""


def _record_batch(commands: Sequence[Command]) -> pa.RecordBatch:
    rows = [
        {
            "xact_seqno": seqno.to_bytes(8, "big"),
            "command_id": command_id,
            "article_id": 1,
            "operation": int(Operation.INSERT),
            "after": f"{seqno}.{command_id}",
        }
        for seqno, command_id in commands
    ]
    return pa.RecordBatch.from_pylist(rows, schema=ROW_LAYOUT)


def _transactions(sizes: Sequence[int]) -> list[list[Command]]:
    # Above 2^63: an LSN is unsigned.
    return [[((1 << 63) + 7 * at, command) for command in range(1, size + 1)] for at, size in enumerate(sizes)]


def _expected(transactions: Sequence[list[Command]], limits: CommitLimits) -> list[Delivered]:
    delivered: list[Delivered] = []
    commands: list[Command] = []
    count = 0
    for transaction in transactions:
        commands, count = commands + transaction, count + 1
        if count == limits.transactions or len(commands) >= limits.commands:
            delivered.append((commands, count, commands[-1][0]))
            commands, count = [], 0
    if commands:
        delivered.append((commands, count, commands[-1][0]))
    return delivered


def _delivered(pieces: Iterator[Piece], longest: int) -> list[Delivered]:
    delivered: list[Delivered] = []
    commands: list[Command] = []
    for piece in pieces:
        rows = piece.commands.to_pylist()
        assert len(rows) <= longest
        assert all(row["after"] == f"{int.from_bytes(row['xact_seqno'])}.{row['command_id']}" for row in rows)
        commands += [(int.from_bytes(row["xact_seqno"]), row["command_id"]) for row in rows]
        if piece.ends_commit_batch:
            delivered.append((commands, piece.transactions, int.from_bytes(piece.last_xact_seqno)))
            commands = []
        else:
            assert piece.transactions == 0
    assert not commands, "commands that are never committed"
    return delivered


def _cut(commands: Sequence[Command], cuts: Sequence[int]) -> Iterator[pa.RecordBatch]:
    """Yield batches that are slices of one, of any length, none too."""
    whole = _record_batch([(0, 1), *commands])
    for start, end in pairwise([0, *sorted(min(cut, len(commands)) for cut in cuts), len(commands)]):
        yield whole.slice(start + 1, end - start)


_sizes = st.lists(st.one_of(st.integers(1, 4), st.integers(1, 30)), max_size=12)


@settings(deadline=None, max_examples=examples(400), suppress_health_check=[HealthCheck.too_slow])
@given(
    _sizes,
    st.lists(st.integers(0, 100), max_size=8),
    st.integers(1, 6),
    st.integers(1, 60),
    st.integers(1, 12),
    st.integers(1, 12),
)
def test_commits_hold_whole_transactions_within_the_limits(
    sizes: list[int], cuts: list[int], transactions: int, commands: int, longest: int, first: int
) -> None:
    limits = CommitLimits(transactions, commands)
    ordered = _transactions(sizes)
    flat = [command for transaction in ordered for command in transaction]
    with mock.patch.object(module, "PIECE_COMMANDS", longest):
        assert _delivered(commit_batches(_cut(flat, cuts), limits, first), longest) == _expected(ordered, limits)


@settings(deadline=None, max_examples=examples(200), suppress_health_check=[HealthCheck.too_slow])
@given(_sizes, st.lists(st.integers(0, 100), max_size=8), st.sets(st.integers(0, 12)), st.integers(1, 12))
def test_a_transaction_that_changes_the_schema_is_a_commit_batch(
    sizes: list[int], cuts: list[int], changing: set[int], longest: int
) -> None:
    limits, ordered = CommitLimits(3, 40), _transactions(sizes)
    flat = [command for transaction in ordered for command in transaction]
    # One more, of which no command is among these.
    changes = [((1 << 63) + 7 * at).to_bytes(8, "big") for at in sorted({*changing, 1000})]
    expected, since = list[Delivered](), 0
    for at in sorted(it for it in changing if it < len(ordered)):
        expected += [*_expected(ordered[since:at], limits), (ordered[at], 1, ordered[at][0][0])]
        since = at + 1
    expected += _expected(ordered[since:], limits)
    with mock.patch.object(module, "PIECE_COMMANDS", longest):
        pieces = list(commit_batches(_cut(flat, cuts), limits, longest, changes))
    assert _delivered(iter(pieces), longest) == expected
    assert all(it.changes_schema == (it.last_xact_seqno in changes) for it in pieces if it.ends_commit_batch)
    assert all(it.changes_schema == (it.commands["xact_seqno"][0].as_py() in changes) for it in pieces if it.commands)


@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=12), st.lists(st.integers(0, 60), max_size=8), st.integers(1, 9)
)
def test_the_first_piece_is_small_and_of_whole_transactions(sizes: list[int], cuts: list[int], first: int) -> None:
    ordered = _transactions(sizes)
    flat = [command for transaction in ordered for command in transaction]
    taken: list[Command] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in _cut(flat, cuts):
            taken.extend((int.from_bytes(row["xact_seqno"]), row["command_id"]) for row in batch.to_pylist())
            yield batch

    piece = next(commit_batches(batches(), CommitLimits(1000, 1000), first))
    arrived = sorted(min(cut, len(flat)) for cut in [*cuts, len(flat)])
    enough = next((it for it in arrived if it >= first and flat[it - 1][0] != flat[0][0]), None)
    assert len(taken) == (enough or len(flat))
    assert piece.ends_commit_batch is (enough is None)
    whole = [command for command in taken if enough is None or command[0] != taken[-1][0]]
    assert len(piece.commands) == len(whole)


def test_of_many_articles_the_first_piece_is_a_commit_batch() -> None:
    flat = [command for transaction in _transactions([1] * 50) for command in transaction]
    with mock.patch.object(module, "_MOST_FIRST_ARTICLES", 0):
        (piece,) = commit_batches(_cut(flat, [10, 20]), CommitLimits(1000, 1000), 5)
    assert (len(piece.commands), piece.ends_commit_batch) == (50, True)


@settings(deadline=None, max_examples=examples(100), suppress_health_check=[HealthCheck.too_slow])
@given(_sizes, st.integers(1, 2000))
def test_pieces_are_bounded_in_bytes_too(sizes: list[int], piece_bytes: int) -> None:
    ordered = _transactions(sizes)
    flat = [command for transaction in ordered for command in transaction]
    limits = CommitLimits(1000, 1000)
    with mock.patch.object(module, "PIECE_BYTES", piece_bytes):
        pieces = list(commit_batches(_cut(flat, [5, 30]), limits))
    assert _delivered(iter(pieces), 10_000) == _expected(ordered, limits)
    # Rows of one size: a piece twice as large as allowed could have been cut. Each slice has one offset more a column.
    most = 2 * piece_bytes + 4 * len(ROW_LAYOUT)
    assert all(len(piece.commands) <= 1 or piece.commands.nbytes <= most for piece in pieces)


@settings(deadline=None, max_examples=examples(300), suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.lists(st.booleans(), min_size=1, max_size=9), min_size=1, max_size=8),
    st.lists(st.integers(0, 60), max_size=6),
    st.integers(1, 5),
    st.integers(1, 5),
    st.integers(1, 12),
)
def test_tables_that_are_truncated_together_are_in_one_piece(
    truncates: list[list[bool]], cuts: list[int], longest: int, transactions: int, first: int
) -> None:
    rows = [
        {
            "xact_seqno": seqno.to_bytes(8, "big"),
            "command_id": number,
            "article_id": 1,
            "operation": int(Operation.TRUNCATE if truncate else Operation.INSERT),
        }
        for seqno, commands in enumerate(truncates, start=1)
        for number, truncate in enumerate(commands, start=1)
    ]
    whole = pa.RecordBatch.from_pylist(rows, schema=ROW_LAYOUT)
    places = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    with mock.patch.object(module, "PIECE_COMMANDS", longest):
        limits = CommitLimits(transactions, 1000)
        pieces = list(commit_batches((whole.slice(at, end - at) for at, end in pairwise(places)), limits, first))
    assert [row for piece in pieces for row in piece.commands.to_pylist()] == whole.to_pylist()
    assert sum(piece.transactions for piece in pieces) == len(truncates)
    for one, other in pairwise(piece.commands.to_pylist() for piece in pieces):
        if one and other and one[-1]["xact_seqno"] == other[0]["xact_seqno"]:
            assert not one[-1]["operation"] == other[0]["operation"] == Operation.TRUNCATE


def test_a_commit_batch_ends_at_the_limit_reached_first() -> None:
    # CommitBatchSize is 3, CommitBatchThreshold 5: whichever is reached first, by whole transactions.
    ordered = _transactions([1, 1, 1, 6, 2, 2, 2, 1])
    flat = [command for transaction in ordered for command in transaction]
    delivered = _delivered(commit_batches(_cut(flat, [4]), CommitLimits(3, 5)), 100)
    assert [(len(commands), transactions) for commands, transactions, _ in delivered] == [
        (3, 3),
        (6, 1),
        (6, 3),
        (1, 1),
    ]


def test_a_transaction_larger_than_a_piece_starts_before_its_end_is_known() -> None:
    # Memory stays flat: pieces go out while the transaction is still being read.
    read = 0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal read
        for start in range(1, 101, 10):
            read += 1
            yield _record_batch([(5, command) for command in range(start, start + 10)])

    with mock.patch.object(module, "PIECE_COMMANDS", 20):
        pieces = commit_batches(batches(), CommitLimits(100, 1000))
        assert not next(pieces).ends_commit_batch
        assert read == 2
        assert _delivered(pieces, 20)[-1][1:] == (1, 5)


@pytest.mark.parametrize(
    "commands",
    [[(2, 1), (1, 1)], [(1, 2), (1, 1)], [(1, 1), (1, 1)], [(1, 1), (2, 1), (1, 2)]],
)
@pytest.mark.parametrize("cuts", [[], [1], [2]])
@pytest.mark.parametrize("longest", [1, 100])
def test_commands_out_of_order_are_refused(commands: list[Command], cuts: list[int], longest: int) -> None:
    with (
        mock.patch.object(module, "PIECE_COMMANDS", longest),
        pytest.raises(InternalError, match="not in the order of"),
    ):
        list(commit_batches(_cut(commands, cuts), CommitLimits(1, 1)))


def test_no_commands_make_no_commit_batch() -> None:
    assert list(commit_batches([_record_batch([])], CommitLimits(1, 1))) == []
    assert list(commit_batches([], CommitLimits(1, 1))) == []


def test_an_xact_seqno_of_another_width_is_refused() -> None:
    row = {"xact_seqno": bytes(10), "command_id": 1, "article_id": 1, "operation": 1}
    with pytest.raises(InternalError, match="not 8 bytes wide"):
        list(commit_batches([pa.RecordBatch.from_pylist([row], schema=ROW_LAYOUT)], CommitLimits(1, 1)))


def test_large_rows_that_stand_together_are_cut_apart() -> None:
    # There are few of many: by count, one piece would have them all.
    rows = _record_batch([(1, command) for command in range(1, 1001)]).to_pylist()
    for row in rows[600:604]:
        row["after"] = "x" * 1000
        row["before"] = "y" * 1000
    batch = pa.RecordBatch.from_pylist(rows, schema=ROW_LAYOUT)
    with mock.patch.object(module, "PIECE_BYTES", 5000):
        pieces = list(commit_batches([batch], CommitLimits(1000, 10_000)))
    assert [row for piece in pieces for row in piece.commands.to_pylist()] == rows
    weights = [int(module.weights_of(piece.commands).sum()) for piece in pieces]
    assert max(weights) < 5000 + 2100
    assert len(pieces) < 20
