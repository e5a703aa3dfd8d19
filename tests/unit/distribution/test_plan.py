"""Which batches a run delivers, and up to which transaction."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from unittest import mock

from hypothesis import given, strategies as st

from tranrepl.distribution.plan import cut_after, deliverable, groups
from tranrepl.distributor.database import Batch

NOON = datetime(2024, 1, 2, 12, tzinfo=UTC)
Transactions = list[tuple[int, datetime]]
"""`xact_seqno` as a number, and commit time."""


def _seqno(number: int) -> bytes:
    return number.to_bytes(8, "big")


def _batch(transactions: Transactions, commands: int = 1) -> Batch:
    times = [time for _, time in transactions]
    # Further fields do not matter here.
    batch: Batch = mock.create_autospec(
        Batch,
        instance=True,
        folder=f"folder{transactions[0][0]}",
        first_xact_seqno=_seqno(transactions[0][0]),
        last_xact_seqno=_seqno(transactions[-1][0]),
        first_commit_time=min(times),
        last_commit_time=max(times),
        transactions=len(transactions),
        commands=commands,
    )
    return batch


@st.composite
def _backlogs(draw: st.DrawFn) -> list[Transactions]:
    """Return batches in commit order; a Publisher's clock may go back."""
    number = 0
    batches = []
    for size in draw(st.lists(st.integers(1, 4), max_size=5)):
        minutes = draw(st.lists(st.integers(-5, 5), min_size=size, max_size=size))
        batches.append([(number + at, NOON + timedelta(minutes=it)) for at, it in enumerate(minutes)])
        number += size
    return batches


def _delivered(backlog: Sequence[Transactions], bound: datetime | None, last: int | None = None) -> list[int]:
    by_folder = {_batch(transactions).folder: transactions for transactions in backlog}

    def first_at_or_after(batch: Batch, at: datetime) -> bytes:
        return _seqno(next(number for number, time in by_folder[batch.folder] if time >= at))

    whole, cut = deliverable([_batch(transactions) for transactions in backlog], bound, first_at_or_after)
    batches, before = cut_after(whole, cut, None if last is None else _seqno(last))
    return [
        number
        for batch in batches
        for number, _ in by_folder[batch.folder]
        if before is None or _seqno(number) < before
    ]


@given(_backlogs(), st.none() | st.integers(-6, 6))
def test_a_run_delivers_only_what_was_committed_before_its_bound(
    backlog: list[Transactions], minutes: int | None
) -> None:
    bound = None if minutes is None else NOON + timedelta(minutes=minutes)
    expected: list[int] = []
    for number, time in (transaction for transactions in backlog for transaction in transactions):
        # In commit order: what follows a late transaction waits, whatever its own time.
        if bound is not None and time >= bound:
            break
        expected.append(number)
    assert _delivered(backlog, bound) == expected


@given(_backlogs(), st.none() | st.integers(-6, 6), st.integers(0, 20))
def test_a_run_delivers_up_to_a_transaction_too(backlog: list[Transactions], minutes: int | None, last: int) -> None:
    bound = None if minutes is None else NOON + timedelta(minutes=minutes)
    expected = [number for number in _delivered(backlog, bound) if number <= last]
    assert _delivered(backlog, bound, last) == expected


def test_a_batch_without_a_late_transaction_is_not_opened() -> None:
    batches = [_batch([(1, NOON)]), _batch([(2, NOON)])]
    first_at_or_after = mock.Mock(side_effect=AssertionError)
    assert deliverable(batches, NOON + timedelta(seconds=1), first_at_or_after) == (batches, None)


@given(
    st.lists(st.integers(1, 12), max_size=10), st.none() | st.just(_seqno(3)), st.sets(st.integers(0, 9), max_size=2)
)
def test_batches_are_read_together_up_to_a_number_of_commands(
    sizes: list[int], before: bytes | None, damaged: set[int]
) -> None:
    batches = [_batch([(at, NOON)], size) for at, size in enumerate(sizes)]
    not_intact = [batch for at, batch in enumerate(batches) if at in damaged]
    grouped = list(groups(batches, before, 10, lambda it: it not in not_intact))
    assert [batch for group in grouped for batch in group.batches] == batches
    assert all(group.before == before for group in grouped)
    totals = [sum(batch.commands for batch in group.batches) for group in grouped]
    assert all(total <= 10 or len(group.batches) == 1 for total, group in zip(totals, grouped, strict=True))
    assert not [it for group in grouped for it in group.batches[1:] if it in not_intact]
    following = [group.batches[0] for group in grouped[1:]]
    assert all(total + it.commands > 10 or it in not_intact for total, it in zip(totals, following, strict=False))
