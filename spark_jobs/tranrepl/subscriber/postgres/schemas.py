"""Schemas of a PostgreSQL Subscriber for tables that are made there."""

from __future__ import annotations

from psycopg import sql

from tranrepl.postgres.rights import grants_on_database, lacking_right, our_role
from tranrepl.postgres.session import Session

_THERE = "SELECT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = %s)"


def create_missing_schema(session: Session, where: str, name: str) -> list[str]:
    """Create a schema if there is none of that name, and return what ran, as SQL. Raises MissingRightError."""
    # IF NOT EXISTS asks for CREATE on the database also where the schema is there.
    if session.execute(_THERE, [name]).fetchone() == (True,):
        return []
    if grants := grants_on_database(session, "CREATE"):
        raise lacking_right(where, f"role {our_role(session)} may not create schema {name}", grants)
    statement = sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(name))
    session.execute(statement)
    return [statement.as_string(None)]
