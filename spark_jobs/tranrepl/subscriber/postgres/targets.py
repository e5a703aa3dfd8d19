"""The articles of a delivery as they are at a PostgreSQL Subscriber, each read from its catalogue once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tranrepl.errors import InternalError
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.names import TableName
from tranrepl.postgres.session import Session
from tranrepl.subscriber.postgres.destination import find_targets
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
