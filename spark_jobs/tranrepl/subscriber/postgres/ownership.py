"""Whose the destination tables of a PostgreSQL Subscriber are: only an owner may alter a table, nobody can grant it."""

from __future__ import annotations

from psycopg import sql

from tranrepl.error_numbers import Codes
from tranrepl.errors import ConfigurationError
from tranrepl.model.names import TableName
from tranrepl.postgres.catalogue import qualified
from tranrepl.postgres.rights import INSUFFICIENT_PRIVILEGE, our_role
from tranrepl.postgres.session import Session

_OWNER = """
SELECT pg_catalog.pg_get_userbyid(c.relowner)
  FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = %s AND c.relname = %s AND NOT pg_catalog.pg_has_role(c.relowner, 'USAGE')
"""


def not_owned(session: Session, where: str, table: TableName) -> ConfigurationError | None:
    """Return that our role may not alter a table, with what lets it; None where it may, or the table is missing."""
    name = qualified(table).as_string(session)
    row = session.execute(_OWNER, [table.schema, table.table]).fetchone()
    if row is None:
        return None
    owner, role = (sql.Identifier(it).as_string(session) for it in (row[0], our_role(session)))
    return ConfigurationError(
        f"{where}: table {table} belongs to role {row[0]}: role {our_role(session)} may not alter it, which the "
        "Publisher's schema changes need",
        **Codes.POSTGRES.value.numbered(INSUFFICIENT_PRIVILEGE),
        remedy=f"let the owner, or a superuser, run: ALTER TABLE {name} OWNER TO {role}; or: GRANT {owner} TO {role};",
    )
