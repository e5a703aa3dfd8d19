"""A PostgreSQL Subscriber, looked at and set up: one subscription's end in one database."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from tranrepl.errors import ConfigurationError, CustomProcedureError
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.catalogue import TableDescription
from tranrepl.model.names import TableName
from tranrepl.model.schema_change import SchemaChange
from tranrepl.postgres.session import Session, translated_errors
from tranrepl.settings.publication import Article
from tranrepl.settings.registration import PublishedTables
from tranrepl.subscriber.base.generated_procedures import GeneratedProcedure
from tranrepl.subscriber.base.subscriber import Subscriber
from tranrepl.subscriber.constraints import Constraints
from tranrepl.subscriber.postgres.article_check import article_problems, article_warnings, custom_problems
from tranrepl.subscriber.postgres.core import core
from tranrepl.subscriber.postgres.database import POSTGRES
from tranrepl.subscriber.postgres.destination import constraints_of, find_targets, has_destination, intended_target
from tranrepl.subscriber.postgres.ownership import LET_OWNER, lets_procedures_follow, not_owned
from tranrepl.subscriber.postgres.partition_rows import why_rows_unknown
from tranrepl.subscriber.postgres.partition_setup import missing_partitions
from tranrepl.subscriber.postgres.procedure_setup import made_procedures
from tranrepl.subscriber.postgres.procedures import custom_procedures, generated_procedures
from tranrepl.subscriber.postgres.rights_check import right_problems
from tranrepl.subscriber.postgres.sequences import PostgresSequences
from tranrepl.subscriber.postgres.session_settings import make_durable
from tranrepl.subscriber.postgres.table_setup import create_destination
from tranrepl.subscriber.procedure_names import PREFIXES, Scripted, generates
from tranrepl.subscriber.subscription import SubscriptionKey


class PostgresSubscriber(Subscriber):
    """Over a session of psycopg; what it does is done by modules of their own."""

    def __init__(self, session: Session, key: SubscriptionKey) -> None:
        super().__init__(core(session), POSTGRES, key)
        self._session = session

    # Checks

    def article_problems(
        self, article: Article, source: TableDescription, known: RegisteredArticle | None = None
    ) -> Iterator[ConfigurationError]:
        yield from self._procedure_problems(article, source)
        yield from article_problems(self._session, self._key, article, source, known)

    def article_warnings(self, article: Article, source: TableDescription) -> Iterator[str]:
        return article_warnings(self._session, self.where, article, source)

    def right_problems(self, tables: PublishedTables) -> Iterator[ConfigurationError]:
        return right_problems(self._session, self.where, [article for article, _ in tables])

    def schema_change_warnings(self, articles: Sequence[Article]) -> Iterator[str]:
        with translated_errors(self.where):
            problems = [not_owned(self._session, self.where, it.destination_table) for it in articles]
            calls = any(generates(article.propagation(it)) for article in articles for it in PREFIXES)
            statements = lets_procedures_follow(self._session) if calls else []
        yield from (f"{it.message}; {it.report.remedy}" for it in problems if it is not None)
        if statements:
            yield (
                f"{self.where}: our role may not replace generated procedures, which the Publisher's schema changes "
                f"need; {LET_OWNER} {' '.join(f'{it};' for it in statements)}"
            )

    def custom_problems(self, article: RegisteredArticle, source: TableDescription) -> Iterator[CustomProcedureError]:
        return custom_problems(self._session, self.where, article, source)

    # Setup

    def has_destination(self, table: TableName) -> bool:
        return has_destination(self._session, self.where, table)

    def lacking_partitions(self, article: Article, source: TableDescription) -> Mapping[TableName, TableName]:
        with translated_errors(self.where):
            return {it.partition: it.there for it in missing_partitions(self._session, article, source)}

    def set_up_destination(
        self, article: Article, source: TableDescription, referencing: Collection[str] = ()
    ) -> list[str]:
        # A column has the same type with and without a foreign key.
        del referencing
        return create_destination(self._session, self.where, self._key, article, source)

    def _generated(self, articles: Sequence[RegisteredArticle]) -> list[GeneratedProcedure]:
        return [it for at in find_targets(self._session, self.where, articles) for it in made_procedures(at)]

    def scripts(self, article: RegisteredArticle, source: TableDescription, what: Scripted) -> list[str]:
        target = intended_target(self._session, self.where, article, source)
        procedures = custom_procedures(target) if what is Scripted.CUSTOM else generated_procedures(target)
        return [it.create().as_string(self._session) for it in procedures]

    # Deliveries

    @property
    def sequences(self) -> PostgresSequences:
        return PostgresSequences(self._session, self._key, self.where)

    def constraints(self, articles: Sequence[RegisteredArticle]) -> Constraints:
        return constraints_of(self._session, self.where, find_targets(self._session, self.where, articles))

    def find_durable_watermark(self) -> bytes | None:
        found = self.find_watermark()
        with translated_errors(self.where), self._session.transaction():
            make_durable(self._session)
        return found

    def reload_reason(self, change: SchemaChange, old: RegisteredArticle) -> str | None:
        """Return why it is not known which rows went with a partition: otherwise the same ALTER TABLE gives the same
        rows."""
        return why_rows_unknown(change, old)
