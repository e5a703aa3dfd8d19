"""What a database that SQLAlchemy reaches has of its own to compare its tables (`model.whole_table`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import types

from tranrepl.model.comparison import Form
from tranrepl.model.source_types import Family
from tranrepl.model.whole_table import ComparedColumn, WholeTable
from tranrepl.subscriber.base.identifiers import Identifiers
from tranrepl.subscriber.base.target import SqlColumn, SqlTarget
from tranrepl.subscriber.value_conversion import ColumnType


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
