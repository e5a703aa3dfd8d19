"""Whether the columns of a published table, and what the log carries of them, are what the article asks for."""

from __future__ import annotations

from collections.abc import Iterator

from tranrepl.errors import ConfigurationError
from tranrepl.model.catalogue import TableDescription
from tranrepl.model.commands import CallSyntax
from tranrepl.model.propagation import UpdatePolicy
from tranrepl.model.source_sql import is_type
from tranrepl.model.table_definition import Generation
from tranrepl.publisher.postgres.old_rows import needs_whole_rows
from tranrepl.settings.publication import Article
from tranrepl.spelling import did_you_mean


def before_image_problems(at: str, article: Article, table: TableDescription) -> Iterator[ConfigurationError]:
    """Yield a problem for settings that need more of a row than the log carries without REPLICA IDENTITY FULL."""
    key = {column.name for column in table.key}
    wanting = needs_whole_rows(article, key)
    # Without the old row, an unchanged TOASTed value is not in the log at all.
    if any(column.toastable and column.name not in key for column in table.published(article.columns)):
        if article.upd_cmd.syntax in (CallSyntax.CALL, CallSyntax.MCALL):
            wanting.append(f"upd_cmd: {article.upd_cmd.syntax}")
        if article.update_policy is UpdatePolicy.ALWAYS_PAIRS:
            wanting.append("update_policy: always_pairs")
    if wanting:
        yield ConfigurationError(
            f"{at}: the log carries no before image of the table, which is needed for {', '.join(wanting)}",
            remedy=f"ALTER TABLE {article.source} REPLICA IDENTITY FULL, or leave replica_identity out of the article; "
            "a table with a virtual generated column cannot have it",
        )


def type_problems(at: str, article: Article, table: TableDescription) -> Iterator[ConfigurationError]:
    for column in table.published(article.columns):
        if not is_type(column.type_name):
            yield ConfigurationError(
                f"{at}: column {column.name} is of type {column.type_name}, which is not read",
                remedy="leave the column out of the article's columns, or give it another type",
            )


def column_problems(at: str, article: Article, table: TableDescription) -> Iterator[ConfigurationError]:
    names = {column.name for column in table.columns}
    publishable = [column.name for column in table.publishable()]
    for name in article.columns or ():
        if name not in names:
            yield ConfigurationError(
                f"{at}: columns: {name!r} does not exist",
                remedy=f"{did_you_mean(name, publishable)} allowed: {', '.join(publishable)}".lstrip(),
            )
        elif name not in publishable:
            yield ConfigurationError(
                f"{at}: columns: {name!r} is generated, it is computed at the Subscriber",
                remedy=f"allowed: {', '.join(publishable)}",
            )
    published = {column.name for column in table.published(article.columns)}
    for name in article.lob_columns:
        if name not in published:
            yield ConfigurationError(
                f"{at}: lob_columns: {name!r} is not published",
                remedy=f"{did_you_mean(name, published)} allowed: {', '.join(sorted(published))}".lstrip(),
            )
    left_out = [
        column.name for column in table.key if article.columns is not None and column.name not in article.columns
    ]
    if left_out:
        yield ConfigurationError(
            f"{at}: columns: primary key column {', '.join(left_out)} is left out (error 21250)",
            remedy="add it to columns: the key is what finds a row at the Subscriber",
        )
    for column in table.key:
        if column.generation is not Generation.NONE:
            yield ConfigurationError(
                f"{at}: primary key column {column.name} is generated", remedy="allowed: a plain column"
            )
