"""Columns of a SQL Server table. DDL is part of the transaction; each statement is a batch of its own, as one that
names a column is compiled before the column is there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mssql
from sqlalchemy.types import TypeEngine

from tranrepl.subscriber.base.catalogue import Place, respelled
from tranrepl.subscriber.base.column_statements import AlembicColumns
from tranrepl.subscriber.base.column_steps import RetypedColumn
from tranrepl.subscriber.base.identifiers import always_quoted
from tranrepl.subscriber.capabilities import NameCase
from tranrepl.subscriber.mssql.catalogue import CatalogueColumn, find_foreign_keys, find_tables
from tranrepl.subscriber.mssql.destinations import SqlServerCatalogue, column_type
from tranrepl.subscriber.mssql.sql_text import qualified, quoted

_dialect: Callable[[], sa.Dialect] = mssql.dialect
_CHECK = sa.text("select 1 from sys.check_constraints where parent_object_id = object_id(:table) and name = :name")
_RENAME = sa.text("exec sp_rename :old, :new, N'COLUMN'")


class SqlServerColumns(AlembicColumns):
    """A type is always declared again with NULL or NOT NULL: what it does not say, it would change."""

    def drop(self, name: str) -> None:
        """Drop the column, and before it what depends on it without having been asked for by name: its default's
        constraint, and CHECK constraints of it."""
        self.operations.drop_column(
            self.table, always_quoted(name), schema=self.schema, mssql_drop_default=True, mssql_drop_check=True
        )

    def rename(self, name: str, new_name: str) -> None:
        self.session.execute(_RENAME, {"old": f"{qualified(*self.place)}.{quoted(name)}", "new": new_name})

    def make_nullable(self, name: str) -> None:
        self._declare(name, column_type(self._found(name)), nullable=True)

    def retype(self, step: RetypedColumn) -> None:
        self._declare(step.name, step.type, nullable=self._found(step.name).nullable)

    def has_check(self, name: str) -> bool:
        return self.session.scalar(_CHECK, {"table": qualified(*self.place), "name": name}) is not None

    def can_replace_key(self) -> bool:
        """Return whether no foreign key refers to the table: none would let the old key go."""
        tables = find_tables(self.session, [self.place])
        places = {it.place for it in tables.values()}
        return all(it.referenced not in places for it in find_foreign_keys(self.session, tables.values()))

    def replace_key(self, columns: Sequence[str], retyped: Sequence[RetypedColumn]) -> None:
        key = SqlServerCatalogue(self.session).primary_key(self.place)
        if key is not None and key.name is not None:
            self.operations.drop_constraint(always_quoted(key.name), self.table, schema=self.schema)
        types = {it.name: it.type for it in retyped}
        for name in columns:
            found = self._found(name)
            if name in types or found.nullable:
                self._declare(name, types.get(name, column_type(found)), nullable=False)
        names: list[str] = [always_quoted(it) for it in columns]
        self.operations.create_primary_key(None, self.table, names, schema=self.schema)

    def _declare(self, name: str, declared: TypeEngine[Any], *, nullable: bool) -> None:
        statement = declaration(self.place, name, declared, nullable=nullable)
        self.session.exec_driver_sql(statement, execution_options={"no_parameters": True})

    def _found(self, name: str) -> CatalogueColumn:
        (table,) = find_tables(self.session, [self.place]).values()
        by_name = {it.name: it for it in table.columns}
        spelled = respelled(by_name, [name], NameCase.INSENSITIVE)
        return by_name[next(iter(spelled), name)]


def declaration(place: Place, name: str, declared: TypeEngine[Any], *, nullable: bool) -> str:
    """Return the statement that declares a column again. A text without COLLATE would get the database's collation."""
    spelled = declared.compile(dialect=_dialect())
    collation = getattr(declared, "collation", None)
    collated = f" COLLATE {collation}" if collation and " COLLATE " not in spelled else ""
    null = "NULL" if nullable else "NOT NULL"
    return f"ALTER TABLE {qualified(*place)} ALTER COLUMN {quoted(name)} {spelled}{collated} {null}"
