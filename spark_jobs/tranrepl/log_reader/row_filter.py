"""Row filters: an UPDATE may move a row into or out of what is published.

Source: KB 238254, the table of before and after images; "no" for both sends nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from tranrepl.log_reader.refusal import refuse_left_out
from tranrepl.model.commands import Operation
from tranrepl.model.row_images import lines
from tranrepl.publisher.changes import Bools, Buffer, Cells, ChangeSet
from tranrepl.publisher.log_range import RowFilters


def filtered(buffer: Buffer, sets: Sequence[ChangeSet], filters: RowFilters) -> Iterator[ChangeSet]:
    """Yield what of an article's changes concerns published rows: UPDATEs stay, or become DELETEs or INSERTs."""
    for changes, (before, after) in zip(sets, _matches(buffer, sets, filters), strict=True):
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
