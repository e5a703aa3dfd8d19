"""Which stored batches a run delivers, up to which transaction, and which transaction goes by itself."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from tranrepl.distributor.database import Batch
from tranrepl.model.position import seqno_after

READ_TOGETHER = 2_000_000
"""Commands of batches that are read in order, one after another: nothing but the account of progress waits for the end
of a group, and its start and end take as long as some 100,000 commands in bulk."""


@dataclass(frozen=True, slots=True)
class Group:
    """Consecutive batches, of which transactions before `before` are delivered (None: all)."""

    batches: tuple[Batch, ...]
    before: bytes | None = None
    alone: bool = False
    """It is a single transaction that holds a schema change or a script: it goes over one connection, in a session of
    its own, and what follows meets other tables."""


def deliverable(
    batches: Sequence[Batch], committed_before: datetime | None, first_at_or_after: Callable[[Batch, datetime], bytes]
) -> tuple[list[Batch], bytes | None]:
    """Cut the batches before the first transaction that was committed at or after the bound.

    In order: later transactions wait, though their clock may show an earlier time. `first_at_or_after` looks into a
    batch that holds such a transaction and gives its `xact_seqno`.
    """
    whole: list[Batch] = []
    for batch in batches:
        if committed_before is not None and batch.last_commit_time >= committed_before:
            cut = first_at_or_after(batch, committed_before)
            return ([*whole, batch], cut) if cut > batch.first_xact_seqno else (whole, None)
        whole.append(batch)
    return whole, None


def cut_after(batches: Sequence[Batch], before: bytes | None, last: bytes | None) -> tuple[list[Batch], bytes | None]:
    """Cut the batches, and with them the bound `before`, after transaction `last` (None: not at all)."""
    if last is None:
        return list(batches), before
    chosen = [batch for batch in batches if batch.first_xact_seqno <= last]
    if not chosen or chosen[-1].last_xact_seqno <= last:
        return chosen, before if len(chosen) == len(batches) else None
    return chosen, seqno_after(last) if before is None else min(before, seqno_after(last))


def deliverable_again(
    batches: Sequence[Batch], earlier: Sequence[Batch], before: bytes | None
) -> tuple[list[Batch], bytes | None]:
    """Cut batches, registered meanwhile as they may be, where `earlier` ones were cut before `before` (None: at their
    end)."""
    bound = seqno_after(earlier[-1].last_xact_seqno) if before is None else before
    chosen = [batch for batch in batches if batch.first_xact_seqno < bound]
    return chosen, bound if chosen and chosen[-1].last_xact_seqno >= bound else None


def groups(
    batches: Sequence[Batch], before: bytes | None, most: int, is_intact: Callable[[Batch], bool]
) -> Iterator[Group]:
    """Group consecutive batches of up to `most` commands together; a larger batch is a group by itself. A batch that is
    not intact begins a group: what comes before it can be delivered."""
    group: list[Batch] = []
    commands = 0
    for batch in batches:
        if group and (commands + batch.commands > most or not is_intact(batch)):
            yield Group(tuple(group), before)
            group, commands = [], 0
        group.append(batch)
        commands += batch.commands
    if group:
        yield Group(tuple(group), before)


def cut_around(group: Group, alone: Collection[bytes]) -> Iterator[Group]:
    """Cut a group before and after each of some transactions (`xact_seqno`), which hold a schema change or a script."""
    batches = group.batches
    firsts, lasts = [it.first_xact_seqno for it in batches], [it.last_xact_seqno for it in batches]
    start = 0
    for change in sorted(alone):
        at = bisect_left(lasts, change, start)
        if at == len(batches) or firsts[at] > change or (group.before is not None and change >= group.before):
            continue
        inside_from, goes_on = firsts[at] < change, lasts[at] > change
        if earlier := batches[start : at + inside_from]:
            yield Group(earlier, change if inside_from else None)
        yield Group(batches[at : at + 1], seqno_after(change) if goes_on else None, alone=True)
        start = at if goes_on else at + 1
    if start < len(batches):
        yield Group(batches[start:], group.before)
