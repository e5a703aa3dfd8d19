"""Rights of our role at a PostgreSQL Subscriber: what it lacks of those that can be granted, and whose the destination
tables, their types and generated procedures are, which only an owner may alter."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from psycopg import sql

from tranrepl.error_numbers import Codes
from tranrepl.errors import ConfigurationError, JobRightError, MissingRightError
from tranrepl.model.names import TableName
from tranrepl.postgres.catalogue import qualified
from tranrepl.postgres.rights import (
    INSUFFICIENT_PRIVILEGE,
    grants_on_database,
    grants_on_schemas,
    grants_on_tables,
    lacking_right,
    our_role,
)
from tranrepl.postgres.session import Session, translated_errors
from tranrepl.settings.publication import Article, PreCreation
from tranrepl.subscriber.job_rights import RIGHTS_OF_JOBS, rights_on_table
from tranrepl.subscriber.postgres.database import has_table
from tranrepl.subscriber.postgres.procedures import OBJECTS, PROCEDURE_NAMES, SCHEMA
from tranrepl.subscriber.procedure_names import PREFIXES, generates, procedure_name

LET_OWNER = "let the owner, or a superuser, run:"

_OWNERS = """
SELECT pg_catalog.pg_get_userbyid(c.relowner),
       EXISTS (SELECT 1 FROM pg_catalog.pg_roles r
                WHERE r.rolsuper AND pg_catalog.pg_has_role(c.relowner, r.oid, 'MEMBER')),
       pg_catalog.array_agg(a.at ORDER BY a.at)
  FROM unnest(%s::text[], %s::text[]) WITH ORDINALITY AS a(schema, name, at)
  JOIN pg_catalog.pg_namespace n ON n.nspname = a.schema
  JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = a.name
 WHERE NOT pg_catalog.pg_has_role(c.relowner, 'USAGE') GROUP BY c.relowner ORDER BY min(a.at)
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


def not_owned(session: Session, where: str, tables: Sequence[TableName]) -> Iterator[ConfigurationError]:
    """Yield, for each owner, that our role may not alter its tables, with what lets it."""
    us = our_role(session)
    role = sql.Identifier(us).as_string(session)
    for owner, is_superuser, places in session.execute(
        _OWNERS, [[it.schema for it in tables], [it.table for it in tables]]
    ).fetchall():
        theirs = [tables[at - 1] for at in places]
        named, them = ("table", "it") if len(theirs) == 1 else ("tables", "them")
        belongs = "belongs" if len(theirs) == 1 else "belong"
        statements = [f"ALTER TABLE {qualified(it).as_string(session)} OWNER TO {role}" for it in theirs]
        # A member of a superuser's role is one.
        granting = "" if is_superuser else f"; or: GRANT {sql.Identifier(owner).as_string(session)} TO {role}"
        yield ConfigurationError(
            f"{where}: {named} {', '.join(map(str, theirs))} {belongs} to role {owner}: role {us} may not alter "
            f"{them}, which the Publisher's schema changes need",
            **Codes.POSTGRES.value.numbered(INSUFFICIENT_PRIVILEGE),
            remedy=f"{LET_OWNER} {'; '.join(statements)}{granting};",
        )


_EXISTING_TABLES = """
SELECT asked.schema, asked.name, n.oid IS NOT NULL, c.oid IS NOT NULL
  FROM unnest(%s::text[], %s::text[]) AS asked(schema, name)
  LEFT JOIN pg_catalog.pg_namespace n ON n.nspname = asked.schema
  LEFT JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = asked.name
"""
_PROCEDURES_THERE = """
SELECT p.proname, bool_and(pg_catalog.has_function_privilege(p.oid, 'EXECUTE'))
  FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
 WHERE n.nspname = %s AND p.proname = ANY (%s::text[]) GROUP BY p.proname
"""


def right_problems(
    session: Session, where: str, articles: Sequence[Article], schemas_of_types: Sequence[str] = ()
) -> Iterator[MissingRightError]:
    """Yield the rights that setup lacks to create what is missing, and that deliveries lack to use what is there.
    `schemas_of_types`: those of types that setup creates."""
    with translated_errors(where):
        role = our_role(session)
        model = [TableName(SCHEMA, name) for name in RIGHTS_OF_JOBS]
        types = [TableName(it, "") for it in schemas_of_types]
        schemas, there = _there(session, [*model, *types, *(it.destination_table for it in articles)])
        callable_names = _procedures(session, articles)
        creating = _to_create(session, articles, schemas, there, callable_names, schemas_of_types)
        using = _to_use(session, articles, there, callable_names)
    if creating:
        yield lacking_right(where, f"role {role} may not create what setup creates", creating)
    if using:
        yield lacking_right(where, f"role {role} may not apply commands", using, JobRightError)


def _there(session: Session, tables: Sequence[TableName]) -> tuple[set[str], set[TableName]]:
    """Return the schemas and tables of these that are there."""
    rows = session.execute(_EXISTING_TABLES, [[it.schema for it in tables], [it.table for it in tables]]).fetchall()
    schemas = {schema for schema, _, found, _ in rows if found}
    return schemas, {TableName(schema, name) for schema, name, _, found in rows if found}


def _generated(articles: Sequence[Article]) -> list[str]:
    return [
        procedure_name(operation, article.destination_table, PROCEDURE_NAMES)
        for article in articles
        for operation in PREFIXES
        if generates(article.propagation(operation))
    ]


def _procedures(session: Session, articles: Sequence[Article]) -> dict[str, bool]:
    """Return, by name of a generated procedure that is there, whether our role may call it."""
    return dict(session.execute(_PROCEDURES_THERE, [SCHEMA, _generated(articles)]).fetchall())


def _to_create(
    session: Session,
    articles: Sequence[Article],
    schemas: set[str],
    there: set[TableName],
    procedures: Mapping[str, bool],
    schemas_of_types: Sequence[str],
) -> list[str]:
    model = {TableName(SCHEMA, name) for name in RIGHTS_OF_JOBS}
    missing = [it.destination_table.schema for it in articles if it.destination_table not in there]
    missing = list(dict.fromkeys([*missing, *schemas_of_types]))
    wanted = [it for it in missing if it in schemas]
    if model - there or set(_generated(articles)) - procedures.keys():
        wanted.insert(0, SCHEMA)
    grants = grants_on_schemas(session, wanted, "USAGE", "CREATE")
    if any(it not in schemas for it in missing):
        grants += grants_on_database(session, "CREATE")
    return grants


def _to_use(
    session: Session, articles: Sequence[Article], there: set[TableName], procedures: Mapping[str, bool]
) -> list[str]:
    # Commands are staged in temporary tables.
    grants = grants_on_database(session, "TEMPORARY")
    for name, rights in RIGHTS_OF_JOBS.items():
        if TableName(SCHEMA, name) in there:
            grants += grants_on_tables(session, [TableName(SCHEMA, name)], *rights)
    wanted: dict[tuple[str, ...], list[TableName]] = defaultdict(list)
    for article in articles:
        if article.destination_table in there and (rights := _rights_of(article)):
            wanted[rights].append(article.destination_table)
    for rights, tables in wanted.items():
        grants += grants_on_tables(session, tables, *rights)
    if not all(procedures.values()):
        role = sql.Identifier(our_role(session)).as_string(session)
        grants.append(f"GRANT EXECUTE ON ALL PROCEDURES IN SCHEMA {SCHEMA} TO {role}")
    return grants


def _rights_of(article: Article) -> tuple[str, ...]:
    rights = rights_on_table(article)
    return (*rights, "TRUNCATE") if rights and article.pre_creation_cmd is PreCreation.TRUNCATE else rights


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
