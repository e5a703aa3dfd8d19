"""Tables that setup creates at a PostgreSQL Subscriber, and types of their columns that are not there."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from psycopg import sql

from tranrepl.model.catalogue import ColumnDescription, TableDescription
from tranrepl.model.names import TableName, name_parts
from tranrepl.model.table_definition import DefinedColumn, DefinedType, Generation
from tranrepl.postgres.catalogue import qualified
from tranrepl.postgres.composed_sql import expression_sql, is_left_out, type_sql
from tranrepl.postgres.session import Session, translated_errors
from tranrepl.printable import named
from tranrepl.settings.publication import Article
from tranrepl.subscriber.base.label_checks import checked_columns
from tranrepl.subscriber.base.snapshot_rows import SnapshotRows
from tranrepl.subscriber.postgres.columns import check_clause
from tranrepl.subscriber.postgres.enum_labels import add_missing_labels
from tranrepl.subscriber.postgres.partition_setup import divided_by, make_partition, missing_partitions
from tranrepl.subscriber.postgres.rights import create_missing_schema, type_problems
from tranrepl.subscriber.postgres.sequences import IDENTITY_TYPES, own_sequence


def create_destination(
    session: Session, where: str, created: SnapshotRows, article: Article, source: TableDescription
) -> list[str]:
    """Create a destination table that is missing: published columns, NOT NULL, primary key, and partitions where it is
    to be partitioned as the Publisher's is.

    Generated columns come along where all they need is published. Identity and serial columns become identity columns
    that take any value, where the description says which numbers they give; `numeric` ones get a sequence. It is
    durable with the next commit that waits for the disk.
    """
    name = article.destination_table
    with translated_errors(f"{where}, table {name}"), session.transaction():
        session.execute("SET LOCAL synchronous_commit = off")
        create_missing_schema(session, where, name.schema)
        types = [it for it in missing_types(session, defined_columns(article, source)) if it.labels is not None]
        for it in types:
            create_enumerated(session, where, it)
        made = [f"created {named([it.name for it in types], 'type')} at {where}"] if types else []
        for column in source.published(article.columns):
            # Another role may have made one since it was looked at.
            for problem in type_problems(session, f"article {article.source}: {where}", column.name, column.type_name):
                raise problem
        session.execute(_create_table(session, name, article, source))
        for column in source.published(article.columns):
            if column.name in source.sequences and column.base_type_name == "numeric":
                session.execute(own_sequence(name, column.name))
        # A snapshot may build the indexes of such a table after it is loaded.
        created.add_created(str(article.source))
        labels = _add_labels(session, where, name, source)
        left = [
            f"table {name} at {where} does without generated column {it.name}: its expression calls what is not "
            "PostgreSQL's own, or is not read"
            for it in source.columns
            if it.generation_expression is not None and is_left_out(it.generation_expression)
        ]
        return [
            *made,
            *labels,
            *left,
            *_create_partitions(session, where, article, source),
        ]


def complete_destination(session: Session, where: str, article: Article, source: TableDescription) -> list[str]:
    """Create what a destination table lacks: labels of its enumerated types, and partitions."""
    name = article.destination_table
    with translated_errors(f"{where}, table {name}"), session.transaction():
        return [*_add_labels(session, where, name, source), *_create_partitions(session, where, article, source)]


def defined_columns(article: Article, source: TableDescription) -> list[DefinedColumn]:
    """Return the published columns as the table's definition has them."""
    names = {it.name for it in source.published(article.columns)}
    return [] if source.definition is None else [it for it in source.definition.columns if it.name in names]


def _add_labels(session: Session, where: str, table: TableName, source: TableDescription) -> list[str]:
    if source.definition is None or not source.definition.enumerated:
        return []
    return [f"{where}: {it}" for it in add_missing_labels(session, table, source.definition)]


def _create_partitions(session: Session, where: str, article: Article, source: TableDescription) -> list[str]:
    made = []
    for it in missing_partitions(session, article, source):
        create_missing_schema(session, where, it.there.schema)
        make_partition(session, where, it, "`tranrepl setup FILE`")
        made.append(it.there)
    return [f"created {named(made, 'partition')} of table {article.destination_table} at {where}"] if made else []


def _create_table(session: Session, name: TableName, article: Article, source: TableDescription) -> sql.Composed:
    published = source.published(article.columns)
    names = {column.name for column in published}
    parts: list[sql.Composable] = []
    for column in source.columns:
        definition = sql.SQL("{} {}").format(sql.Identifier(column.name), type_sql(column.type_name))
        if column.name in names:
            parts.append(definition + sql.SQL(" NOT NULL" if column.not_null else "") + _identity(source, column))
        elif _comes_along(column, names):
            parts.append(definition + _generated(session, column))
    key = sql.SQL(", ").join(sql.Identifier(column.name) for column in source.key)
    parts.append(sql.SQL("PRIMARY KEY ({})").format(key))
    checks = checked_columns(source.definition, name.table)
    parts += (check_clause(checks[column.name]) for column in published if column.name in checks)
    return sql.SQL("CREATE TABLE {} (\n  {}\n){}").format(
        qualified(name), sql.SQL(",\n  ").join(parts), divided_by(article, source)
    )


def _identity(source: TableDescription, column: ColumnDescription) -> sql.Composable:
    """Return what makes the column number its rows by itself where a statement gives no value."""
    numbers, bounds = source.sequences.get(column.name), IDENTITY_TYPES.get(column.type_name)
    if numbers is None or bounds is None or not column.not_null:
        return sql.SQL("")
    least, most = max(numbers.minimum, -bounds), min(numbers.maximum, bounds - 1)
    if not least <= numbers.start <= most:
        return sql.SQL("")
    return sql.SQL(
        " GENERATED BY DEFAULT AS IDENTITY (INCREMENT BY {} MINVALUE {} MAXVALUE {} START WITH {}{})"
    ).format(
        sql.Literal(numbers.increment),
        sql.Literal(least),
        sql.Literal(most),
        sql.Literal(numbers.start),
        sql.SQL(" CYCLE" if numbers.cycles else ""),
    )


def _comes_along(column: ColumnDescription, published: Collection[str]) -> bool:
    """Return whether a generated column can be made at the Subscriber."""
    expression = column.generation_expression
    return expression is not None and not is_left_out(expression) and set(published).issuperset(column.generated_from)


def _generated(session: Session, column: ColumnDescription) -> sql.Composable:
    virtual = column.generation is Generation.VIRTUAL and session.info.server_version >= 180000
    return sql.SQL(" GENERATED ALWAYS AS ({}) {}").format(
        expression_sql(column.generation_expression or ""), sql.SQL("VIRTUAL" if virtual else "STORED")
    )


_THERE = "SELECT pg_catalog.to_regtype(%s) IS NOT NULL"
_SCHEMA_THERE = "SELECT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = %s)"


def missing_types(session: Session, columns: Iterable[DefinedColumn]) -> list[DefinedType]:
    """Return the types that columns are made of and that are not there, each once, enumerated ones first."""
    types = {it.name: it for column in columns for it in column.types or ()}
    return [
        it
        for it in sorted(types.values(), key=lambda of: of.labels is None)
        # An array comes with its type.
        if not it.name.endswith("[]") and session.execute(_THERE, [it.name]).fetchone() != (True,)
    ]


def create_enumerated(session: Session, where: str, missing: DefinedType) -> None:
    create_missing_schema(session, where, name_parts(missing.name)[0])
    session.execute(_created(missing))


def way_on(session: Session, missing: DefinedType, statement: str | None = None) -> str:
    """Return how a person makes the type there. `statement`: the one of the Publisher's type, where it is known."""
    if missing.labels is not None:
        statement = _created(missing).as_string(None)
    if statement is None:
        return (
            f"create type {missing.name} at the Subscriber as it is at the Publisher, or the extension that it "
            "belongs to"
        )
    statements, schema = [statement], name_parts(missing.name)[0]
    if session.execute(_SCHEMA_THERE, [schema]).fetchone() != (True,):
        statements.insert(0, sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)).as_string(None))
    return f"run at the Subscriber: {'; '.join(statements)}"


def _created(missing: DefinedType) -> sql.Composed:
    labels = sql.SQL(", ").join(map(sql.Literal, missing.labels or ()))
    return sql.SQL("CREATE TYPE {} AS ENUM ({})").format(type_sql(missing.name), labels)
