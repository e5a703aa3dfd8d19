"""Types that columns need and a PostgreSQL Subscriber lacks: setup creates enumerated ones, others need a person."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from psycopg import sql

from tranrepl.model.names import name_parts
from tranrepl.model.table_definition import DefinedColumn, DefinedType
from tranrepl.postgres.composed_sql import type_sql
from tranrepl.postgres.session import Session
from tranrepl.subscriber.postgres.rights import create_missing_schema

_THERE = "SELECT pg_catalog.to_regtype(%s) IS NOT NULL"
_SCHEMA_THERE = "SELECT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = %s)"


def missing_types(session: Session, columns: Iterable[DefinedColumn]) -> list[DefinedType]:
    """Return the types that columns are made of and that are not there, each once, enumerated ones first."""
    types = {it.name: it for column in columns for it in column.types or ()}
    return [
        it
        for it in sorted(types.values(), key=lambda of: of.labels is None)
        # An array comes with its type.
        if not it.name.endswith("[]") and session.execute(_THERE, [it.name]).fetchone() != (True,)
    ]


def create_enumerated(session: Session, where: str, missing: DefinedType) -> Iterator[str]:
    """Create an enumerated type; yield what was done."""
    create_missing_schema(session, where, name_parts(missing.name)[0])
    session.execute(_created(missing))
    yield f"created type {missing.name} at {where}"


def way_on(session: Session, missing: DefinedType, statement: str | None = None) -> str:
    """Return how a person makes the type there. `statement`: the one of the Publisher's type, where it is known."""
    if missing.labels is not None:
        statement = _created(missing).as_string(None)
    if statement is None:
        return (
            f"create type {missing.name} at the Subscriber as it is at the Publisher, or the extension that it "
            "belongs to"
        )
    statements, schema = [statement], name_parts(missing.name)[0]
    if session.execute(_SCHEMA_THERE, [schema]).fetchone() != (True,):
        statements.insert(0, sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)).as_string(None))
    return f"run at the Subscriber: {'; '.join(statements)}"


def _created(missing: DefinedType) -> sql.Composed:
    labels = sql.SQL(", ").join(map(sql.Literal, missing.labels or ()))
    return sql.SQL("CREATE TYPE {} AS ENUM ({})").format(type_sql(missing.name), labels)
