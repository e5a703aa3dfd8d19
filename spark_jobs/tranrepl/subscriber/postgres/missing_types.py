"""Types of columns that a schema change adds or retypes, where the Subscriber does not have them."""

from __future__ import annotations

from collections.abc import Iterator

from psycopg import sql

from tranrepl.errors import ConfigurationError
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.names import name_parts
from tranrepl.model.schema_change import ColumnAction, SchemaChange
from tranrepl.model.table_definition import DefinedType
from tranrepl.postgres.composed_sql import type_sql
from tranrepl.postgres.session import Session

_THERE = "SELECT pg_catalog.to_regtype(%s) IS NOT NULL"
_SCHEMA_THERE = "SELECT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = %s)"


def require_types(session: Session, where: str, change: SchemaChange, new: RegisteredArticle) -> None:
    """Raise ConfigurationError where a column is to have a type that is not there, with the statements that make it."""
    for part in change.columns:
        chosen = part.action in (ColumnAction.ADD, ColumnAction.RETYPE) and part.generation_expression is None
        missing = list(_missing(session, new, part.type_name)) if chosen else []
        if missing:
            raise ConfigurationError(
                f"article {change.source}: {where}: column {part.column} is to have type {part.type_name}, and there "
                f"is no type {', '.join(it.name for it in missing)}",
                remedy=f"{'; '.join(_way_on(session, it) for it in missing)}; then `tranrepl run FILE`. Where the type "
                "is there by another name, rename it instead (ALTER TYPE ... RENAME TO ..., SET SCHEMA ...)",
                article=str(change.source),
            )


def _missing(session: Session, article: RegisteredArticle, type_name: str | None) -> Iterator[DefinedType]:
    """Yield the types that a column's type is made of and that are not there, enumerated ones first."""
    columns = () if article.definition is None else article.definition.columns
    types = next((it.types for it in columns if it.type_name == type_name), None) or ()
    for it in sorted(types, key=lambda of: of.labels is None):
        # An array comes with its type.
        if not it.name.endswith("[]") and session.execute(_THERE, [it.name]).fetchone() != (True,):
            yield it


def _way_on(session: Session, missing: DefinedType) -> str:
    if missing.labels is None:
        return (
            f"create type {missing.name} at the Subscriber as it is at the Publisher, or the extension that it "
            "belongs to"
        )
    labels = sql.SQL(", ").join(map(sql.Literal, missing.labels))
    statements = [sql.SQL("CREATE TYPE {} AS ENUM ({})").format(type_sql(missing.name), labels)]
    schema = name_parts(missing.name)[0]
    if session.execute(_SCHEMA_THERE, [schema]).fetchone() != (True,):
        statements.insert(0, sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))
    return f"run at the Subscriber: {'; '.join(it.as_string(None) for it in statements)}"
