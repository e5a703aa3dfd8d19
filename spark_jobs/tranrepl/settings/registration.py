"""What an article will be once it is registered: its settings and its table as the Publisher describes it."""

from __future__ import annotations

from collections.abc import Sequence

from tranrepl.errors import TransientError
from tranrepl.model.article import ArticleNames, PublishedColumn, RegisteredArticle
from tranrepl.model.catalogue import TableDescription
from tranrepl.model.table_definition import TableDefinition
from tranrepl.settings.publication import Article, Partitions

PublishedTables = Sequence[tuple[Article, TableDescription]]
"""Articles, and their tables at the Publisher."""


def tables_at(tables: PublishedTables, subscription: str) -> PublishedTables:
    """Return the articles with the destinations that they have at a subscription."""
    return [(article.at(subscription), table) for article, table in tables]


def registered_article(
    article: Article, table: TableDescription, known: RegisteredArticle | None = None
) -> RegisteredArticle:
    """Return the article as it is to be registered; `article_id` is 0 until it is. `known` is its definition so far.
    Raises TransientError where the table was dropped meanwhile."""
    columns = [
        PublishedColumn(
            name=column.name,
            ordinal=column.ordinal,
            type_oid=column.type_oid,
            type_modifier=column.type_modifier,
            type_name=column.type_name,
            key_ordinal=column.key_ordinal,
            unique=column.unique,
            lob=column.name in article.lob_columns,
        )
        for column in table.published(article.columns)
    ]
    file = table.file.of([column.ordinal for column in columns]) if table.file is not None else None
    wanted = RegisteredArticle(
        article_id=0,
        source=article.source,
        destination=article.destination_table,
        source_object_id=table.object_id,
        columns=tuple(columns),
        ins_cmd=article.ins_cmd,
        upd_cmd=article.upd_cmd,
        del_cmd=article.del_cmd,
        filter=article.filter,
        update_policy=article.update_policy,
        truncate=article.truncate,
        source_file=file,
        source_definition=_definition(table),
        file_names=file_names(article),
        destinations=tuple(sorted(article.destinations.items())),
    )
    return wanted if known is None else wanted.succeeding(known)


def _definition(table: TableDescription) -> TableDefinition:
    if table.definition is None:
        raise TransientError(f"table {table.name} was dropped while the Publisher's catalogue was read")
    return table.definition


def file_names(article: Article) -> ArticleNames:
    """Return what an article's file names."""
    return ArticleNames(
        source=article.source,
        columns=None if article.columns is None else tuple(article.columns),
        filter=article.filter,
        lob_columns=tuple(article.lob_columns),
        divided=article.partitions is Partitions.SAME,
    )
