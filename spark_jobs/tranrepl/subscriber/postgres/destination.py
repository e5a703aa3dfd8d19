"""Destination tables of a PostgreSQL Subscriber, as its catalogue has them or setup would create them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tranrepl.errors import InternalError
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.catalogue import TableDescription
from tranrepl.model.names import TableName
from tranrepl.postgres.catalogue import describe_table, describe_tables
from tranrepl.postgres.session import Session, translated_errors
from tranrepl.subscriber.base.destination import column_texts
from tranrepl.subscriber.missing_columns import lost_columns, no_table
from tranrepl.subscriber.postgres.column_types import PublishersType
from tranrepl.subscriber.postgres.database import POSTGRES
from tranrepl.subscriber.postgres.procedures import Target


class Targets:
    def __init__(self, session: Session, where: str, articles: Mapping[int, RegisteredArticle]) -> None:
        self._session = session
        self._where = where
        self._articles = articles
        self._found: dict[int, Target] = {}

    def find(self, article_ids: Iterable[int]) -> None:
        """Read those that are not known yet, all at once.

        Raises ConfigurationError where a table or a column is missing.
        """
        unknown = sorted(set(article_ids).difference(self._found))
        if unregistered := [it for it in unknown if it not in self._articles]:
            raise InternalError(f"{self._where}: a stored command is of unknown article {unregistered[0]}")
        if unknown:
            targets = find_targets(self._session, self._where, [self._articles[it] for it in unknown])
            self._found |= dict(zip(unknown, targets, strict=True))

    def forget(self, table: TableName | None = None) -> None:
        """Forget what is known of a destination that a schema change has altered; of all, where none is given."""
        if table is None:
            self._found.clear()
        else:
            self._found = {number: it for number, it in self._found.items() if it.article.destination != table}

    def __getitem__(self, article_id: int) -> Target:
        self.find([article_id])
        return self._found[article_id]


def find_destination(session: Session, where: str, table: TableName) -> TableDescription | None:
    """Describe a table; None where there is none."""
    with translated_errors(where):
        return describe_table(session, table)


def find_targets(session: Session, where: str, articles: Sequence[RegisteredArticle]) -> list[Target]:
    """Return the articles at this Subscriber. Raises ConfigurationError where a table or a column is missing."""
    with translated_errors(where):
        tables = describe_tables(session, [it.destination for it in articles])
    return [_target(where, article, tables.get(article.destination)) for article in articles]


def _target(where: str, article: RegisteredArticle, table: TableDescription | None) -> Target:
    if table is None:
        raise no_table(where, article)
    columns = [table.column(column.name) for column in article.columns]
    missing = [column for column, found in zip(article.columns, columns, strict=True) if found is None]
    if missing:
        published = {it.name for it in article.columns}
        others = [it.name for it in table.columns if it.name not in published]
        types = {it.name: PublishersType(it.type_name) for it in missing}
        texts = column_texts(POSTGRES, article.destination, types)
        raise lost_columns(where, article, [it.name for it in missing], others, texts, comparison=True)
    return Target(article, table, tuple(column for column in columns if column is not None))


def intended_target(session: Session, where: str, article: RegisteredArticle, source: TableDescription) -> Target:
    """Return the article as `find_targets` does; where the table or a column does not exist yet, as setup or a schema
    change would create it, with the Publisher's types."""
    table = find_destination(session, where, article.destination) or source
    columns = [table.column(column.name) or source.column(column.name) for column in article.columns]
    return Target(article, table, tuple(column for column in columns if column is not None))
