"""The columns' part of a schema change, in terms of a table that is there: what is left to do, with its own types.

What was done by hand before, or by a job that was killed, is not done again. A generated column does not travel, and is
left alone. A column gets another type where the table has the one that setup gave it; a type that somebody chose stays.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from typing import Any, Protocol

import sqlalchemy as sa
from sqlalchemy.types import TypeEngine

from tranrepl.error_numbers import VALUE_DOES_NOT_FIT
from tranrepl.errors import ConfigurationError, DataError
from tranrepl.model.article import PublishedColumn, RegisteredArticle
from tranrepl.model.schema_change import ColumnAction, ColumnChange, SchemaChange
from tranrepl.model.source_sql import constant_text
from tranrepl.model.source_types import Family, source_type
from tranrepl.subscriber.base.catalogue import Destination
from tranrepl.subscriber.base.column_steps import (
    AddedColumn,
    CheckedColumn,
    ColumnStep,
    DroppedColumn,
    GeneratedColumn,
    NullableColumn,
    RenamedColumn,
    RetypedColumn,
    TableColumn,
)
from tranrepl.subscriber.base.database import SqlDatabase
from tranrepl.subscriber.base.label_checks import changed_check, checked_columns, dropped_check
from tranrepl.subscriber.value_conversion import UnfitValueError, conversion


@dataclass(frozen=True, slots=True)
class RowUpdate:
    """All rows get another value in a column, in the Publisher's text."""

    column: str
    value: str | None


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """What is done to the columns, in order, and then to the rows. `notes` say what is left alone."""

    steps: tuple[ColumnStep, ...] = ()
    updates: tuple[RowUpdate, ...] = ()
    notes: tuple[str, ...] = ()
    at: str = ""
    """The table, as messages name it."""

    @property
    def in_words(self) -> list[str]:
        """Return what is done and what is left alone, in words."""
        return [*(f"{self.at}: {it.in_words()}" for it in self.steps), *self.notes]


def table_columns(database: SqlDatabase, dialect: sa.Dialect, found: Destination) -> tuple[TableColumn, ...]:
    """Return a table's columns in order, as a plan is made for them."""
    return tuple(
        TableColumn(name, database.described_type(it["type"], dialect).spelling, it["nullable"])
        for name, it in found.columns.items()
    )


def reload_reason(change: SchemaChange, old: RegisteredArticle) -> str | None:
    """Return why the log does not say which values the rows have after the change, in a database that keeps
    PostgreSQL's own types as text; None where it does."""
    columns = {it.name: it for it in old.columns}
    for it in change.columns:
        known = columns.get(it.column)
        if it.action is ColumnAction.RENAME and known is not None:
            columns[it.new_name or ""] = columns.pop(it.column)
        elif it.action is ColumnAction.RETYPE and known is not None and not _same_text(known.type_name, it.type_name):
            return f"column {it.column} changed from {known.type_name} to {it.type_name}, which is written otherwise"
    return None


def has_constant_default(change: ColumnChange) -> bool:
    """Return whether a column that is added has a default that is a constant: the value that rows of before have."""
    value = change.existing_value
    if change.action is not ColumnAction.ADD or change.default is None or value is None:
        return False
    constant = constant_text(change.default)
    return constant is not None and _same_value(constant, value, source_type(change.type_name or "").family)


def _same_value(constant: str, value: str, family: Family) -> bool:
    """Return whether a constant is written for this value: a type may write it otherwise."""
    try:
        match family:
            case Family.NUMERIC | Family.REAL | Family.DOUBLE:
                return Decimal(constant) == Decimal(value)
            case Family.TIMESTAMP | Family.TIMESTAMP_WITH_ZONE:
                return datetime.fromisoformat(constant) == datetime.fromisoformat(value)
            case Family.CHARACTER:
                return constant.rstrip(" ") == value.rstrip(" ")
    except (ArithmeticError, ValueError, TypeError):
        pass
    return constant == value


def _same_text(before: str, after: str | None) -> bool:
    """Return whether a value is written alike in both types, where the one becomes the other without a rewrite."""
    if after is None:
        return False
    one, other = source_type(before), source_type(after)
    if one.family is Family.OTHER or other.family is Family.OTHER:
        return _without_digits(before) == _without_digits(after)
    return one.family is other.family


def _without_digits(type_name: str) -> str:
    return re.sub(r"\(\d+(,-?\d+)?\)", "", type_name)


class ColumnTypes(Protocol):
    """The types that a database's columns get for the Publisher's."""

    @property
    def like_publisher(self) -> bool:
        """They are the Publisher's: a column gets another one where it stands, and may be generated as there."""
        ...

    def made(self, type_name: str, collation: str | None, *, indexed: bool) -> TypeEngine[Any]:
        """Return the type that setup gives a column of this type at the Publisher."""
        ...

    def spelled(self, made: TypeEngine[Any]) -> str: ...

    def value(self, change: ColumnChange, made: TypeEngine[Any]) -> tuple[Any, TypeEngine[Any]]:
        """Return what rows that are there have in a column that is added, and the type that it is bound as. Raises
        UnfitValueError where the column does not hold it."""
        ...

    def constant(self, value: Any, bind: TypeEngine[Any]) -> sa.ColumnElement[Any] | None:
        """Return a value as a constant of DDL; None where nobody knows how it is written."""
        ...


@dataclass(frozen=True, slots=True)
class SqlColumnTypes:
    """Those of a database that has types of its own."""

    database: SqlDatabase
    dialect: sa.Dialect
    like_publisher = False

    def made(self, type_name: str, collation: str | None, *, indexed: bool) -> TypeEngine[Any]:
        del collation
        return self.database.type_named(type_name, indexed=indexed)

    def spelled(self, made: TypeEngine[Any]) -> str:
        return self.database.described_type(made, self.dialect).spelling

    def value(self, change: ColumnChange, made: TypeEngine[Any]) -> tuple[Any, TypeEngine[Any]]:
        described = self.database.described_type(made, self.dialect)
        converts = conversion(source_type(change.type_name or ""), described, self.database.binding)
        text = change.existing_value
        return None if text is None else converts.convert(text), converts.bind

    def constant(self, value: Any, bind: TypeEngine[Any]) -> sa.ColumnElement[Any] | None:
        return self.database.constant(value, bind)


def column_plan(
    types: ColumnTypes,
    change: SchemaChange,
    old: RegisteredArticle,
    new: RegisteredArticle,
    before: Sequence[TableColumn],
    where: str,
) -> ColumnPlan:
    """Return what the change leaves to do at a table whose columns were `before`.

    Raises ConfigurationError where the table has columns that the change does not fit.
    """
    columns, at = {it.name: it for it in before}, f"{where}: table {new.destination}"
    making = _Plan(types, old, new, at, columns, rows_unknown=change.rows_unknown is not None)
    for number, it in enumerate(change.columns):
        making.add(it, change.columns[number + 1 :])
    return ColumnPlan(tuple(making.steps), tuple(making.updates), tuple(making.notes), making.at)


@dataclass(slots=True)
class _Plan:
    column_types: ColumnTypes
    old: RegisteredArticle
    new: RegisteredArticle
    at: str
    columns: dict[str, TableColumn]
    """Those of the table, as they are when the steps so far are done."""
    rows_unknown: bool
    """The article's rows are copied again."""
    steps: list[ColumnStep] = field(default_factory=list)
    updates: list[RowUpdate] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    types: dict[str, str] = field(default_factory=dict)
    """The Publisher's types of the published columns, likewise."""
    published: dict[str, PublishedColumn | None] = field(default_factory=dict)
    """The published columns as they will be, by the names that they have when the steps so far are done."""

    def __post_init__(self) -> None:
        self.types = {it.name: it.type_name for it in self.old.columns}
        kept = {it.ordinal: it for it in self.new.columns}
        self.published = {it.name: kept.get(it.ordinal, it) for it in self.old.columns}

    def add(self, change: ColumnChange, later: Sequence[ColumnChange]) -> None:
        """Add what the change does; `later` follow it."""
        match change.action:
            case ColumnAction.ADD:
                last_name = _last_name(change.column, later)
                self.published[change.column] = next((it for it in self.new.columns if it.name == last_name), None)
                self._add(change)
            case ColumnAction.DROP:
                self._drop(change)
            case ColumnAction.RENAME:
                self._rename(change, change.new_name or "")
            case ColumnAction.RETYPE:
                self._retype(change)
            case ColumnAction.DROP_NOT_NULL:
                self._drop_not_null(change)

    def _add(self, change: ColumnChange) -> None:
        name = change.column
        found, generated = self.columns.get(name), change.generation_expression
        if generated is not None and not self.column_types.like_publisher:
            self.notes.append(f"{self.at}: generated column {name} was not added")
        elif found is not None:
            self._keep(found, change)
        elif generated is not None:
            made = self._made(change)
            self.steps.append(GeneratedColumn(name, made, self._spelled(made), generated))
            self.columns[name] = TableColumn(name, self._spelled(made), nullable=True)
        else:
            added = self._added(change)
            self.steps += [added, *self._new_checks(name)]
            self.columns[name] = TableColumn(name, added.spelling, nullable=not added.not_null)
        self.types[name] = change.type_name or ""

    def _keep(self, found: TableColumn, change: ColumnChange) -> None:
        """Keep a column that somebody has added already, or a job that was killed. Raises ConfigurationError where its
        type is another one than setup gives, which could hold the values."""
        made = self._made(change)
        if self._made_by_setup(found, change.type_name or "") is None and self._holds_value(change, made):
            raise ConfigurationError(
                f"{self.at}: column {found.name} is to be added, of type {change.type_name}, and there is a column "
                f"{found.name} of type {found.type_name}",
                remedy=f"rename or drop column {found.name} of the destination, or give it type {self._spelled(made)}; "
                "then deliver again",
                article=str(self.new.source),
            )
        if not self.column_types.like_publisher:
            # Which values the rows were given is not known.
            self.updates.append(RowUpdate(found.name, change.existing_value))

    def _holds_value(self, change: ColumnChange, made: TypeEngine[Any]) -> bool:
        """Return whether the column that setup would make holds the value; where not, one of another type is asked
        for."""
        try:
            self.column_types.value(change, made)
        except UnfitValueError:
            return False
        return True

    def _added(self, change: ColumnChange) -> AddedColumn:
        """Return the column as setup would make it. Raises DataError where it does not hold the value."""
        made = self._made(change)
        try:
            value, bind = self.column_types.value(change, made)
        except UnfitValueError as error:
            raise DataError(
                f"{self.at}: column {change.column}, which is to be added: {error}",
                number=VALUE_DOES_NOT_FIT,
                remedy="add the column to the table by hand, of a type that holds the value",
                article=str(self.new.source),
            ) from error
        default = self.column_types.constant(value, bind) if has_constant_default(change) else None
        not_null = change.not_null and default is not None
        return AddedColumn(change.column, made, self._spelled(made), bind, value, default, not_null)

    def _drop(self, change: ColumnChange) -> None:
        self.types.pop(change.column, None)
        self.published.pop(change.column, None)
        self.updates = [it for it in self.updates if it.column != change.column]
        if self.columns.pop(change.column, None) is not None:
            self.steps += [*self._lost_checks(change.column), DroppedColumn(change.column)]

    def _rename(self, change: ColumnChange, new_name: str) -> None:
        name = change.column
        self.types = {new_name if it == name else it: type_name for it, type_name in self.types.items()}
        self.published = {new_name if it == name else it: column for it, column in self.published.items()}
        if name not in self.columns and (new_name in self.columns or change.generation_expression is not None):
            return
        self._require(name)
        if new_name in self.columns:
            raise ConfigurationError(
                f"{self.at}: column {name} is to be renamed to {new_name}, and there is a column {new_name}",
                remedy=f"drop one of them at the Subscriber, the one that is not {self.new.source}'s",
                article=str(self.new.source),
            )
        # Its check has the name of before.
        self.steps += [*self._lost_checks(name), RenamedColumn(name, new_name)]
        self.updates = [replace(it, column=new_name) if it.column == name else it for it in self.updates]
        kept = ((new_name if it.name == name else it.name, it) for it in self.columns.values())
        self.columns = {it: replace(column, name=it) for it, column in kept}

    def _drop_not_null(self, change: ColumnChange) -> None:
        column = self._require(change.column)
        if not column.nullable:
            self.steps.append(NullableColumn(change.column))
            self.columns[change.column] = replace(column, nullable=True)

    def _retype(self, change: ColumnChange) -> None:
        column = self._require(change.column)
        published = self.types.get(change.column) or ""
        before = self._made_by_setup(column, published)
        made = self._made(change)
        self.types[change.column] = change.type_name or ""
        check = changed_check(self._table, change.column, self.old.source_definition, self.new.source_definition)
        if check is not None:
            self.steps.append(check)
            if check.texts is not None:
                # Its values are written as before, and a type that somebody chose stays.
                return
        if self.column_types.like_publisher and self._spelled(made) != column.type_name:
            self.steps.append(RetypedColumn(change.column, made, self._spelled(made)))
            self.columns[change.column] = replace(column, type_name=self._spelled(made))
            return
        if before is None or self._spelled(made) == column.type_name:
            return
        of_key, shorter = self._is_of_key(change.column), _is_shorter(made, before)
        if shorter and (of_key or not self.rows_unknown):
            return
        if not of_key and (shorter or not _same_text(published, change.type_name)):
            # Its values are to be copied again: as they are, they may not be values of the other type.
            self.steps += [DroppedColumn(change.column), self._added(change)]
            column = replace(column, nullable=True)
        else:
            self.steps.append(RetypedColumn(change.column, made, self._spelled(made)))
        self.columns[change.column] = replace(column, type_name=self._spelled(made))

    @property
    def _table(self) -> str:
        return self.new.destination.table

    def _new_checks(self, name: str) -> list[CheckedColumn]:
        found = checked_columns(self.new.source_definition, self._table).get(name)
        return [] if found is None else [found]

    def _lost_checks(self, name: str) -> list[CheckedColumn]:
        lost = dropped_check(self._table, name, self.old.source_definition)
        return [] if lost is None else [lost]

    def _require(self, name: str) -> TableColumn:
        if name not in self.columns:
            raise ConfigurationError(
                f"{self.at} has no column {name}, which is to be changed",
                remedy="add it to the table, with the Publisher's values",
                article=str(self.new.source),
            )
        return self.columns[name]

    def _is_of_key(self, name: str) -> bool:
        published = self.published.get(name)
        return published is not None and published.key_ordinal is not None

    def _made(self, change: ColumnChange) -> TypeEngine[Any]:
        """Return the type that setup gives a column of the change's type at the Publisher."""
        published = self.published.get(change.column)
        indexed = published is not None and (published.key_ordinal is not None or _is_unique(self.new, published))
        return self.column_types.made(change.type_name or "", change.collation, indexed=indexed)

    def _made_by_setup(self, column: TableColumn, type_name: str) -> TypeEngine[Any] | None:
        """Return the column's type where setup gives it to one of this type at the Publisher; None where somebody chose
        it. A unique index may have been made since, or not be there any more."""
        made = (self.column_types.made(type_name, None, indexed=indexed) for indexed in (False, True))
        return next((it for it in made if self._spelled(it) == column.type_name), None)

    def _spelled(self, made: TypeEngine[Any]) -> str:
        return self.column_types.spelled(made)


def _last_name(column: str, changes: Iterable[ColumnChange]) -> str | None:
    """Return the name that a column has after the changes; None where one of them drops it."""
    for it in changes:
        if it.column == column and it.action is ColumnAction.DROP:
            return None
        if it.column == column and it.action is ColumnAction.RENAME:
            column = it.new_name or ""
    return column


def _is_unique(article: RegisteredArticle, column: PublishedColumn) -> bool:
    """Return whether a unique index has the column. What a condition or an expression of one reads is not known, so
    that an article says of each column that it may be one of them."""
    return any(column.ordinal in it.columns for it in article.source_definition.unique)


def _is_shorter(made: TypeEngine[Any], before: TypeEngine[Any]) -> bool:
    """Return whether a column would lose room, in which the table may have longer values: texts without a length have
    as much in a key as an index has room for, and those with one their own; bytes likewise. Of a number, no text loses
    any."""
    new, old = (getattr(it, "length", None) for it in (made, before))
    if not isinstance(new, int) or made.python_type is not before.python_type:
        return False
    return old is None or new < old
