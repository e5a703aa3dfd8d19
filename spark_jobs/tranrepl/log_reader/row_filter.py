"""Row filters: an UPDATE may move a row into or out of what is published.

Source: KB 238254, the table of before and after images; "no" for both sends nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from tranrepl.commands import Operation
from tranrepl.image_lines import lines
from tranrepl.log_reader.refusal import refuse_left_out
from tranrepl.publisher.changes import Bools, Buffer, Cells, ChangeSet
from tranrepl.publisher.row_filters import RowFilters, filter_positions


def filtered(buffer: Buffer, changes: ChangeSet, filters: RowFilters) -> Iterator[ChangeSet]:
    """What of the changes concerns published rows: UPDATEs stay, or become DELETEs or INSERTs."""
    if changes.article.filter is None or changes.operation is Operation.TRUNCATE:
        yield changes
        return
    before = _matches(buffer, changes, changes.before, filters)
    after = _matches(buffer, changes, changes.after, filters)
    match changes.operation:
        case Operation.INSERT:
            yield changes.rows(np.flatnonzero(after))
        case Operation.DELETE:
            yield changes.rows(np.flatnonzero(before))
        case _:
            yield changes.rows(np.flatnonzero(before & after))
            yield deletes_of(changes.rows(np.flatnonzero(before & ~after)))
            yield inserts_of(changes.rows(np.flatnonzero(~before & after)))


def _matches(buffer: Buffer, changes: ChangeSet, image: Cells | None, filters: RowFilters) -> Bools:
    count = len(changes.places)
    if image is None or count == 0:
        return np.zeros(count, dtype=np.bool_)
    positions = list(filter_positions(changes.article))
    seen = image.columns(positions)
    refuse_left_out(changes, seen, positions)
    columns = [buffer.strings(seen.starts[:, at], seen.lengths[:, at]) for at in range(len(positions))]
    offsets = np.arange(count + 1) * len(positions)
    alone = len(positions) == 1
    values = columns[0] if alone else buffer.strings(seen.starts.ravel(), seen.lengths.ravel())
    return filters.matches(changes.article, lines(values, offsets, np.zeros(count, dtype=np.bool_)), columns)


def deletes_of(changes: ChangeSet) -> ChangeSet:
    return replace(changes, operation=Operation.DELETE, after=None, changed=None)


def inserts_of(changes: ChangeSet) -> ChangeSet:
    return replace(changes, operation=Operation.INSERT, before=None, changed=None)
