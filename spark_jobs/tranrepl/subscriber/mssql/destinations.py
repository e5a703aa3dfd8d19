"""SQL Server's tables as deliveries see them: what its catalogue says, in SQLAlchemy's types."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import types
from sqlalchemy.dialects import mssql
from sqlalchemy.dialects.mssql.base import ischema_names
from sqlalchemy.engine.interfaces import ReflectedColumn
from sqlalchemy.types import TypeEngine

from tranrepl.subscriber.base.catalogue import (
    Destination,
    Place,
    PrimaryKey,
    ReferringColumns,
    UniqueColumns,
)
from tranrepl.subscriber.mssql.catalogue import (
    CatalogueColumn,
    CatalogueTable,
    find_foreign_keys,
    find_tables,
)


class SqlServerCatalogue:
    """Answers about all tables by one question of a kind."""

    def __init__(self, session: sa.Connection) -> None:
        self._session = session

    def destinations(self, places: Sequence[Place]) -> Mapping[Place, Destination]:
        return {place: _destination(it) for place, it in find_tables(self._session, places).items()}

    def unique_keys(self, places: Sequence[Place]) -> Mapping[Place, Sequence[UniqueColumns]]:
        found = find_tables(self._session, places)
        return {place: [index.columns for index in it.unique_indexes] for place, it in found.items()}

    def primary_key(self, place: Place) -> PrimaryKey | None:
        indexes = [it for table in find_tables(self._session, [place]).values() for it in table.unique_indexes]
        return next((PrimaryKey(it.name, tuple(it.columns)) for it in indexes if it.primary_key), None)

    def foreign_keys(self, places: Sequence[Place]) -> Mapping[Place, Sequence[ReferringColumns]]:
        found = find_tables(self._session, places)
        asked = {it.place: place for place, it in found.items()}
        keys = find_foreign_keys(self._session, found.values())
        return {
            place: [
                ReferringColumns(it.columns, asked.get(it.referenced, it.referenced), it.referenced_columns, it.enabled)
                for it in keys
                if it.table == table.place
            ]
            for place, table in found.items()
        }


def _destination(table: CatalogueTable) -> Destination:
    return Destination(
        {it.name: _reflected(it) for it in table.columns},
        tuple(frozenset(it.columns) for it in table.unique_indexes if not it.filtered),
        table.name_case,
    )


def _reflected(column: CatalogueColumn) -> ReflectedColumn:
    reflected: ReflectedColumn = {
        "name": column.name,
        "type": column_type(column),
        "nullable": column.nullable,
        "default": column.default,
        "autoincrement": column.identity is not None,
    }
    if column.is_filled_by_the_server:
        reflected["computed"] = {"sqltext": column.computed or column.type_name}
    if column.identity is not None:
        identity: Any = {"always": True}
        reflected["identity"] = identity
    return reflected


def column_type(column: CatalogueColumn) -> TypeEngine[Any]:
    """Return the column's type with its length, digits and collation; NullType for one that SQLAlchemy does not
    know."""
    if column.type_name in _MADE:
        return _MADE[column.type_name](column)
    plain: Callable[[], TypeEngine[Any]] | None = ischema_names.get(column.type_name)
    return types.NullType() if plain is None else plain()


def _text(kind: Callable[..., TypeEngine[Any]], bytes_each: int) -> Callable[[CatalogueColumn], TypeEngine[Any]]:
    return lambda it: _in_code_page(
        kind(None if it.max_length < 0 else it.max_length // bytes_each, collation=it.collation), it
    )


def _long_text(kind: Callable[..., TypeEngine[Any]]) -> Callable[[CatalogueColumn], TypeEngine[Any]]:
    return lambda it: _in_code_page(kind(collation=it.collation), it)


def _in_code_page(kind: Any, column: CatalogueColumn) -> TypeEngine[Any]:
    """Return the type with its code page, for `column_types`."""
    kind.code_page = column.code_page
    made: TypeEngine[Any] = kind
    return made


def _timed(kind: Callable[..., TypeEngine[Any]]) -> Callable[[CatalogueColumn], TypeEngine[Any]]:
    return lambda it: kind(it.scale)


def _decimal(column: CatalogueColumn) -> TypeEngine[Any]:
    return sa.DECIMAL(column.precision, column.scale)


def _binary(column: CatalogueColumn) -> TypeEngine[Any]:
    # Without a length it is `varbinary(max)`.
    varbinary: Callable[..., TypeEngine[Any]] = mssql.VARBINARY
    return varbinary("max" if column.max_length < 0 else column.max_length)


_MADE: Mapping[str, Callable[[CatalogueColumn], TypeEngine[Any]]] = {
    "nvarchar": _text(mssql.NVARCHAR, 2),
    "nchar": _text(mssql.NCHAR, 2),
    "varchar": _text(mssql.VARCHAR, 1),
    "char": _text(mssql.CHAR, 1),
    "ntext": _long_text(mssql.NTEXT),
    "text": _long_text(mssql.TEXT),
    "binary": lambda it: mssql.BINARY(it.max_length),
    "varbinary": _binary,
    "decimal": _decimal,
    "numeric": _decimal,
    "float": lambda it: mssql.FLOAT(it.precision),
    "datetime2": _timed(mssql.DATETIME2),
    "datetimeoffset": _timed(mssql.DATETIMEOFFSET),
    "time": _timed(mssql.TIME),
}
