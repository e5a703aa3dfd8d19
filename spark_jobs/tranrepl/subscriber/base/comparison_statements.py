"""The statements that compare a table without moving its rows, where SQLAlchemy reaches it and reads it as a whole.

A row's number is the first eight bytes of the MD5 of its columns' texts, a key's that of its own; NULL is `~`, and a
text that may hold `|` or `~` stands for itself as its MD5.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import types

from tranrepl.model.comparison import WHOLE, Form, Pages
from tranrepl.model.source_types import Family
from tranrepl.subscriber.base.identifiers import Identifiers
from tranrepl.subscriber.base.target import SqlColumn, SqlTarget
from tranrepl.subscriber.value_conversion import ColumnType


@dataclass(frozen=True, slots=True)
class ComparedColumn:
    """`text` is the form in which the value is compared, `shown` what people and statements know it by."""

    text: str
    shown: str
    plain: bool = False
    """`text` has neither | nor ~, and only ASCII."""


@dataclass(frozen=True, slots=True)
class WholeTable(ABC):
    """One end of a comparison. `table` is quoted; `key` are places among the columns."""

    table: str
    columns: tuple[ComparedColumn, ...]
    key: tuple[int, ...]

    @abstractmethod
    def digest(self, text: str) -> str:
        """Return the MD5, in hexadecimal, of a text in UTF-8."""

    @abstractmethod
    def number(self, texts: Sequence[str]) -> str:
        """Return the signed number of 64 bits of texts with | between."""

    @abstractmethod
    def listed(self, numbers: Sequence[int]) -> str:
        """Return what stands in the parentheses of IN."""

    @abstractmethod
    def checksum(self, pages: Pages = WHOLE) -> str:
        """Return the query of the number of rows, and the exclusive or of their numbers."""

    @abstractmethod
    def buckets(self, buckets: int, pages: Pages = WHOLE) -> str:
        """Return the query of the same for each bucket of keys."""

    def count(self, pages: Pages = WHOLE) -> str:
        del pages
        return f"SELECT COUNT(*), 0 FROM {self.table}"

    def numbers(self, buckets: int, chosen: Sequence[int]) -> str:
        key = self.key_number()
        return (
            f"SELECT {key}, {self.row_number()} FROM {self.table} "
            f"WHERE {key} & {buckets - 1} IN ({self.listed(chosen)})"
        )

    def rows(self, keys: Sequence[int]) -> str:
        key = self.key_number()
        shown = [self.columns[at].shown for at in self.key]
        digests = [self.digest(column.text) for column in self.columns]
        selected = ", ".join([key, *shown, *digests])
        return f"SELECT {selected} FROM {self.table} WHERE {key} IN ({self.listed(keys)})"

    def key_number(self) -> str:
        return self.number([self._marked(self.columns[at]) for at in self.key])

    def row_number(self) -> str:
        return self.number([self._marked(column) for column in self.columns])

    def _marked(self, column: ComparedColumn) -> str:
        return f"COALESCE({column.text if column.plain else self.digest(column.text)}, '~')"


@dataclass(frozen=True, slots=True)
class ComparisonWays:
    """What a database has of its own."""

    hold: Callable[[sa.Connection], None]
    """Begin a transaction that sees the state of now, and nothing later."""
    form: Callable[[Family, ColumnType], Form]
    """The form in which a column at the Subscriber is compared with a published one."""
    compared: Callable[[SqlColumn, Form, str], ComparedColumn]
    """A column in a form; its name is quoted."""
    table: Callable[[str, tuple[ComparedColumn, ...], tuple[int, ...]], WholeTable]
    literal: Callable[[Any], str]
    """Write a value as the database's constant."""
    begin: str
    """The statement that begins a transaction, for a person to run."""

    def side(self, found: SqlTarget, forms: Sequence[Form], names: Identifiers) -> WholeTable:
        columns = tuple(
            self.compared(it, form, names.quoted(it.catalogue_name))
            for it, form in zip(found.columns, forms, strict=True)
        )
        return self.table(names.qualified(found.schema, found.name), columns, found.article.key_positions)


class WholeNumbersTable(WholeTable):
    """Where numbers of 64 bits have bitwise operators."""

    @abstractmethod
    def exclusive_or(self, number: str) -> str:
        """Return the exclusive or of a number over rows; 0 over none."""

    def checksum(self, pages: Pages = WHOLE) -> str:
        del pages
        return f"SELECT COUNT(*), {self.exclusive_or(self.row_number())} FROM {self.table}"

    def buckets(self, buckets: int, pages: Pages = WHOLE) -> str:
        del pages
        return (
            f"SELECT {self.key_number()} & {buckets - 1} AS bucket, COUNT(*), {self.exclusive_or(self.row_number())} "
            f"FROM {self.table} GROUP BY bucket"
        )

    def listed(self, numbers: Sequence[int]) -> str:
        return ", ".join(map(str, numbers))


def form_of(family: Family, column: ColumnType) -> Form:
    """Return the form in which a column of this type at the Subscriber is compared with a published one."""
    if isinstance(column.type, types.Float):
        return Form.FLOATING
    if is_binary(column.type):
        return Form.HEXADECIMAL
    return counted_form(column.type) or (Form.CHARACTER if family is Family.CHARACTER else Form.OUTPUT)


def is_binary(kind: types.TypeEngine[Any]) -> bool:
    return isinstance(kind, types.LargeBinary | types._Binary)


def counted_form(kind: types.TypeEngine[Any]) -> Form | None:
    """Return the form in which exact numbers, dates and times are compared; None for every other type."""
    return next((form for type_, form in _FORMS if isinstance(kind, type_)), None)


_FORMS: tuple[tuple[type[Any], Form], ...] = (
    (types.Integer, Form.NUMBER),
    (types.Boolean, Form.NUMBER),
    (types.Numeric, Form.NUMBER),
    (types.DateTime, Form.TIMESTAMP),
    (types.Date, Form.DATE),
    (types.Time, Form.TIME),
)
