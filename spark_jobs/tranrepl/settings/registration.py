"""What an article will be once it is registered: its settings and its table as the Publisher describes it."""

from __future__ import annotations

from collections.abc import Sequence

from tranrepl.errors import TransientError
from tranrepl.model.article import ArticleNames, PublishedColumn, RegisteredArticle
from tranrepl.model.catalogue import TableDescription
from tranrepl.model.position import FIRST_POSITION
from tranrepl.model.table_definition import TableDefinition
from tranrepl.settings.publication import Article, Partitions

PublishedTables = Sequence[tuple[Article, TableDescription]]
"""Articles, and their tables at the Publisher."""


def registered_article(
    article: Article, table: TableDescription, known: RegisteredArticle | None = None
) -> RegisteredArticle:
    """Return the article as it is to be registered; `article_id` is 0 until it is. `known` is its definition so far.
    Raises TransientError where the table was dropped meanwhile."""
    earlier = {column.ordinal: column for column in known.columns} if known else {}
    columns = []
    for column in table.published(article.columns):
        before = earlier.get(column.ordinal)
        types = {*before.earlier_types, (before.type_oid, before.type_modifier)} if before else set()
        names = {*before.earlier_names, before.name} if before else set()
        columns.append(
            PublishedColumn(
                name=column.name,
                ordinal=column.ordinal,
                type_oid=column.type_oid,
                type_modifier=column.type_modifier,
                type_name=column.type_name,
                key_ordinal=column.key_ordinal,
                earlier_types=tuple(sorted(types - {(column.type_oid, column.type_modifier)})),
                earlier_names=tuple(sorted(names - {column.name})),
                unique=column.unique,
                lob=column.name in article.lob_columns,
            )
        )
    file = table.file.of([column.ordinal for column in columns]) if table.file is not None else None
    return RegisteredArticle(
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
        file=file.with_partitions_of(known.file) if file is not None and known is not None else file,
        begins_after=known.begins_after if known else FIRST_POSITION,
        definition=_definition(table),
        file_names=file_names(article),
    )


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
