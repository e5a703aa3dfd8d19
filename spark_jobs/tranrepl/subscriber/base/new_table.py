"""The table that setup creates for an article where SQLAlchemy reaches the Subscriber."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import sqlalchemy as sa
from sqlalchemy.sql import quoted_name

from tranrepl.errors import ConfigurationError
from tranrepl.model.catalogue import TableDescription
from tranrepl.settings.publication import Article
from tranrepl.subscriber.base.database import SqlDatabase
from tranrepl.subscriber.base.destination import created_type


def new_table(
    database: SqlDatabase, article: Article, source: TableDescription, referencing: Collection[str]
) -> sa.Table:
    """Return an article's destination with its columns and its key, as far as the database can have it. `referencing`
    are columns of foreign keys."""
    schema, name = database.place(article.destination_table)
    columns = [
        sa.Column(
            quoted_name(column.name, quote=True),
            created_type(database, column, referencing=column.name in referencing),
            nullable=not column.not_null,
            autoincrement=False,
        )
        for column in source.published(article.columns)
    ]
    table = sa.Table(
        quoted_name(name, quote=True),
        sa.MetaData(),
        *columns,
        sa.PrimaryKeyConstraint(*(quoted_name(column.name, quote=True) for column in source.key)),
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
