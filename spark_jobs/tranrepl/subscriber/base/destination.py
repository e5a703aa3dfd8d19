"""Destination tables at a Subscriber that SQLAlchemy reaches, as its catalogue has them or setup would create them,
with their unique keys and foreign keys."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy import types
from sqlalchemy.sql import quoted_name

from tranrepl.errors import ConfigurationError
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.catalogue import ColumnDescription, TableDescription
from tranrepl.model.names import TableName
from tranrepl.model.source_types import source_type
from tranrepl.settings.publication import Article
from tranrepl.subscriber.base.catalogue import Destination, Place
from tranrepl.subscriber.base.database import SqlDatabase
from tranrepl.subscriber.base.label_checks import check_constraint, checked_columns
from tranrepl.subscriber.base.procedures import ProcedureName, StoredProcedure, custom_names
from tranrepl.subscriber.base.target import SqlColumn, SqlTarget
from tranrepl.subscriber.constraints import (
    ArticleTable,
    Constraints,
    between_articles,
    constraints_among,
    parents_first,
)
from tranrepl.subscriber.missing_columns import ColumnTexts, lost_columns, no_table
from tranrepl.subscriber.value_conversion import ColumnType, conversion


def column_texts(database: SqlDatabase, table: TableName, made: Mapping[str, types.TypeEngine[Any]]) -> ColumnTexts:
    """Return the statements that give a table a column; `made` are the types of those that may be added."""
    return ColumnTexts(
        {name: database.add_column_text(table, name, it) + ";" for name, it in made.items()},
        lambda before, now: database.rename_column_text(table, before, now) + ";",
    )


def new_table(
    database: SqlDatabase, article: Article, source: TableDescription, referencing: Collection[str]
) -> sa.Table:
    """Return an article's destination with its columns and its key, as far as the database can have it. `referencing`
    are columns of foreign keys."""
    schema, name = database.place(article.destination_table)
    checks = checked_columns(source.definition, name)
    columns = [
        sa.Column(
            quoted_name(column.name, quote=True),
            created_type(database, column, referencing=column.name in referencing),
            nullable=not column.not_null,
            autoincrement=database.counts_up(source, column),
        )
        for column in source.published(article.columns)
    ]
    table = sa.Table(
        quoted_name(name, quote=True),
        sa.MetaData(),
        *columns,
        sa.PrimaryKeyConstraint(*(quoted_name(column.name, quote=True) for column in source.key)),
        *(
            check_constraint(checks[column.name])
            for column in source.published(article.columns)
            if column.name in checks
        ),
        schema=None if schema is None else quoted_name(schema, quote=True),
        **database.table_options,
    )
    database.fit_row(table, {column.name for column in source.columns if column.unique}.union(referencing))
    return table


def size_problems(
    database: SqlDatabase, where: str, article: Article, source: TableDescription
) -> Iterator[ConfigurationError]:
    """Yield that the database has no room for the table that setup would create."""
    problem = database.size_problem(new_table(database, article, source, ()))
    if problem is not None:
        yield ConfigurationError(
            f"article {article.source}: {where}: table {article.destination_table}, as setup would create it, "
            f"{problem}",
            remedy="leave columns out (articles[].columns), or create the table yourself, with shorter columns",
            article=str(article.source),
        )


@dataclass(frozen=True, slots=True)
class KnownObjects:
    """What was asked about; None: it is not there. What has no entry is not known."""

    tables: dict[TableName, Destination | None] = field(default_factory=dict)
    procedures: Mapping[ProcedureName, StoredProcedure | None] = field(default_factory=dict)

    def forget(self, table: TableName) -> None:
        """Forget a table that is about to be made."""
        self.tables.pop(table, None)


def read_known(session: sa.Connection, database: SqlDatabase, articles: Sequence[Article]) -> KnownObjects:
    """Read the articles' tables and custom procedures; nothing is asked for none."""
    tables = [it.destination_table for it in articles]
    found = find_destinations(session, database, tables) if tables else {}
    scripter = database.scripter
    names = custom_names(articles, scripter.names) if scripter else []
    stored = scripter.stored(session, names) if scripter and names else {}
    return KnownObjects({it: found.get(it) for it in tables}, {it: stored.get(it) for it in names})


def find_destination(session: sa.Connection, database: SqlDatabase, name: TableName) -> Destination | None:
    """Read a table from the catalogue; None where there is none."""
    return find_destinations(session, database, [name]).get(name)


def find_destinations(
    session: sa.Connection, database: SqlDatabase, names: Sequence[TableName]
) -> dict[TableName, Destination]:
    """Read tables from the catalogue, those that are there."""
    places = {name: database.place(name) for name in names}
    found = database.catalogue(session).destinations(list(dict.fromkeys(places.values())))
    refused = database.refused_tables(session, list(found))
    return {
        name: replace(found[place], refusal=refused.get(place, found[place].refusal))
        for name, place in places.items()
        if place in found
    }


def column_names(article: RegisteredArticle, found: Destination) -> list[str]:
    """Return the names of all columns that the article's table has; of a published one its published name."""
    return list(found.spelled_as(_names(article)).columns)


def _names(article: RegisteredArticle) -> list[str]:
    return [column.name for column in article.columns]


def targets(
    session: sa.Connection, database: SqlDatabase, articles: Sequence[RegisteredArticle], where: str
) -> list[SqlTarget]:
    """Return the articles as they are there. Raises ConfigurationError where a table or a column is missing."""
    found = find_destinations(session, database, [article.destination for article in articles])
    return [found_target(session, database, article, found.get(article.destination), where) for article in articles]


def target(session: sa.Connection, database: SqlDatabase, article: RegisteredArticle, where: str) -> SqlTarget:
    """Return the article as it is there. Raises ConfigurationError where the table or a column is missing."""
    return targets(session, database, [article], where)[0]


def found_target(
    session: sa.Connection, database: SqlDatabase, article: RegisteredArticle, found: Destination | None, where: str
) -> SqlTarget:
    """Return the article with the table that was found. Raises ConfigurationError where it or a column is missing."""
    if found is None:
        raise no_table(where, article)
    if found.refusal is not None:
        raise found.refusal.error(where, article.destination, article.source)
    found = found.spelled_as(_names(article))
    missing = [it for it in article.columns if it.name not in found.columns]
    if missing:
        others = [it for it in found.columns if it not in _names(article)]
        made = {it.name: database.type_named(it.type_name, indexed=it.unique) for it in missing}
        texts, able = column_texts(database, article.destination, made), database.capabilities
        raise lost_columns(where, article, list(made), others, texts, comparison=able.comparison)
    reflected = [found.columns[name] for name in _names(article)]
    described = [database.described_type(it["type"], session.dialect) for it in reflected]
    key = {article.columns[at].name for at in article.key_positions}
    return _target(
        database,
        article,
        described,
        [it["name"] for it in reflected],
        found,
        key_is_unique=any(unique <= key for unique in found.unique_keys),
    )


def intended_target(
    database: SqlDatabase,
    article: RegisteredArticle,
    source: TableDescription,
    dialect: sa.Dialect,
    found: Destination | None = None,
) -> SqlTarget:
    """Return the article as it is there; where the table or a column does not exist yet, as setup or a schema change
    would create it."""
    published = {column.name: column for column in source.columns}
    found = None if found is None else found.spelled_as(_names(article))
    there = {} if found is None else found.columns
    described = [
        database.described_type(there[it]["type"] if it in there else created_type(database, published[it]), dialect)
        for it in _names(article)
    ]
    names = [there[it]["name"] if it in there else it for it in _names(article)]
    return _target(database, article, described, names, found, key_is_unique=True)


def created_type(
    database: SqlDatabase, column: ColumnDescription, *, referencing: bool = False
) -> types.TypeEngine[Any]:
    """Return the type that setup gives a column; for a domain, by the type under it. With a foreign key
    (`referencing`), the type that the key it references has."""
    indexed = referencing or column.key_ordinal is not None or column.unique
    return database.type_named(column.type_name, column.base_type_name, indexed=indexed)


def _target(
    database: SqlDatabase,
    article: RegisteredArticle,
    described: Iterable[ColumnType],
    catalogue_names: Iterable[str],
    found: Destination | None,
    *,
    key_is_unique: bool,
) -> SqlTarget:
    schema, name = database.place(article.destination)
    there = {} if found is None else found.columns
    columns = tuple(
        SqlColumn(
            column.name,
            it,
            conversion(source_type(column.type_name), it, database.binding),
            catalogue_name,
            identity=found is not None and column.name in there and found.is_identity(column.name),
            fills_itself=found is not None and column.name in there and found.fills_itself(column.name),
        )
        for column, it, catalogue_name in zip(article.columns, described, catalogue_names, strict=True)
    )
    return SqlTarget(article, schema, name, columns, key_is_unique)


def constraints_of(session: sa.Connection, database: SqlDatabase, targets: Sequence[SqlTarget]) -> Constraints:
    """Return the constraints of the targets' tables; a foreign key counts where both of its ends are among them."""
    catalogue, places = database.catalogue(session), _places(targets)
    tables = [
        ArticleTable(it.article.article_id, _place(it), tuple(of.catalogue_name for of in it.columns)) for it in targets
    ]
    unique = [(place, key) for place, keys in catalogue.unique_keys(places).items() for key in keys]
    foreign = [
        (place, it.columns, it.referenced, it.referenced_columns)
        for place, keys in catalogue.foreign_keys(places).items()
        for it in keys
        if it.acts
    ]
    return constraints_among(tables, unique, foreign)


def parents_first_among(session: sa.Connection, database: SqlDatabase, targets: Sequence[SqlTarget]) -> dict[int, int]:
    """Rank of each article (`parents_first`) where one's table refers to another one's; none where none does."""
    tables = {it.article.article_id: _place(it) for it in targets}
    found = database.catalogue(session).foreign_keys(_places(targets))
    references = {(place, key.referenced) for place, keys in found.items() for key in keys if key.acts}
    return parents_first(tables, references) if between_articles(tables, references) else {}


def _place(target: SqlTarget) -> Place:
    return target.schema, target.name


def _places(targets: Sequence[SqlTarget]) -> list[Place]:
    return list(dict.fromkeys(map(_place, targets)))
