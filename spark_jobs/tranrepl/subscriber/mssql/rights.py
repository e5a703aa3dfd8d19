"""What our login may not at a SQL Server Subscriber, before setup finds out. Asks, and tries nothing.

Source: "HAS_PERMS_BY_NAME"; it counts roles, and what one right implies of another. "CREATE TABLE", "CREATE PROCEDURE",
"CREATE SCHEMA", permissions: the right of that name in the database, and ALTER on the schema.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from tranrepl.error_numbers import PERMISSION_DENIED, Codes
from tranrepl.errors import MissingRightError
from tranrepl.settings.publication import Article
from tranrepl.subscriber.mssql.catalogue import find_tables
from tranrepl.subscriber.mssql.sql_text import SCHEMA, quoted
from tranrepl.subscriber.procedure_names import PREFIXES, generates

_ROWS = ("SELECT", "INSERT", "UPDATE", "DELETE")
_CREATE_TABLE, _CREATE_PROCEDURE, _CREATE_SCHEMA = "CREATE TABLE", "CREATE PROCEDURE", "CREATE SCHEMA"
_ALTER, _EXECUTE = "ALTER", "EXECUTE"

_USER = sa.text("select user_name()")
_SCHEMAS = sa.text("select name from sys.schemas where name in :names").bindparams(
    sa.bindparam("names", expanding=True)
)
_IN_DATABASE = sa.text("select has_perms_by_name(quotename(db_name()), 'DATABASE', :right)")
_IN_SCHEMA = sa.text("select has_perms_by_name(quotename(:schema), 'SCHEMA', :right)")


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Rights in the database, and by schema."""

    database: tuple[str, ...]
    schemas: Mapping[str, tuple[str, ...]]


def right_problems(
    session: sa.Connection, where: str, articles: Sequence[Article], model: Sequence[str]
) -> Iterator[MissingRightError]:
    """Yield the rights that setup lacks to create what is missing: the model's tables and the procedures in the schema
    dbo, and each article's table in its own. `model`: the names of the model's tables."""
    wanted = _wanted(session, articles, model)
    user = str(session.scalar(_USER))
    to = quoted(user)
    in_database = [it for it in wanted.database if _lacks(session, it)]
    grants = [f"GRANT {', '.join(in_database)} TO {to}"] if in_database else []
    for schema, rights in wanted.schemas.items():
        lacking = [it for it in rights if _lacks(session, it, schema)]
        if lacking:
            grants.append(f"GRANT {', '.join(lacking)} ON SCHEMA::{quoted(schema)} TO {to}")
    if grants:
        database = quoted(session.engine.url.database or "master")
        yield MissingRightError(
            f"{where}: user {user} may not create what setup creates",
            **Codes.SQL_SERVER.value.numbered(str(PERMISSION_DENIED)),
            remedy=f"let an administrator run in the database {database}:\n" + "\n".join(f"{it};" for it in grants),
        )


def _wanted(session: sa.Connection, articles: Sequence[Article], model: Sequence[str]) -> _Wanted:
    destinations = [(it.destination_table.schema, it.destination_table.table) for it in articles]
    of_model = [(SCHEMA, name) for name in model]
    found = find_tables(session, [*of_model, *destinations])
    schemas = list(dict.fromkeys(schema for schema, name in destinations if (schema, name) not in found))
    there = set(session.execute(_SCHEMAS, {"names": schemas}).scalars()) if schemas else set()
    database = [_CREATE_TABLE] if schemas else []
    if any(schema not in there for schema in schemas):
        database.append(_CREATE_SCHEMA)
    by_schema: dict[str, tuple[str, ...]] = {schema: (_ALTER, *_ROWS) for schema in schemas if schema in there}
    if any(it not in found for it in of_model):
        procedures = any(generates(article.propagation(it)) for article in articles for it in PREFIXES)
        database += [_CREATE_TABLE, *([_CREATE_PROCEDURE] if procedures else [])]
        by_schema[SCHEMA] = (_ALTER, *_ROWS, *([_EXECUTE] if procedures else []))
    return _Wanted(tuple(dict.fromkeys(database)), by_schema)


def _lacks(session: sa.Connection, right: str, schema: str | None = None) -> bool:
    """Return whether the login lacks the right; a server that does not say so is believed to have given it."""
    if schema is None:
        answer = session.scalar(_IN_DATABASE, {"right": right})
    else:
        answer = session.scalar(_IN_SCHEMA, {"right": right, "schema": schema})
    return bool(answer == 0)
