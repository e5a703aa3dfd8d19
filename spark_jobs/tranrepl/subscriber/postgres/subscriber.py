"""A PostgreSQL Subscriber, looked at and set up: one subscription's end in one database."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

from psycopg import sql

from tranrepl.errors import ConfigurationError, CustomProcedureError
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.catalogue import TableDescription
from tranrepl.model.names import TableName
from tranrepl.model.schema_change import SchemaChange
from tranrepl.postgres.session import Session, translated_errors
from tranrepl.settings.publication import Article, Subscription
from tranrepl.settings.registration import PublishedTables
from tranrepl.subscriber.constraints import Constraints
from tranrepl.subscriber.foreign_keys import ForeignKey
from tranrepl.subscriber.postgres.article_check import article_problems, article_warnings, custom_problems
from tranrepl.subscriber.postgres.constraints import constraints_of
from tranrepl.subscriber.postgres.definitions import Definitions
from tranrepl.subscriber.postgres.destination import find_targets, has_destination, intended_target
from tranrepl.subscriber.postgres.durability import make_durable
from tranrepl.subscriber.postgres.ownership import LET_OWNER, lets_procedures_follow, not_owned
from tranrepl.subscriber.postgres.partition_rows import why_rows_unknown
from tranrepl.subscriber.postgres.partition_setup import missing_partitions
from tranrepl.subscriber.postgres.procedure_setup import create_procedures
from tranrepl.subscriber.postgres.procedures import custom_procedures, generated_procedures
from tranrepl.subscriber.postgres.replication_tables import (
    MINE,
    SNAPSHOTS,
    create_model_tables,
    find_version,
    has_table,
    key_values,
    refuse_tables_of_others,
)
from tranrepl.subscriber.postgres.rights_check import right_problems
from tranrepl.subscriber.postgres.sequences import PostgresSequences
from tranrepl.subscriber.postgres.session_settings import replica_role_problems
from tranrepl.subscriber.postgres.table_setup import create_destination, create_foreign_key
from tranrepl.subscriber.postgres.watermark import Watermark
from tranrepl.subscriber.procedure_names import PREFIXES, generates
from tranrepl.subscriber.shared_tables import Claim
from tranrepl.subscriber.subscriber import Scripted
from tranrepl.subscriber.subscription import ALONE, SubscriptionKey, SubscriptionPosition
from tranrepl.subscriber.tables_version import TablesVersion


class PostgresSubscriber:
    """Every part of `Subscriber`, each done by a module of its own."""

    def __init__(self, session: Session, key: SubscriptionKey) -> None:
        self._session = session
        self._key = key
        self.where = f"Subscriber {key.subscription}"
        self._watermark = Watermark(session, key, self.where)

    # Checks

    def subscription_problems(self, subscription: Subscription) -> Iterator[ConfigurationError]:
        if subscription.not_for_replication:
            yield from replica_role_problems(self._session, self.where)

    def warnings(self, tables: PublishedTables) -> Iterator[str]:
        del tables
        yield from ()

    def reading_together(self, tables: PublishedTables) -> AbstractContextManager[None]:
        """Read nothing ahead: each article asks by itself."""
        del tables
        return nullcontext()

    def article_problems(
        self, article: Article, source: TableDescription, known: RegisteredArticle | None = None
    ) -> Iterator[ConfigurationError]:
        return article_problems(self._session, self._key, article, source, known)

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

    def tables_version(self) -> TablesVersion | None:
        """Return which version made the model's tables; None where they are not there."""
        with translated_errors(self.where):
            return find_version(self._session)

    def set_up_tables(self) -> None:
        with translated_errors(self.where), self._session.transaction():
            refuse_tables_of_others(self._session, self.where)
            found = find_version(self._session)
            if found is not None:
                found.require_not_newer(self.where)
            create_model_tables(self._session)

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

    def set_up_foreign_key(self, key: ForeignKey, *, new: bool) -> list[str]:
        return create_foreign_key(self._session, self.where, key, new=new)

    def set_up_procedures(self, articles: Sequence[RegisteredArticle]) -> list[str]:
        targets = find_targets(self._session, self.where, articles)
        return create_procedures(self._session, self.where, self._key, targets)

    def set_up_watermark(self) -> list[str]:
        return self._watermark.set_up()

    def scripts(self, article: RegisteredArticle, source: TableDescription, what: Scripted) -> list[str]:
        """Return `CREATE PROCEDURE` statements, as they fit the table that is there, or that setup would create."""
        target = intended_target(self._session, self.where, article, source)
        procedures = custom_procedures(target) if what is Scripted.CUSTOM else generated_procedures(target)
        return [it.create().as_string(self._session) for it in procedures]

    # Deliveries

    @property
    def sequences(self) -> PostgresSequences:
        return PostgresSequences(self._session, self._key, self.where)

    def constraints(self, articles: Sequence[RegisteredArticle]) -> Constraints:
        return constraints_of(self._session, self.where, find_targets(self._session, self.where, articles))

    def set_up_streams(self, streams: int) -> None:
        self._watermark.set_up_streams(streams)

    def position(self) -> SubscriptionPosition:
        return self._watermark.position()

    def watermark(self) -> bytes:
        return self._watermark.required()

    def find_watermark(self) -> bytes | None:
        return self._watermark.find()

    def find_durable_watermark(self) -> bytes | None:
        found = self.find_watermark()
        with translated_errors(self.where), self._session.transaction():
            make_durable(self._session)
        return found

    def move_watermark(self, expected: bytes, xact_seqno: bytes) -> None:
        self._watermark.move(expected, xact_seqno)

    def hold(self, position: SubscriptionPosition) -> None:
        """Lock the watermark in the transaction that is open. Raises FencedError where another job was here since."""
        self._watermark.lock(position.watermark, ALONE, position.unfinished)

    # Definitions

    def definitions(self) -> dict[str, int]:
        with translated_errors(self.where):
            return Definitions(self._session, self._key).recorded()

    def reload_reason(self, change: SchemaChange, old: RegisteredArticle) -> str | None:
        """Return why it is not known which rows went with a partition: otherwise the same ALTER TABLE gives the same
        rows."""
        return why_rows_unknown(change, old)

    def record_definitions(self, articles: Sequence[RegisteredArticle]) -> None:
        with translated_errors(self.where), self._session.transaction():
            Definitions(self._session, self._key).record(articles)

    def release_tables(self, kept: Sequence[str]) -> None:
        with translated_errors(self.where), self._session.transaction():
            Definitions(self._session, self._key).release(kept)

    def claims(self) -> list[Claim]:
        with translated_errors(self.where), self._session.transaction():
            return Definitions(self._session, self._key).claims()

    # Snapshots

    def has_snapshots(self) -> bool:
        """Return whether `MSreplication_snapshots` is there."""
        return has_table(self._session, SNAPSHOTS)

    def initialized_articles(self) -> dict[str, bytes]:
        """Return by article (source) the last transaction that is in the snapshot which its table began with."""
        with translated_errors(self.where):
            rows = self._session.execute(
                sql.SQL(
                    "SELECT article, xact_seqno FROM {} WHERE {} AND range_number = 0 AND xact_seqno IS NOT NULL"
                ).format(SNAPSHOTS, MINE),
                key_values(self._key)[1:],
            ).fetchall()
        return {article: bytes(seqno) for article, seqno in rows}
