"""In which schema of the distribution database our tables are: found once for a connection, and named from then on.

It is the first schema of the role's own search path that exists. What others make there, or under the role's name,
which PostgreSQL's default path begins with, is not ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from tranrepl.distributor.tables import VERSION_TABLE
from tranrepl.errors import ConfigurationError
from tranrepl.model.names import TableName
from tranrepl.postgres.catalogue import qualified
from tranrepl.postgres.rights import quoted_role
from tranrepl.postgres.session import Session, schemas_of_own_path, translated_errors

_DEFAULT = "public"

_SCHEMAS = """
SELECT n.nspname, n.nspname = current_user, pg_catalog.pg_get_userbyid(n.nspowner), c.oid IS NOT NULL,
       pg_catalog.pg_get_userbyid(c.relowner), current_user::text
  FROM pg_catalog.pg_namespace n
  LEFT JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = %s AND c.relkind = 'r'
 WHERE n.nspname = ANY (%s) OR c.oid IS NOT NULL
"""
# Superusers count as members of every role: of them, only what was granted to nobody else is asked.
_TRUSTED = """
SELECT r.rolname
  FROM pg_catalog.pg_roles r, pg_catalog.pg_roles me, pg_catalog.pg_database d
 WHERE r.rolname = ANY (%s) AND me.rolname = current_user AND d.datname = current_database()
   AND (r.rolsuper OR r.oid = d.datdba OR NOT me.rolsuper AND pg_catalog.pg_has_role(r.oid, 'MEMBER'))
"""
_DATABASE_OWNER = "pg_database_owner"


@dataclass(frozen=True, slots=True)
class _Schema:
    trusted: frozenset[str]
    """Our role, those that it is a member of, the database's owner and superusers, as far as they own something."""
    name: str
    is_named_as_role: bool
    owner: str
    has_tables: bool
    tables_owner: str

    @property
    def owner_is_trusted(self) -> bool:
        return self.owner in self.trusted

    @property
    def tables_owner_is_trusted(self) -> bool:
        return self.tables_owner in self.trusted

    @property
    def may_be_ours(self) -> bool:
        """Whether somebody who may chose it: an administrator by the role's path, or the owner of what has the role's
        name."""
        return self.owner_is_trusted or not self.is_named_as_role

    @property
    def has_our_tables(self) -> bool:
        return self.has_tables and (self.tables_owner_is_trusted or self.tables_owner == self.owner)


def find_schema(session: Session) -> str:
    """Return the schema that our tables are in, or that setup makes them in.

    Raises ConfigurationError where it is not known, or another role could put tables of its own in their place.
    """
    where = f"distribution database {session.info.dbname}"
    with translated_errors(where):
        path = schemas_of_own_path(session)
        rows = session.execute(_SCHEMAS, [VERSION_TABLE, [*path, _DEFAULT]]).fetchall()
        trusted = _trusted(session, rows)
    schemas = {it.name: it for it in (_Schema(trusted, *row) for *row, _ in rows)}
    on_path = [schemas[name] for name in path if name in schemas]
    ours = [it for it in on_path if it.may_be_ours and it.has_our_tables]
    # Where two have such tables, the owner of one schema may have made them.
    ours.sort(key=lambda it: not it.tables_owner_is_trusted)
    return ours[0].name if ours else _chosen(where, session.info.user, on_path, schemas)


def _trusted(session: Session, rows: Sequence[tuple[Any, ...]]) -> frozenset[str]:
    """Return which owners are trusted; the server is asked about those only of which that is not clear by the name."""
    owners = {name for _, _, owner, _, tables_owner, _ in rows for name in (owner, tables_owner)}
    clear = {_DATABASE_OWNER, *(me for *_, me in rows)}
    asked = sorted(owners - clear - {None})
    found = session.execute(_TRUSTED, [asked]).fetchall() if asked else []
    return frozenset(clear).union(name for (name,) in found)


def _chosen(where: str, role: str, on_path: list[_Schema], schemas: dict[str, _Schema]) -> str:
    """Return the schema to make tables in; without one on the path, also one that has them already."""
    elsewhere = f"ALTER ROLE {quoted_role(role)} SET search_path = the schema for its tables"
    first = next(iter(on_path), None)
    if first is None:
        found = [it.name for it in schemas.values() if it.has_tables and it.tables_owner_is_trusted]
        if len(found) > 1:
            raise ConfigurationError(f"{where}: its tables are in schemas {', '.join(sorted(found))}", remedy=elsewhere)
        if not found and _DEFAULT not in schemas:
            raise ConfigurationError(
                f"{where}: search_path names no schema that exists, so its tables cannot be created",
                remedy=f"ALTER ROLE {quoted_role(role)} SET search_path = public, or another schema",
            )
        first = schemas[found[0] if found else _DEFAULT]
    if not first.may_be_ours:
        raise ConfigurationError(
            f"{where}: schema {first.name}, where its tables would be created, belongs to role {first.owner}, "
            "which could replace them",
            remedy=f"ALTER SCHEMA {quoted_role(first.name)} OWNER TO {quoted_role(role)}; or {elsewhere}",
        )
    if first.has_tables and not first.has_our_tables:
        table, owner = qualified(TableName(first.name, VERSION_TABLE)).as_string(None), quoted_role(first.tables_owner)
        raise ConfigurationError(
            f"{where}: table {table} belongs to role {first.tables_owner}, which could put anything there",
            remedy=f"DROP TABLE {table}; where setup made it as that role, GRANT {owner} TO {quoted_role(role)}; or "
            f"{elsewhere}",
        )
    return first.name


def named(connection: sa.Connection, schema: str) -> sa.Connection:
    """Let the connection's statements name the schema with our tables."""
    return connection.execution_options(schema_translate_map={None: schema})


def schema_of(connection: sa.Connection) -> str:
    """Return the schema that the connection's statements name."""
    schema: str = connection.get_execution_options()["schema_translate_map"][None]
    return schema
