"""Whose the destination tables, their types and generated procedures of a PostgreSQL Subscriber are: only an owner may
alter them, nobody can grant it."""

from __future__ import annotations

from collections.abc import Iterator

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


# Conversions of a type run the code of its owner (checks of a domain), and of who made a cast of text to it: that needs
# the type's owner too, who may be another one by now.
_TYPES_OF_OTHERS = """
WITH RECURSIVE used(oid) AS (
  SELECT pg_catalog.to_regtype(%s)::oid
  UNION
  SELECT other.oid FROM used u JOIN pg_catalog.pg_type t ON t.oid = u.oid CROSS JOIN LATERAL (
    SELECT t.typbasetype UNION ALL SELECT t.typelem UNION ALL SELECT t.typarray
    UNION ALL SELECT r.rngsubtype FROM pg_catalog.pg_range r WHERE r.rngtypid = t.oid
    UNION ALL SELECT a.atttypid FROM pg_catalog.pg_attribute a WHERE a.attrelid = t.typrelid AND a.attnum > 0
  ) other(oid) WHERE other.oid <> 0
), found(what, owner, schema, statement) AS (
  SELECT pg_catalog.concat('type ', t.oid::pg_catalog.regtype), t.typowner, t.typnamespace,
         pg_catalog.concat('ALTER TYPE ', t.oid::pg_catalog.regtype, ' OWNER TO ', pg_catalog.quote_ident(current_user))
    FROM used u JOIN pg_catalog.pg_type t ON t.oid = u.oid WHERE t.typcategory <> 'A'
  UNION ALL
  SELECT pg_catalog.concat('the function of the cast of ', c.castsource::pg_catalog.regtype, ' to ',
                           c.casttarget::pg_catalog.regtype),
         p.proowner, p.pronamespace,
         pg_catalog.concat('DROP CAST (', c.castsource::pg_catalog.regtype, ' AS ',
                           c.casttarget::pg_catalog.regtype, ')')
    FROM used u JOIN pg_catalog.pg_cast c ON c.casttarget = u.oid JOIN pg_catalog.pg_proc p ON p.oid = c.castfunc
   WHERE c.castsource < '16384'::pg_catalog.oid)
SELECT f.what, o.rolname::text, f.statement
  FROM found f JOIN pg_catalog.pg_namespace n ON n.oid = f.schema JOIN pg_catalog.pg_roles o ON o.oid = f.owner
  JOIN pg_catalog.pg_roles me ON me.rolname = current_user
  JOIN pg_catalog.pg_database d ON d.datname = pg_catalog.current_database()
 WHERE NOT o.rolsuper AND o.oid NOT IN (me.oid, d.datdba, n.nspowner)
   AND (me.rolsuper OR NOT pg_catalog.pg_has_role(o.oid, 'MEMBER'))
 ORDER BY 1
"""


def type_problems(session: Session, at: str, column: str, type_name: str) -> Iterator[ConfigurationError]:
    """Yield what of a type belongs to a role that could so run code with the rights of our role: one that owns neither
    the database nor the schema. `at`: where the column is, as messages name it. Nothing where there is no such type."""
    if "." not in type_name:
        # PostgreSQL's own types are written without a schema.
        return
    for what, owner, statement in session.execute(_TYPES_OF_OTHERS, [type_name]):
        yield ConfigurationError(
            f"{at}: column {column!r}: {what} belongs to role {owner}, whose code would run with our role's rights",
            remedy=f"where you trust what it does: let a superuser run {statement}; else leave the column out of the "
            "article",
        )


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
