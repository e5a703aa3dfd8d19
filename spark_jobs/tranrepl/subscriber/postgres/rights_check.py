"""What our role may not at a PostgreSQL Subscriber, before setup or a delivery finds out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from psycopg import sql

from tranrepl.errors import JobRightError, MissingRightError
from tranrepl.model.names import TableName
from tranrepl.postgres.rights import (
    grants_on_database,
    grants_on_schemas,
    grants_on_tables,
    lacking_right,
    our_role,
)
from tranrepl.postgres.session import Session, translated_errors
from tranrepl.settings.publication import Article, PreCreation
from tranrepl.subscriber.job_rights import MODEL_TABLES, rights_on_table
from tranrepl.subscriber.postgres.procedures import PROCEDURE_NAMES, SCHEMA
from tranrepl.subscriber.procedure_names import PREFIXES, generates, procedure_name

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


def right_problems(session: Session, where: str, articles: Sequence[Article]) -> Iterator[MissingRightError]:
    """Yield the rights that setup lacks to create what is missing, and that deliveries lack to use what is there."""
    with translated_errors(where):
        role = our_role(session)
        model = [TableName(SCHEMA, name) for name in MODEL_TABLES]
        schemas, there = _there(session, [*model, *(it.destination_table for it in articles)])
        callable_names = _procedures(session, articles)
        creating = _to_create(session, articles, schemas, there, callable_names)
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
) -> list[str]:
    model = {TableName(SCHEMA, name) for name in MODEL_TABLES}
    missing = [it.destination_table for it in articles if it.destination_table not in there]
    wanted = [it.schema for it in missing if it.schema in schemas]
    if model - there or set(_generated(articles)) - procedures.keys():
        wanted.insert(0, SCHEMA)
    grants = grants_on_schemas(session, wanted, "USAGE", "CREATE")
    if any(it.schema not in schemas for it in missing):
        grants += grants_on_database(session, "CREATE")
    return grants


def _to_use(
    session: Session, articles: Sequence[Article], there: set[TableName], procedures: Mapping[str, bool]
) -> list[str]:
    # Commands are staged in temporary tables.
    grants = grants_on_database(session, "TEMPORARY")
    for name, rights in MODEL_TABLES.items():
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
