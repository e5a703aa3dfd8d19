"""What of a PostgreSQL Subscriber's catalogue decides how commands are applied: read once, and again for a table that a
schema change alters."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tranrepl.model.article import RegisteredArticle
from tranrepl.model.commands import Operation
from tranrepl.model.names import TableName
from tranrepl.postgres.session import Session
from tranrepl.subscriber.batching.steps import Operations
from tranrepl.subscriber.postgres.bulk_rules import BulkRules, bulk_rules, is_called, unedited_procedures


class ApplyRules:
    """The rules of one session's articles."""

    def __init__(self, session: Session, articles: Mapping[int, RegisteredArticle]) -> None:
        self._session = session
        self._articles = articles
        self.unedited: frozenset[tuple[int, Operation]] = unedited_procedures(session, articles)
        """Whose generated procedures are as setup made them."""
        self.bulk: BulkRules = bulk_rules(session, articles, self.unedited)
        self.operations: Mapping[int, Operations] = self.bulk.operations
        """What may go in bulk; another object from the moment on that it is something else."""

    def runs_code(self, article_id: int, operation: Operation) -> bool:
        """Return whether a command that is applied serially runs code of users: a trigger, a rule, or a procedure that
        is not as setup made it."""
        acting = Operation.DELETE if operation is Operation.TRUNCATE else operation
        if acting in self.bulk.code.get(article_id, ()):
            return True
        return is_called(self._articles[article_id], operation, self.unedited)

    def renew(self, destinations: Collection[TableName]) -> None:
        """Read again what concerns these tables, and the foreign keys among all."""
        altered = {number: it for number, it in self._articles.items() if it.destination in destinations}
        others = frozenset(it for it in self.unedited if it[0] not in altered)
        self.unedited = others | unedited_procedures(self._session, altered)
        self.bulk = bulk_rules(self._session, altered, self.unedited, self.bulk)
        if self.bulk.operations != self.operations:
            self.operations = self.bulk.operations
