"""Folded commands applied in bulk at a MariaDB or MySQL Subscriber, each statement's rows counted.

Values travel in INSERTs of many rows, into the table itself or a temporary one: strict, as the statement for one row
is. `LOAD DATA LOCAL` cuts and skips what does not fit (it implies IGNORE); staged for that reason, it costs the same.
An UPDATE or DELETE joins the temporary table. SQLAlchemy's sessions count rows that were found, not those that changed.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa
from sqlalchemy import CursorResult

from tranrepl.model.article import RegisteredArticle
from tranrepl.model.commands import Operation
from tranrepl.model.row_images import cells, contents
from tranrepl.subscriber.batching.fold_text import KeyAction, key_actions
from tranrepl.subscriber.batching.folded import Folded, FoldedUpdates
from tranrepl.subscriber.batching.key_order import Columns
from tranrepl.subscriber.batching.steps import BulkStep, MismatchError, Operations
from tranrepl.subscriber.mariadb.bulk_rules import BulkRules, BulkTarget
from tranrepl.subscriber.mariadb.literals import ColumnDeclaration, hexadecimal
from tranrepl.subscriber.mariadb.sql_text import qualified_name, quoted_name

_STATEMENT_BYTES = 1 << 20
"""The length of an INSERT; more in one costs memory and wins nothing."""
_PACKET_HEADER = 8
_MASK = "mask"
_ACTION = "key_action"


@dataclass(frozen=True, slots=True)
class _Stage:
    """A temporary table: names with their declarations."""

    name: str
    columns: Sequence[tuple[str, str]]


class MariaDbBulk:
    """Applies steps in bulk, inside the open transaction."""

    def __init__(self, session: sa.Connection, rules: BulkRules) -> None:
        self._session = session
        self._targets = rules.targets
        self._rank = rules.parents_first
        self._largest: int = session.scalar(sa.text("SELECT @@max_allowed_packet"))
        self.operations: Mapping[int, Operations] = rules.operations
        self._stage_seconds = 0.0

    def prepare(self, step: BulkStep) -> None:
        """Create the staging tables again: a TRUNCATE would commit, and what a rollback leaves in them is open."""
        for folded in step.folded:
            target = self._targets[folded.article.article_id]
            if len(folded.deletes[0]) or len(folded.absent[0]):
                self._make(_key_stage(target))
            if folded.updates is not None:
                self._make(_row_stage(target, folded.updates))

    def apply(self, step: BulkStep) -> None:
        """Apply a step: deletes, children first; updates and inserts, parents first."""
        parents_first = step.parents_first(self._rank)
        for folded in reversed(parents_first):
            self._delete(folded)
        for folded in parents_first:
            if folded.updates is not None:
                self._update(folded.article, folded.updates)
            self._insert(folded)

    def take_stage_seconds(self) -> float:
        seconds, self._stage_seconds = self._stage_seconds, 0.0
        return seconds

    def _make(self, stage: _Stage) -> None:
        declared = ", ".join(f"{quoted_name(name)} {declaration}" for name, declaration in stage.columns)
        self._execute(f"DROP TEMPORARY TABLE IF EXISTS {quoted_name(stage.name)}")
        self._execute(f"CREATE TEMPORARY TABLE {quoted_name(stage.name)} ({declared}) ENGINE=InnoDB")

    def _delete(self, folded: Folded) -> None:
        goes, absent = len(folded.deletes[0]), len(folded.absent[0])
        if goes + absent == 0:
            return
        target = self._targets[folded.article.article_id]
        stage = _key_stage(target)
        keys: Columns = tuple(pa.concat_arrays(both) for both in zip(folded.deletes, folded.absent, strict=True))
        self._fill(stage, [key_actions(folded), *_key_literals(target, keys)])
        joined = (
            f"{quoted_name(stage.name)} AS staged STRAIGHT_JOIN {_table(target)} AS destination ON {_matches(target)}"
        )
        if absent and self._count(f"SELECT COUNT(*) FROM {joined} AND staged.{_ACTION} = {KeyAction.ABSENT}"):
            raise MismatchError(f"a row to be inserted is in {_shown(target)} already")
        if goes:
            deleted = self._execute(f"DELETE destination FROM {joined} AND staged.{_ACTION} = {KeyAction.DELETE}")
            _require(target, Operation.DELETE, deleted.rowcount, goes)

    def _update(self, article: RegisteredArticle, updates: FoldedUpdates) -> None:
        target = self._targets[article.article_id]
        stage = _row_stage(target, updates)
        positions = _staged_positions(target, updates)
        values = [target.literals[at](updates.values[at]) for at in positions]
        masks = [hexadecimal(updates.mask_digits())] if _is_partial(updates, positions) else []
        self._fill(stage, [*_key_literals(target, updates.keys), *values, *masks])
        met = self._count_updated(target, stage, updates, positions)
        _require(target, Operation.UPDATE, met, len(updates))

    def _count_updated(
        self, target: BulkTarget, stage: _Stage, updates: FoldedUpdates, positions: Sequence[int]
    ) -> int:
        joined = (
            f"{quoted_name(stage.name)} AS staged STRAIGHT_JOIN {_table(target)} AS destination ON {_matches(target)}"
        )
        assigned = [
            *_key_assignments(target, updates),
            *(_assignment(target, at, always=bool(updates.setting(at).all())) for at in positions),
        ]
        if not assigned:
            return self._count(f"SELECT COUNT(*) FROM {joined}")
        return self._execute(f"UPDATE {joined} SET {', '.join(assigned)}").rowcount

    def _insert(self, folded: Folded) -> None:
        if len(folded.inserts) == 0:
            return
        self.insert(self._targets[folded.article.article_id], folded.inserts)

    def insert(self, target: BulkTarget, images: pa.StringArray) -> None:
        """Insert rows. Raises MismatchError where MariaDB would not keep each as it is."""
        columns = _columns_of(images, len(target.columns))
        values = [convert(column) for convert, column in zip(target.literals, columns, strict=True)]
        # What comes twice, or is there already, the unique key refuses.
        met = self._insert_into(_table(target), [it.name for it in target.columns], values)
        _require(target, Operation.INSERT, met, len(images))

    def _fill(self, stage: _Stage, values: Sequence[pa.StringArray]) -> None:
        started = time.perf_counter()
        if self._insert_into(quoted_name(stage.name), [name for name, _ in stage.columns], values) != len(values[0]):
            raise MismatchError("not every row was staged")
        self._stage_seconds += time.perf_counter() - started

    def _insert_into(self, table: str, columns: Sequence[str], values: Sequence[pa.StringArray]) -> int:
        start = f"INSERT INTO {table} ({', '.join(map(quoted_name, columns))}) VALUES "
        rows = pc.binary_join_element_wise(pc.binary_join_element_wise("(", values[0], ""), *values[1:], ",")
        room = min(_STATEMENT_BYTES, self._largest - _PACKET_HEADER) - len(start.encode())
        met = 0
        for block in _blocks(pc.binary_join_element_wise(rows, "),", ""), room):
            # Without the last comma. A row that no packet holds is refused before it is sent.
            met += self._execute(start + block[:-1].tobytes().decode()).rowcount
        return met

    def _count(self, query: str) -> int:
        found: int = self._execute(query).scalar_one()
        return found

    def _execute(self, statement: str) -> CursorResult[Any]:
        """Execute a statement as it is written: no parameters, and no marks for them."""
        return self._session.exec_driver_sql(statement, execution_options={"no_parameters": True})


def _blocks(rows: pa.StringArray, most_bytes: int) -> Iterator[np.ndarray[tuple[int], np.dtype[np.uint8]]]:
    """Yield the bytes of whole rows together: of `most_bytes`, or of a single row."""
    offsets = np.frombuffer(rows.buffers()[1], dtype=np.int32)[rows.offset : rows.offset + len(rows) + 1]
    start = 0
    while start < len(rows):
        fitting = int(np.searchsorted(offsets, offsets[start] + most_bytes, side="right")) - 1
        end = max(start + 1, fitting)
        yield contents(rows.slice(start, end - start))
        start = end


def _columns_of(lines: pa.StringArray, count: int) -> Iterable[pa.StringArray]:
    """Return each column's cells. Raises MismatchError where a line has not so many."""
    listed = cells(lines)
    values = listed.flatten()
    if not (np.diff(listed.offsets.to_numpy()) == count).all():
        raise MismatchError("an image has not the article's columns")
    places = np.arange(len(lines)) * count
    return [values.take(pa.array(places + at)) for at in range(count)]


def _table(target: BulkTarget) -> str:
    return qualified_name(*target.place)


def _shown(target: BulkTarget) -> str:
    return ".".join(target.place)


def _key_name(place: int) -> str:
    return f"k{place}"


def _value_name(position: int) -> str:
    return f"c{position}"


def _declaration(column: ColumnDeclaration) -> str:
    """Declare a column of the same type, so that an index serves and a comparison is the same."""
    if column.charset is None:
        return f"{column.column_type} NULL"
    return f"{column.column_type} CHARACTER SET {column.charset} COLLATE {column.collation} NULL"


def _key_columns(target: BulkTarget) -> list[tuple[str, str]]:
    key = enumerate(target.article.key_positions)
    return [(_key_name(place), _declaration(target.columns[at])) for place, at in key]


def _key_stage(target: BulkTarget) -> _Stage:
    return _Stage(f"tranrepl_keys_{target.article.article_id}", [(_ACTION, "tinyint NOT NULL"), *_key_columns(target)])


def _row_stage(target: BulkTarget, updates: FoldedUpdates) -> _Stage:
    positions = _staged_positions(target, updates)
    values = [(_value_name(at), _declaration(target.columns[at])) for at in positions]
    width = updates.masks.shape[1]
    masks = [(_MASK, f"varbinary({width}) NOT NULL")] if _is_partial(updates, positions) else []
    return _Stage(f"tranrepl_rows_{target.article.article_id}", [*_key_columns(target), *values, *masks])


def _staged_positions(target: BulkTarget, updates: FoldedUpdates) -> list[int]:
    """Return the positions of what is set, but for the key, which is staged already."""
    return [at for at in sorted(updates.values) if at not in target.article.key_positions]


def _is_partial(updates: FoldedUpdates, positions: Sequence[int]) -> bool:
    return not all(updates.setting(at).all() for at in positions)


def _key_literals(target: BulkTarget, keys: Columns) -> list[pa.StringArray]:
    return [target.literals[at](cells) for at, cells in zip(target.article.key_positions, keys, strict=True)]


def _matches(target: BulkTarget) -> str:
    return " AND ".join(
        f"destination.{quoted_name(target.columns[at].name)} = staged.{_key_name(place)}"
        for place, at in enumerate(target.article.key_positions)
    )


def _key_assignments(target: BulkTarget, updates: FoldedUpdates) -> list[str]:
    """Return assignments of the key: an UPDATE that sets all columns gives a key of equal text its own spelling."""
    return [
        f"destination.{quoted_name(target.columns[at].name)} = staged.{_key_name(place)}"
        for place, at in enumerate(target.article.key_positions)
        if at in updates.values and target.columns[at].collation is not None
    ]


def _assignment(target: BulkTarget, at: int, *, always: bool) -> str:
    column, value = f"destination.{quoted_name(target.columns[at].name)}", f"staged.{_value_name(at)}"
    if always:
        return f"{column} = {value}"
    is_set = f"ORD(SUBSTRING(staged.{_MASK}, {at // 8 + 1}, 1)) & {1 << at % 8}"
    return f"{column} = CASE WHEN {is_set} THEN {value} ELSE {column} END"


def _require(target: BulkTarget, operation: Operation, met: int, wanted: int) -> None:
    if met != wanted:
        raise MismatchError(f"{operation.name}s in {_shown(target)} do not meet a row each")
