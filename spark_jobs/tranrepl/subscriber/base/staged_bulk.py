"""Folded commands applied in bulk by set-based statements that join temporary tables, each statement's rows counted."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy import CursorResult

from tranrepl.model.article import RegisteredArticle
from tranrepl.model.commands import Operation
from tranrepl.model.row_images import cells
from tranrepl.subscriber.base.identifiers import Identifiers
from tranrepl.subscriber.batching.fold_text import KeyAction, key_actions
from tranrepl.subscriber.batching.folded import Folded, FoldedUpdates
from tranrepl.subscriber.batching.key_order import Columns
from tranrepl.subscriber.batching.steps import BulkStep, MismatchError, Operations

MASK = "mask"
ACTION = "key_action"
Values = TypeVar("Values")
"""A column's values as a database's way of staging takes them."""


@dataclass(frozen=True, slots=True)
class StagedColumn(Generic[Values]):
    """A column of a destination table, and how it is staged."""

    name: str
    declaration: str
    """The type of the staging table's column."""
    values: Callable[[pa.StringArray], Values]
    """Makes cells of images what is staged. Raises MismatchError for cells that the database would change to fit,
    without an error."""
    spelled: bool = False
    """Values that are equal may be written in several ways, as texts of one collation are."""
    expression: Callable[[str], str] = str
    """Makes a staged column's name what its value is in the destination."""
    identity: bool = False
    """The database counts it up, and takes values of ours where the statement says so."""


@dataclass(frozen=True, slots=True)
class BulkTarget(Generic[Values]):
    """An article's table, as far as bulk statements name it."""

    article: RegisteredArticle
    place: tuple[str, str]
    """Schema and name."""
    columns: tuple[StagedColumn[Values], ...]
    """In the article's order."""
    key_index: str | None = None
    """A unique index of columns of the key."""

    def __str__(self) -> str:
        return ".".join(self.place)

    @property
    def key_columns(self) -> list[StagedColumn[Values]]:
        return [self.columns[at] for at in self.article.key_positions]


@dataclass(frozen=True, slots=True)
class BulkRules(Generic[Values]):
    """What one Subscriber lets bulk apply do, as its catalogue is now."""

    operations: Mapping[int, Operations] = field(default_factory=dict)
    """The operations of each article_id."""
    targets: Mapping[int, BulkTarget[Values]] = field(default_factory=dict)
    parents_first: Mapping[int, int] = field(default_factory=dict)
    """Rank of each article: one that a foreign key refers to comes before the one that refers."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A temporary table: names with their declarations."""

    name: str
    columns: Sequence[tuple[str, str]]


class StagedBulk(ABC, Generic[Values]):
    """Applies steps in bulk, inside the open transaction. A database says how it stages, and writes what differs."""

    join = "INNER JOIN"
    """Joins a staging table and the destination, in this order."""

    def __init__(self, session: sa.Connection, rules: BulkRules[Values], identifiers: Identifiers) -> None:
        self._session = session
        self._targets = rules.targets
        self._rank = rules.parents_first
        self._identifiers = identifiers
        self.operations: Mapping[int, Operations] = rules.operations
        self._stage_seconds = 0.0

    @abstractmethod
    def stage_name(self, purpose: str, target: BulkTarget[Values]) -> str:
        """Return the name of the session's staging table for this purpose."""

    @abstractmethod
    def make(self, stage: Stage) -> None:
        """Make a staging table, empty, whatever was there of this name."""

    @abstractmethod
    def staged(self, stage: Stage, values: Sequence[Values]) -> int:
        """Fill a staging table with the values of its columns; return how many rows it took."""

    @abstractmethod
    def numbers(self, digits: pa.StringArray) -> Values:
        """Make small numbers what is staged."""

    @abstractmethod
    def masks(self, updates: FoldedUpdates) -> Values:
        """Make the updates' bitmasks what is staged, as binary strings."""

    @abstractmethod
    def update_statement(self, joined: str, assigned: Sequence[tuple[str, str]]) -> str:
        """Return the UPDATE of `destination` among the joined tables; `assigned` are quoted columns and values."""

    @abstractmethod
    def is_set(self, at: int) -> str:
        """Return the condition that the staged mask names the column at this position."""

    @abstractmethod
    def insert(self, target: BulkTarget[Values], images: pa.StringArray) -> None:
        """Insert images of whole rows. Raises MismatchError where the database would not keep each as it is."""

    def prepare(self, step: BulkStep) -> None:
        """Create the staging tables again: what a rollback leaves in them is open."""
        for folded in step.folded:
            target = self._targets[folded.article.article_id]
            if len(folded.deletes[0]) or len(folded.absent[0]):
                self.make(self._key_stage(target))
            if folded.updates is not None:
                self.make(self._row_stage(target, folded.updates))

    def apply(self, step: BulkStep) -> None:
        """Apply a step: deletes, children first; updates and inserts, parents first."""
        parents_first = step.parents_first(self._rank)
        for folded in reversed(parents_first):
            self._delete(folded)
        for folded in parents_first:
            target = self._targets[folded.article.article_id]
            if folded.updates is not None:
                self._update(target, folded.updates)
            if len(folded.inserts):
                self.insert(target, folded.inserts)

    def take_stage_seconds(self) -> float:
        seconds, self._stage_seconds = self._stage_seconds, 0.0
        return seconds

    # Statements

    def _delete(self, folded: Folded) -> None:
        goes, absent = len(folded.deletes[0]), len(folded.absent[0])
        if goes + absent == 0:
            return
        target = self._targets[folded.article.article_id]
        stage = self._key_stage(target)
        keys: Columns = tuple(pa.concat_arrays(both) for both in zip(folded.deletes, folded.absent, strict=True))
        self.fill(stage, [self.numbers(key_actions(folded)), *_key_values(target, keys)])
        joined = self._joined(target, stage)
        if absent and self._count(f"SELECT COUNT(*) FROM {joined} AND staged.{ACTION} = {KeyAction.ABSENT}"):
            raise MismatchError(f"a row to be inserted exists in {target} already")
        if goes:
            deleted = self.execute(f"DELETE destination FROM {joined} AND staged.{ACTION} = {KeyAction.DELETE}")
            require(target, Operation.DELETE, deleted.rowcount, goes)

    def _update(self, target: BulkTarget[Values], updates: FoldedUpdates) -> None:
        stage, positions = self._row_stage(target, updates), _staged_positions(target, updates)
        values = [target.columns[at].values(updates.values[at]) for at in positions]
        masks = [self.masks(updates)] if _is_partial(updates, positions) else []
        self.fill(stage, [*_key_values(target, updates.keys), *values, *masks])
        joined = self._joined(target, stage)
        assigned = self._assignments(target, updates, positions)
        if assigned:
            met = self.execute(self.update_statement(joined, assigned)).rowcount
        else:
            met = self._count(f"SELECT COUNT(*) FROM {joined}")
        require(target, Operation.UPDATE, met, len(updates))

    def _assignments(
        self, target: BulkTarget[Values], updates: FoldedUpdates, positions: Sequence[int]
    ) -> list[tuple[str, str]]:
        """Return what an UPDATE sets: one that sets the key gives a key of equal text its own spelling."""
        columns, key = target.columns, enumerate(target.article.key_positions)
        spelled = [
            (self.quoted(columns[at].name), columns[at].expression(f"staged.{_key_name(place)}"))
            for place, at in key
            if at in updates.values and columns[at].spelled
        ]
        return spelled + [
            (self.quoted(columns[at].name), self._assigned(target, at, always=bool(updates.setting(at).all())))
            for at in positions
        ]

    def _assigned(self, target: BulkTarget[Values], at: int, *, always: bool) -> str:
        column = target.columns[at]
        value = column.expression(f"staged.{value_name(at)}")
        if always:
            return value
        return f"CASE WHEN {self.is_set(at)} THEN {value} ELSE destination.{self.quoted(column.name)} END"

    def _joined(self, target: BulkTarget[Values], stage: Stage) -> str:
        matches = " AND ".join(
            f"destination.{self.quoted(column.name)} = {column.expression(f'staged.{_key_name(place)}')}"
            for place, column in enumerate(target.key_columns)
        )
        staging = f"{self.quoted(stage.name)} AS staged"
        return f"{staging} {self.join} {self.table(target)} AS destination {self.found_by(target)}ON {matches}"

    def found_by(self, target: BulkTarget[Values]) -> str:  # noqa: ARG002 - where a database needs none
        """Return the hint by which index the destination's rows are found, or nothing."""
        return ""

    # Staging

    def fill(self, stage: Stage, values: Sequence[Values]) -> None:
        """Fill a staging table. Raises MismatchError where it did not take every row."""
        started = time.perf_counter()
        wanted = len(values[0])  # type: ignore[arg-type]
        if self.staged(stage, values) != wanted:
            raise MismatchError("not every row was staged")
        self._stage_seconds += time.perf_counter() - started

    def _key_stage(self, target: BulkTarget[Values]) -> Stage:
        return Stage(self.stage_name("keys", target), [(ACTION, "smallint NOT NULL"), *_key_declarations(target)])

    def _row_stage(self, target: BulkTarget[Values], updates: FoldedUpdates) -> Stage:
        positions = _staged_positions(target, updates)
        values = [(value_name(at), target.columns[at].declaration) for at in positions]
        width = updates.masks.shape[1]
        masks = [(MASK, f"varbinary({width}) NOT NULL")] if _is_partial(updates, positions) else []
        return Stage(self.stage_name("rows", target), [*_key_declarations(target), *values, *masks])

    # Statements as they are written

    def quoted(self, name: str) -> str:
        return self._identifiers.quoted(name)

    def table(self, target: BulkTarget[Values]) -> str:
        return self._identifiers.qualified(*target.place)

    def execute(self, statement: str) -> CursorResult[Any]:
        """Execute a statement as it is written: no parameters, and no marks for them."""
        return self._session.exec_driver_sql(statement, execution_options={"no_parameters": True})

    def _count(self, query: str) -> int:
        found: int = self.execute(query).scalar_one()
        return found


def require(target: BulkTarget[Any], operation: Operation, met: int, wanted: int) -> None:
    """Raise MismatchError unless a statement met as many rows as it should."""
    if met != wanted:
        raise MismatchError(f"{operation.name}s in {target} do not each find one row")


def image_columns(images: pa.StringArray, count: int) -> Iterable[pa.StringArray]:
    """Return each column's cells of whole rows. Raises MismatchError where an image has not `count` of them."""
    listed = cells(images)
    values = listed.flatten()
    if not (np.diff(listed.offsets.to_numpy()) == count).all():
        raise MismatchError("an image has not the article's columns")
    places = np.arange(len(images)) * count
    return [values.take(pa.array(places + at)) for at in range(count)]


def _key_name(place: int) -> str:
    return f"k{place}"


def value_name(position: int) -> str:
    """Return the staging table's name of the column at this position of the article."""
    return f"c{position}"


def _key_declarations(target: BulkTarget[Any]) -> list[tuple[str, str]]:
    return [(_key_name(place), column.declaration) for place, column in enumerate(target.key_columns)]


def _key_values(target: BulkTarget[Values], keys: Columns) -> list[Values]:
    return [column.values(cells_of) for column, cells_of in zip(target.key_columns, keys, strict=True)]


def _staged_positions(target: BulkTarget[Any], updates: FoldedUpdates) -> list[int]:
    """Return the positions of what is set, but for the key, which is staged already."""
    return [at for at in sorted(updates.values) if at not in target.article.key_positions]


def _is_partial(updates: FoldedUpdates, positions: Sequence[int]) -> bool:
    return not all(updates.setting(at).all() for at in positions)
