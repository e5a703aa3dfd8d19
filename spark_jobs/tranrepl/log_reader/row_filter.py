"""Row filters: an UPDATE whose row matches the filter only after it becomes an INSERT, only before it a DELETE, and one
whose row matches at neither time is left out.

Source: the table of before and after images in KB 238254.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from tranrepl.errors import ConfigurationError
from tranrepl.log_reader.refusal import refuse_left_out
from tranrepl.model.arrays import Bools
from tranrepl.model.commands import Operation
from tranrepl.model.row_images import lines
from tranrepl.publisher.changes import Buffer, Cells, Changes, ChangeSet, RefusedChange
from tranrepl.publisher.log_range import RowFilters, UnclearRowsError


def filtered(changes: Changes, sets: Sequence[ChangeSet], filters: RowFilters) -> Iterator[ChangeSet]:
    """Yield what of an article's changes concerns published rows: UPDATEs stay, or become DELETEs or INSERTs. Raises
    RefusedChange at the first one of which nothing tells whether it does."""
    try:
        matches = list(_matches(changes.buffer, sets, filters))
    except UnclearRowsError as unclear:
        sets = _without_ignored(changes, sets, unclear)
        matches = list(_matches(changes.buffer, sets, filters))
    yield from _published(sets, matches)


def _published(sets: Sequence[ChangeSet], matches: Sequence[tuple[Bools, Bools]]) -> Iterator[ChangeSet]:
    for changes, (before, after) in zip(sets, matches, strict=True):
        match changes.operation:
            case Operation.TRUNCATE:
                yield changes
            case Operation.INSERT:
                yield changes.rows(np.flatnonzero(after))
            case Operation.DELETE:
                yield changes.rows(np.flatnonzero(before))
            case _:
                yield changes.rows(np.flatnonzero(before & after))
                yield deletes_of(changes.rows(np.flatnonzero(before & ~after)))
                yield inserts_of(changes.rows(np.flatnonzero(~before & after)))


def _matches(buffer: Buffer, sets: Sequence[ChangeSet], filters: RowFilters) -> Iterator[tuple[Bools, Bools]]:
    """Yield which before and which after images match the filter; an empty array for an image that the operation lacks.

    All are evaluated together: a few take as long as thousands.
    """
    article = sets[0].article
    positions = list(filters.columns(article))
    images = [_seen(it, image, positions) for it in sets for image in (it.before, it.after)]
    seen = Cells(np.concatenate([it.starts for it in images]), np.concatenate([it.lengths for it in images]))
    columns = [buffer.strings(seen.starts[:, at], seen.lengths[:, at]) for at in range(len(positions))]
    count = len(seen.starts)
    values = columns[0] if len(positions) == 1 else buffer.strings(seen.starts.ravel(), seen.lengths.ravel())
    rows = lines(values, np.arange(count + 1) * len(positions), np.zeros(count, dtype=np.bool_))
    matching = filters.matches(article, rows, columns)
    parts = np.split(matching, np.cumsum([len(it.starts) for it in images])[:-1])
    return zip(parts[0::2], parts[1::2], strict=True)


def _without_ignored(changes: Changes, sets: Sequence[ChangeSet], unclear: UnclearRowsError) -> list[ChangeSet]:
    """Return the article's changes without those that are unclear, which were committed before the article was begun
    again. Raises RefusedChange at the first other one."""
    counts = [0 if image is None else len(image.starts) for it in sets for image in (it.before, it.after)]
    parts = np.split(unclear.rows, np.cumsum(counts)[:-1])
    left = []
    for it, before, after in zip(sets, parts[0::2], parts[1::2], strict=True):
        rows = np.zeros(len(it.places), dtype=np.bool_)
        for image in (before, after):
            if len(image):
                rows |= image
        committed = changes.transactions.seqno[changes.transactions.of(it.places)]
        ignored = (committed > 0) & (committed <= int.from_bytes(it.article.begins_after.value, "big"))
        refused = np.flatnonzero(rows & ~ignored)
        if len(refused):
            raise _refusal(it, int(it.places[refused[0]]), unclear.reason)
        left.append(it.rows(np.flatnonzero(~rows)))
    return left


def _refusal(changes: ChangeSet, place: int, reason: str) -> RefusedChange:
    source = changes.article.source
    error = ConfigurationError(
        f"article {source}: {reason}, and the log does not say which rows the row filter lets through: "
        f"{changes.article.filter}. Everything committed before that is stored; nothing after it is read",
        remedy=f"`tranrepl reinitialize FILE --article {source}` copies its rows",
        article=str(source),
    )
    return RefusedChange(place, error, rows_unknown=reason)


def _seen(changes: ChangeSet, image: Cells | None, positions: Sequence[int]) -> Cells:
    """Return the columns of an image that a filter reads."""
    if image is None:
        none = np.zeros((0, len(positions)), dtype=np.int64)
        return Cells(none, none)
    seen = image.columns(positions)
    refuse_left_out(changes, seen, positions)
    return seen


def deletes_of(changes: ChangeSet) -> ChangeSet:
    return replace(changes, operation=Operation.DELETE, after=None, changed=None)


def inserts_of(changes: ChangeSet) -> ChangeSet:
    return replace(changes, operation=Operation.INSERT, before=None, changed=None)
