"""The types of columns at a PostgreSQL Subscriber, which are the Publisher's, and what SQLAlchemy has for them."""

from __future__ import annotations

import re
from typing import Any

import sqlalchemy as sa
from psycopg import sql
from sqlalchemy import types
from sqlalchemy.types import TypeEngine

from tranrepl.model.schema_change import ColumnChange
from tranrepl.model.source_types import Family, source_type
from tranrepl.postgres.composed_sql import name_sql, type_sql
from tranrepl.subscriber.value_conversion import PLAIN_TYPES, ColumnType

_MOMENTS = (Family.TIME, Family.TIMESTAMP, Family.TIMESTAMP_WITH_ZONE)
_FRACTION_DIGITS = re.compile(r"time\w*\((\d)")
_MOST_FRACTION_DIGITS = 6


class PublishersType(types.UserDefinedType[Any]):
    """A type by its name at the Publisher, which is its name here."""

    cache_ok = True

    def __init__(self, name: str, collation: str | None = None, base_name: str | None = None) -> None:
        """`base_name`: of the type under a domain, without its length."""
        self.name = name
        self.collation = collation
        self.base_name = base_name

    def composed(self) -> sql.Composable:
        made = type_sql(self.name)
        return made + sql.SQL(" COLLATE {}").format(name_sql(self.collation)) if self.collation else made

    def get_col_spec(self, **kw: Any) -> str:
        del kw
        return self.composed().as_string(None)

    def described(self) -> ColumnType:
        """Return the type as SQLAlchemy has it, or one of which nothing is known."""
        declared = source_type(self.name)
        if declared.family is Family.OTHER and self.base_name is not None:
            declared = source_type(self.base_name)
            if declared.family in (Family.NUMERIC, Family.TEXT, Family.CHARACTER, *_MOMENTS):
                return ColumnType(types.NullType(), self.name)
        digits = _FRACTION_DIGITS.search(declared.spelling)
        match declared.family:
            case Family.NUMERIC:
                made: TypeEngine[Any] = types.Numeric(declared.precision, declared.scale)
            case Family.TEXT | Family.CHARACTER:
                made = types.String(declared.length)
            case Family.BYTES:
                made = types.LargeBinary()
            case family:
                made = PLAIN_TYPES.get(family, types.NullType())
        return ColumnType(
            made,
            self.name,
            fraction_digits=int(digits[1]) if digits else _MOST_FRACTION_DIGITS,
            single_precision=declared.family is Family.REAL,
        )


class PublishersTypes:
    """The types of columns are the Publisher's."""

    like_publisher = True

    def made(self, type_name: str, collation: str | None, *, indexed: bool) -> PublishersType:
        del indexed
        return PublishersType(type_name, collation)

    def spelled(self, made: TypeEngine[Any]) -> str:
        return publishers(made).name

    def value(self, change: ColumnChange, made: TypeEngine[Any]) -> tuple[Any, TypeEngine[Any]]:
        del made
        return change.existing_value, sa.String()

    def constant(self, value: Any, bind: TypeEngine[Any]) -> sa.ColumnElement[Any]:
        return sa.literal(value, bind)


def publishers(made: TypeEngine[Any]) -> PublishersType:
    if not isinstance(made, PublishersType):
        raise TypeError(made)
    return made
