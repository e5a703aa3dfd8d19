"""Whether a column of a table that is there can take what is published."""

from __future__ import annotations

from collections.abc import Iterator

from tranrepl.catalogue import ColumnDescription
from tranrepl.commands import Method, Propagation
from tranrepl.errors import ConfigurationError
from tranrepl.settings import Article
from tranrepl.subscriber.sql_target import Destination


def column_problems(
    where: str, article: Article, found: Destination, column: ColumnDescription
) -> Iterator[ConfigurationError]:
    """What keeps the Subscriber's column from it, with its way out."""
    at = f"article {article.source}: {where}"
    if column.name not in found.columns:
        yield ConfigurationError(
            f"{at}: table {article.destination_table} has no column {column.name!r}",
            remedy="add it to the table, or leave the column out of the article",
        )
    elif not found.settable(column.name):
        yield ConfigurationError(
            f"{at}: column {column.name!r} of {article.destination_table} is generated",
            remedy="a published column must be a plain one at the Subscriber",
        )
    elif found.is_identity(column.name) and any(map(_sets_values, (article.ins_cmd, article.upd_cmd))):
        yield ConfigurationError(
            f"{at}: column {column.name!r} of {article.destination_table} is an identity, to which neither INSERT nor "
            "UPDATE may give the Publisher's value",
            remedy="a published column must be a plain one at the Subscriber; or let custom procedures apply both",
        )


def _sets_values(propagation: Propagation) -> bool:
    """Whether the statement is ours."""
    return propagation.method is not Method.NONE and propagation.procedure is None
