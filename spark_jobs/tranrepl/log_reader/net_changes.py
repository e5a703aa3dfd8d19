"""Tables with DEFERRABLE keys: within a transaction, two rows may hold one value for a time.

Such a transaction goes out as its net changes: first the DELETE of every row that it found and did not leave as it was,
then the INSERT of every row that it left. At no point between them do two rows hold one value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from tranrepl.log_reader.refusal import refuse_left_out
from tranrepl.log_reader.row_filter import deletes_of, inserts_of
from tranrepl.model.commands import Operation
from tranrepl.model.row_images import lines
from tranrepl.publisher.changes import Bools, Buffer, Cells, ChangeSet, Ints, Transactions


def net_changes(buffer: Buffer, sets: Sequence[ChangeSet], transactions: Transactions) -> list[ChangeSet]:
    """Return the changes of one article with a DEFERRABLE key, in whole transactions: those of transactions in which a
    value may stand twice for a time become net changes."""
    parts = _Parts.of(sets, transactions)
    doubtful = _doubtful(parts, _places(sets, _gives_a_value), _places(sets, _frees_a_value))
    if not doubtful.any():
        return list(sets)
    plain, doubted = [], []
    for it in sets:
        in_doubt = doubtful[parts.of_places(it.places)]
        if it.operation is Operation.TRUNCATE:
            in_doubt[:] = False
        plain.append(it.rows(np.flatnonzero(~in_doubt)))
        doubted.append(it.rows(np.flatnonzero(in_doubt)))
    return [*plain, *_net(buffer, doubted, parts)]


@dataclass(frozen=True, slots=True)
class _Parts:
    """Transactions, cut where a TRUNCATE empties the table; by the places at which they begin."""

    begins: Ints

    @classmethod
    def of(cls, sets: Sequence[ChangeSet], transactions: Transactions) -> _Parts:
        truncated = [it.places for it in sets if it.operation is Operation.TRUNCATE]
        return cls(np.unique(np.concatenate([transactions.begins, *truncated])))

    def of_places(self, places: Ints) -> Ints:
        """Return the index of each place's part, shape (places,)."""
        return np.searchsorted(self.begins, places, side="right")


def _gives_a_value(changes: ChangeSet) -> Bools:
    """Return which rows may take a unique value that another row still holds."""
    return _all(changes) if changes.operation is Operation.INSERT else _moves(changes)


def _frees_a_value(changes: ChangeSet) -> Bools:
    return _all(changes) if changes.operation is Operation.DELETE else _moves(changes)


def _all(changes: ChangeSet) -> Bools:
    return np.ones(len(changes.places), dtype=np.bool_)


def _moves(changes: ChangeSet) -> Bools:
    if changes.changed is None:
        return np.zeros(len(changes.places), dtype=np.bool_)
    return np.asarray(changes.changed[:, list(changes.article.unique_positions)].any(axis=1))


def _places(sets: Sequence[ChangeSet], chosen: Callable[[ChangeSet], Bools]) -> Ints:
    return np.concatenate([it.places[chosen(it)] for it in sets])


def _doubtful(parts: _Parts, gives: Ints, frees: Ints) -> Bools:
    """Return by part whether a value is given before another one is freed."""
    count = len(parts.begins) + 1
    first_given = np.full(count, np.iinfo(np.int64).max)
    last_freed = np.full(count, -1)
    np.minimum.at(first_given, parts.of_places(gives), gives)
    np.maximum.at(last_freed, parts.of_places(frees), frees)
    return np.asarray(first_given < last_freed)


@dataclass(frozen=True, slots=True)
class _Events:
    """Rows that go and rows that come, in order: an UPDATE is one of each. `step` is -1 for a row that goes, 1 for one
    that comes; `source` and `row` say whose image it is."""

    order: Ints
    part: Ints
    image: Ints
    step: Ints
    source: Ints
    row: Ints


def _events(buffer: Buffer, sets: Sequence[ChangeSet], parts: _Parts) -> _Events:
    images: list[pa.StringArray] = []
    columns: list[tuple[Ints, ...]] = []
    for source, changes in enumerate(sets):
        for step, cells in ((-1, changes.before), (1, changes.after)):
            if cells is None or not len(changes.places):
                continue
            images.append(_lines(buffer, changes, cells))
            count = len(changes.places)
            orders, in_parts = 2 * changes.places + (step > 0), parts.of_places(changes.places)
            columns.append((orders, in_parts, np.full(count, step), np.full(count, source), np.arange(count)))
    order, part, steps, sources, rows = (np.concatenate(it) for it in zip(*columns, strict=True))
    image = pa.concat_arrays(images).dictionary_encode().indices.to_numpy().astype(np.int64)
    return _Events(order, part, image, steps, sources, rows)


def _lines(buffer: Buffer, changes: ChangeSet, cells: Cells) -> pa.StringArray:
    count, width = cells.starts.shape
    refuse_left_out(changes, cells, range(width))
    values = buffer.strings(cells.starts.ravel(), cells.lengths.ravel())
    return lines(values, np.arange(count + 1) * width, np.zeros(count, dtype=np.bool_))


def _net(buffer: Buffer, sets: Sequence[ChangeSet], parts: _Parts) -> Iterator[ChangeSet]:
    """Yield the net changes: a row that comes and goes again, equal in every value, was never there."""
    events = _events(buffer, sets, parts)
    by_row = np.lexsort((events.order, events.image, events.part))
    group = np.cumsum(
        np.diff(events.part[by_row], prepend=-1).astype(bool) | np.diff(events.image[by_row], prepend=-1).astype(bool)
    )
    step = events.step[by_row]
    # How many such rows there are more than at first; each group a step of its own below or above all others.
    level = np.cumsum(step)
    level -= np.repeat((level - step)[_firsts(group)], np.bincount(group)[1:])
    spread = 2 * len(step) + 2
    lowest_before = np.minimum.accumulate(np.concatenate([[0], (np.minimum(level, 0) - group * spread)[:-1]]))
    goes = (step < 0) & (level < 0) & (level - group * spread < lowest_before)
    lowest_after = np.minimum.accumulate((level + group * spread)[::-1])[::-1]
    comes = (step > 0) & (level + group * spread <= lowest_after)
    place = _first_given(events, parts)
    after_all_that_go = int(max(it.places.max(initial=0) for it in sets)) + 1
    for turn, chosen, operation_of in (
        (0, by_row[goes], deletes_of),
        (after_all_that_go, by_row[comes], inserts_of),
    ):
        for source, changes in enumerate(sets):
            rows = np.sort(events.row[chosen[events.source[chosen] == source]])
            if len(rows):
                moved = operation_of(changes.rows(rows))
                yield replace(moved, places=place[parts.of_places(moved.places)], turn=turn + moved.places)


def _firsts(group: Ints) -> Ints:
    return np.flatnonzero(np.diff(group, prepend=0))


def _first_given(events: _Events, parts: _Parts) -> Ints:
    """Return by part the place where its net changes go out: where the first row came."""
    place = np.full(len(parts.begins) + 1, np.iinfo(np.int64).max)
    came = events.step > 0
    np.minimum.at(place, events.part[came], events.order[came] // 2)
    return place
