"""Whose the destination tables and generated procedures of a PostgreSQL Subscriber are: only an owner may alter them,
nobody can grant it."""

from __future__ import annotations

from psycopg import sql

from tranrepl.error_numbers import Codes
from tranrepl.errors import ConfigurationError
from tranrepl.model.names import TableName
from tranrepl.postgres.catalogue import qualified
from tranrepl.postgres.rights import INSUFFICIENT_PRIVILEGE, grants_on_schemas, grants_on_tables, our_role
from tranrepl.postgres.session import Session
from tranrepl.subscriber.postgres.database import has_table
from tranrepl.subscriber.postgres.procedures import OBJECTS, SCHEMA

LET_OWNER = "let the owner, or a superuser, run:"

_OWNER = """
SELECT pg_catalog.pg_get_userbyid(c.relowner),
       EXISTS (SELECT 1 FROM pg_catalog.pg_roles r
                WHERE r.rolsuper AND pg_catalog.pg_has_role(c.relowner, r.oid, 'MEMBER'))
  FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = %s AND c.relname = %s AND NOT pg_catalog.pg_has_role(c.relowner, 'USAGE')
"""


_PROCEDURES = sql.SQL(
    "SELECT p.oid::pg_catalog.regprocedure::text FROM pg_catalog.pg_proc p JOIN {} o ON o.object_name = p.proname "
    "WHERE p.pronamespace = %s::pg_catalog.regnamespace AND NOT pg_catalog.pg_has_role(p.proowner, 'USAGE') ORDER BY 1"
).format(OBJECTS)


def lets_procedures_follow(session: Session) -> list[str]:
    """Return the statements that let our role replace the generated procedures that are there, as the Publisher's
    schema changes need it."""
    if not has_table(session, OBJECTS):
        return []
    role = sql.Identifier(our_role(session)).as_string(session)
    model = TableName(SCHEMA, "msreplication_objects")
    rights = grants_on_tables(session, [model], "SELECT", "INSERT", "UPDATE", "DELETE")
    # Which procedures are generated is read there.
    found = (
        session.execute(_PROCEDURES, [SCHEMA]).fetchall() if not grants_on_tables(session, [model], "SELECT") else []
    )
    others = [f"ALTER PROCEDURE {it} OWNER TO {role}" for (it,) in found]
    return [*others, *grants_on_schemas(session, [SCHEMA], "CREATE"), *rights]


def not_owned(session: Session, where: str, table: TableName) -> ConfigurationError | None:
    """Return that our role may not alter a table, with what lets it; None where it may, or the table is missing."""
    name = qualified(table).as_string(session)
    row = session.execute(_OWNER, [table.schema, table.table]).fetchone()
    if row is None:
        return None
    owner, role = (sql.Identifier(it).as_string(session) for it in (row[0], our_role(session)))
    # Whoever is granted the role of a superuser is one.
    granting = "" if row[1] else f"; or: GRANT {owner} TO {role}"
    return ConfigurationError(
        f"{where}: table {table} belongs to role {row[0]}: role {our_role(session)} may not alter it, which the "
        "Publisher's schema changes need",
        **Codes.POSTGRES.value.numbered(INSUFFICIENT_PRIVILEGE),
        remedy=f"{LET_OWNER} ALTER TABLE {name} OWNER TO {role}{granting};",
    )
