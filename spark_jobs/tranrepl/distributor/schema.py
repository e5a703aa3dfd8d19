"""In which schema of the distribution database our tables are: found once for a connection, and named from then on.

It is the first schema of the role's own search path that exists. What others make there, or under the role's name,
which PostgreSQL's default path begins with, is not ours.
"""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from tranrepl.distributor.tables import VERSION_TABLE
from tranrepl.errors import ConfigurationError
from tranrepl.model.names import TableName
from tranrepl.postgres.catalogue import qualified
from tranrepl.postgres.rights import quoted_role
from tranrepl.postgres.session import Session, schemas_of_own_path, translated_errors

_DEFAULT = "public"

# Superusers count as members of every role: of them, only what was granted to nobody else is asked.
_TRUSTED = """
(SELECT r.rolsuper OR r.oid = me.oid OR r.oid = d.datdba OR r.rolname = 'pg_database_owner'
        OR NOT me.rolsuper AND pg_catalog.pg_has_role(r.oid, 'MEMBER')
   FROM pg_catalog.pg_roles r, pg_catalog.pg_roles me, pg_catalog.pg_database d
  WHERE r.oid = {} AND me.rolname = current_user AND d.datname = current_database())
"""
_SCHEMAS = f"""
SELECT n.nspname, n.nspname = current_user, pg_catalog.pg_get_userbyid(n.nspowner), {_TRUSTED.format("n.nspowner")},
       c.oid IS NOT NULL, pg_catalog.pg_get_userbyid(c.relowner), coalesce({_TRUSTED.format("c.relowner")}, false),
       c.relowner IS NOT DISTINCT FROM n.nspowner
  FROM pg_catalog.pg_namespace n
  LEFT JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = %s AND c.relkind = 'r'
 WHERE n.nspname = ANY (%s) OR c.oid IS NOT NULL
"""  # noqa: S608 — _TRUSTED is a constant


@dataclass(frozen=True, slots=True)
class _Schema:
    name: str
    is_named_as_role: bool
    owner: str
    owner_is_trusted: bool
    """It is our role, one that it is a member of, the database's owner or a superuser."""
    has_tables: bool
    tables_owner: str
    tables_owner_is_trusted: bool
    tables_are_its_owners: bool

    @property
    def may_be_ours(self) -> bool:
        """Whether somebody who may chose it: an administrator by the role's path, or the owner of what has the role's
        name."""
        return self.owner_is_trusted or not self.is_named_as_role

    @property
    def has_our_tables(self) -> bool:
        return self.has_tables and (self.tables_owner_is_trusted or self.tables_are_its_owners)


def find_schema(session: Session) -> str:
    """Return the schema that our tables are in, or that setup makes them in.

    Raises ConfigurationError where it is not known, or another role could put tables of its own in their place.
    """
    where = f"distribution database {session.info.dbname}"
    with translated_errors(where):
        path = schemas_of_own_path(session)
        rows = session.execute(_SCHEMAS, [VERSION_TABLE, [*path, _DEFAULT]]).fetchall()
    schemas = {it.name: it for it in (_Schema(*row) for row in rows)}
    on_path = [schemas[name] for name in path if name in schemas]
    ours = [it for it in on_path if it.may_be_ours and it.has_our_tables]
    # Where two have such tables, the owner of one schema may have made them.
    ours.sort(key=lambda it: not it.tables_owner_is_trusted)
    return ours[0].name if ours else _chosen(where, session.info.user, on_path, schemas)


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
