"""Which stored batches a run delivers, and up to which transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from tranrepl.distributor.database import Batch

GROUP_COMMANDS = 100_000
"""Batches are read together up to this many commands: together they are sorted in memory."""


@dataclass(frozen=True, slots=True)
class Group:
    """Consecutive batches, of which transactions before `before` are delivered (None: all)."""

    batches: tuple[Batch, ...]
    before: bytes | None = None


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


def groups(batches: Sequence[Batch], before: bytes | None) -> Iterator[Group]:
    """Consecutive batches of up to `GROUP_COMMANDS` commands together; a larger batch is a group by itself."""
    group: list[Batch] = []
    for batch in batches:
        if group and sum(member.commands for member in group) + batch.commands > GROUP_COMMANDS:
            yield Group(tuple(group), before)
            group = []
        group.append(batch)
    if group:
        yield Group(tuple(group), before)
