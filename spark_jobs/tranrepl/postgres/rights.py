"""What our role may not at a PostgreSQL server, as the GRANT statements that would let it. Asks, and tries nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence

from psycopg import sql

from tranrepl.error_numbers import Codes
from tranrepl.errors import MissingRightError
from tranrepl.model.names import TableName
from tranrepl.postgres.catalogue import qualified
from tranrepl.postgres.session import Session

INSUFFICIENT_PRIVILEGE = "42501"

_LACKING_AT_TABLES = """
SELECT n.nspname, c.relname,
       ARRAY(SELECT wanted FROM unnest(%s::text[]) AS wanted
              WHERE NOT CASE WHEN wanted IN ('SELECT', 'INSERT', 'UPDATE')
                             THEN pg_catalog.has_any_column_privilege(c.oid, wanted)
                             ELSE pg_catalog.has_table_privilege(c.oid, wanted) END)
  FROM unnest(%s::text[], %s::text[]) AS asked(schema, name)
  JOIN pg_catalog.pg_namespace n ON n.nspname = asked.schema
  JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = asked.name
"""
_LACKING_AT_SCHEMA = """
SELECT wanted FROM unnest(%s::text[]) AS wanted, pg_catalog.pg_namespace n
 WHERE n.nspname = %s AND NOT pg_catalog.has_schema_privilege(n.oid, wanted)
"""
_LACKING_AT_DATABASE = """
SELECT wanted FROM unnest(%s::text[]) AS wanted
 WHERE NOT pg_catalog.has_database_privilege(current_database(), wanted)
"""


def quoted_role(role: str | None) -> str:
    """Return a role as a statement names it; without a name, the role that the session has."""
    return "CURRENT_USER" if role is None else sql.Identifier(role).as_string()


def our_role(session: Session) -> str:
    """Return the role by which the server judges: not the login, where that is set to be another one."""
    row = session.execute("SELECT current_user").fetchone()
    return str(row[0]) if row else session.info.user


def lacking_right(
    where: str, what: str, grants: Sequence[str], kind: type[MissingRightError] = MissingRightError
) -> MissingRightError:
    """Return the error of a role that lacks rights; `what` says for what it needs them."""
    return kind(
        f"{where}: {what}",
        **Codes.POSTGRES.value.numbered(INSUFFICIENT_PRIVILEGE),
        remedy="let the owner, or a superuser, run:\n" + "\n".join(f"{grant};" for grant in dict.fromkeys(grants)),
    )


def grants_on_schemas(session: Session, schemas: Iterable[str], *rights: str) -> list[str]:
    """Return what our role lacks of these rights on schemas that are there."""
    grants: list[str] = []
    for schema in dict.fromkeys(schemas):
        lacking = [it for (it,) in session.execute(_LACKING_AT_SCHEMA, [list(rights), schema])]
        if lacking:
            grants.append(_grant(session, lacking, sql.SQL("SCHEMA {}").format(sql.Identifier(schema))))
    return grants


def grants_on_database(session: Session, *rights: str) -> list[str]:
    """Return what our role lacks of these rights on the session's database."""
    lacking = [it for (it,) in session.execute(_LACKING_AT_DATABASE, [list(rights)])]
    database = sql.SQL("DATABASE {}").format(sql.Identifier(session.info.dbname))
    return [_grant(session, lacking, database)] if lacking else []


def grants_on_tables(session: Session, tables: Collection[TableName], *rights: str) -> list[str]:
    """Return what our role lacks of these rights on tables that are there, and on their schemas. Rights on some of the
    columns may be all that is needed."""
    lacking: dict[tuple[str, ...], list[TableName]] = defaultdict(list)
    names = [[it.schema for it in tables], [it.table for it in tables]]
    for schema, name, missing in session.execute(_LACKING_AT_TABLES, [list(rights), *names]):
        if missing:
            lacking[tuple(missing)].append(TableName(schema, name))
    grants = grants_on_schemas(session, (it.schema for it in tables), "USAGE")
    for missing, its in lacking.items():
        grants.append(_grant(session, missing, sql.SQL(", ").join(map(qualified, sorted(its)))))
    return grants


def _grant(session: Session, rights: Iterable[str], on: sql.Composable) -> str:
    role = sql.Identifier(our_role(session))
    words = sql.SQL(", ".join(rights))
    return sql.SQL("GRANT {} ON {} TO {}").format(words, on, role).as_string(session)
