"""The distribution database: publications, articles, registered batches, history.

`msrepl_batches` is what makes a folder of the store exist. Its row and the log reader's watermark are written in one
transaction, under a comparison with the watermark that the batch was read from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, OperationalError

from tranrepl.connections import Connection
from tranrepl.distributor.free_text import writable
from tranrepl.distributor.tables import (
    ArticleStatus,
    RunStatus,
    SubscriptionStatus,
    msarticle_subscriptions,
    msarticles,
    msdistribution_history,
    mslogreader_history,
    mspublications,
    msrepl_batches,
    msrepl_errors,
    mssubscriptions,
)
from tranrepl.error_numbers import Codes
from tranrepl.errors import (
    MUST_BE_REINITIALIZED,
    ConfigurationError,
    ErrorKind,
    ErrorReport,
    FencedError,
    MustBeReinitializedError,
    ReplicationError,
    TransientError,
)
from tranrepl.jobs.results import JobResult, TableProgress
from tranrepl.jobs.validation_report import passed_comments
from tranrepl.model.article import PublishedColumn, RegisteredArticle
from tranrepl.model.commands import FIRST_XACT_SEQNO
from tranrepl.model.names import TableName
from tranrepl.model.position import FIRST_POSITION, Position, seqnos_of_one_place
from tranrepl.model.table_file import TableFile
from tranrepl.postgres.session import Session, connect, translated_errors
from tranrepl.settings.publication import Article, Publication

_MIGRATIONS = Path(__file__).parent / "migrations"
_NOT_MIGRATED_STATES = ("42P01", "42703")
_LASTING_COMMITS = (
    "SELECT pg_catalog.set_config('synchronous_commit', 'on', false) "
    "WHERE pg_catalog.current_setting('synchronous_commit') = 'off'"
)


@dataclass(frozen=True, slots=True)
class PublicationRecord:
    """A publication as registered. All of the log before `registered_to` is registered."""

    publication_id: int
    publication: str
    store: str
    slot_name: str
    registered_xact_seqno: bytes | None
    registered_to: Position | None
    removed_xact_seqno: bytes | None = None
    """Last transaction whose commands clean-up has removed."""
    read_from: Position | None = None
    """Where reading the log began; None where an earlier version began it."""
    publisher_system: str | None = None
    """System identifier of the server whose log is registered; None before it is."""
    timeline: int | None = None
    """Of that log, at `registered_to`."""
    registered_commit_time: datetime | None = None
    """By which the last registered transaction was committed; None where an earlier version registered it."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Commands of whole transactions, in one folder of the store."""

    folder: str
    first_xact_seqno: bytes
    last_xact_seqno: bytes
    first_commit_time: datetime
    last_commit_time: datetime
    transactions: int
    commands: int
    log_bytes: int
    """Bytes of the log messages it was made of: what its commands weigh, roughly."""


@dataclass(frozen=True, slots=True)
class SubscriptionRecord:
    subscription_id: int
    subscription: str
    status: SubscriptionStatus
    subscriber_db: str
    subscription_seqno: bytes | None = None
    """The watermark that it began with, where a snapshot was its beginning."""


@dataclass(frozen=True, slots=True)
class ArticleState:
    """An article of a subscription that is to have a snapshot, or has had one."""

    status: SubscriptionStatus
    xact_seqno: bytes | None
    """Active: the Subscriber's table began with all up to this transaction. Initiated: it will begin no earlier."""
    reason: str | None = None
    """Why it waits, or (inactive) was stopped."""
    earlier_filter: str | None = None
    """True for rows that the Subscriber's table has of it, where its row filter changed."""


@dataclass(frozen=True, slots=True)
class UnknownRows:
    """Why an article's rows may not be the Publisher's any more."""

    reason: str
    earlier_filter: str | None = None
    """As in `ArticleState`."""


@dataclass(frozen=True, slots=True)
class RunRow:
    """A history row that its run still writes."""

    id: int
    record: PublicationRecord
    subscription: SubscriptionRecord | None


class DistributionDatabase:
    """Opened for one job or one command, and closed at its end: `with DistributionDatabase(connection) as database`."""

    def __init__(self, connection: Connection) -> None:
        self.where = f"distribution database {connection.database}"
        self._connection = connection
        self._engine = sa.create_engine(
            "postgresql+psycopg://",
            creator=self._connect,
            # One session serves a job, which has a dozen short transactions; what threads need beside it is not kept.
            pool_size=1,
            max_overflow=-1,
            pool_pre_ping=True,
            hide_parameters=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._engine.dispose()

    def _connect(self) -> Session:
        session = connect(self._connection, "tranrepl", autocommit=True)
        # What is registered must be there after a crash: the Publisher's log goes on after it.
        with translated_errors(self.where):
            session.execute(_LASTING_COMMITS)
        session.autocommit = False
        return session

    def transaction(self) -> AbstractContextManager[sa.Connection]:
        """A transaction of its own, with our errors: for what has a module of its own."""
        return self._begin()

    @contextmanager
    def _begin(self) -> Iterator[sa.Connection]:
        try:
            with self._engine.begin() as connection:
                yield connection
        except DBAPIError as error:
            raise self._translate(error) from error

    def _translate(self, error: DBAPIError) -> ReplicationError:
        state = getattr(error.orig, "sqlstate", None)
        text = " ".join(str(error.orig).split())
        if state in _NOT_MIGRATED_STATES:
            return ConfigurationError(f"{self.where} has no current schema", remedy="run `tranrepl setup FILE`")
        if state is None and isinstance(error, OperationalError):
            return TransientError(
                f"connection {self._connection}: {text}", remedy="check host and port, and that the server runs"
            )
        if isinstance(error, OperationalError):
            return TransientError(f"{self.where}: {text}", **Codes.POSTGRES.value.numbered(state))
        return ConfigurationError(f"{self.where}: {text}", **Codes.POSTGRES.value.numbered(state))

    def migrate(self) -> None:
        """Bring the schema to this version. Idempotent."""
        # Nothing for jobs, which start often.
        from alembic import command
        from alembic.config import Config

        with self._begin() as connection:
            config = Config()
            config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
            config.attributes["connection"] = connection
            command.upgrade(config, "head")

    def is_current(self) -> bool:
        """Whether it has a schema of ours, of this version."""
        with self._begin() as connection:
            inspector = sa.inspect(connection)
            if not inspector.has_table(mspublications.name):
                return False
            found = {column["name"] for column in inspector.get_columns(mspublications.name)}
            return found >= {column.name for column in mspublications.columns}

    def ping(self) -> None:
        """Raises ConfigurationError or TransientError where the database cannot be used."""
        with self._begin() as connection:
            schema = connection.scalar(sa.select(sa.func.current_schema()))
        if schema is None:
            raise ConfigurationError(
                f"{self.where}: search_path names no schema that is there: the tables have no place",
                remedy=f'ALTER ROLE "{self._connection.login}" SET search_path = public, or another schema of its own',
            )

    # Publications and articles

    def find_publication(self, name: str) -> PublicationRecord | None:
        with self._begin() as connection:
            row = connection.execute(
                sa.select(mspublications).where(mspublications.c.publication == name)
            ).one_or_none()
        return _publication(row) if row else None

    def publication(self, name: str) -> PublicationRecord:
        """Raises ConfigurationError where it is not set up."""
        record = self.find_publication(name)
        if record is None or record.registered_to is None or record.publisher_system is None:
            raise ConfigurationError(
                f"{self.where}: publication {name} is not set up", remedy="run `tranrepl setup FILE`"
            )
        return record

    def set_up_publication(
        self, publication: Publication, publisher_db: str, slot_name: str, system: str, timeline: int
    ) -> PublicationRecord:
        """Register the publication, or renew what may change: the store, and whose log it is as long as nothing of a
        log is registered.

        Raises ConfigurationError where the publication of this name is another Publisher's.
        """
        values = {"publisher_db": publisher_db, "slot_name": slot_name, "store": publication.distributor.store}
        with self._begin() as connection:
            known = connection.execute(
                sa.select(mspublications)
                .where(mspublications.c.publication == publication.publication)
                .with_for_update()
            ).one_or_none()
            if known is None:
                connection.execute(mspublications.insert().values(publication=publication.publication, **values))
            elif (known.publisher_db, known.slot_name) != (publisher_db, slot_name):
                raise ConfigurationError(
                    f"{self.where}: publication {publication.publication} belongs to Publisher database "
                    f"{known.publisher_db}",
                    remedy="give this publication another name",
                )
            elif known.registered_lsn is not None and known.publisher_system not in (None, system):
                raise another_publisher(self.where, publication.publication, known.publisher_system, system)
            elif known.store != publication.distributor.store and known.registered_xact_seqno is not None:
                raise ConfigurationError(
                    f"{self.where}: publication {publication.publication} has stored commands in {known.store}",
                    remedy=f"move that folder to {publication.distributor.store} and update mspublications.store, "
                    "or keep the store",
                )
            else:
                connection.execute(
                    mspublications.update()
                    .where(mspublications.c.publication_id == known.publication_id)
                    .values(store=publication.distributor.store)
                )
            # An earlier version registered a log without saying whose.
            connection.execute(
                mspublications.update()
                .where(
                    mspublications.c.publication == publication.publication,
                    sa.or_(mspublications.c.registered_lsn.is_(None), mspublications.c.publisher_system.is_(None)),
                )
                .values(publisher_system=system, timeline=timeline)
            )
            row = connection.execute(
                sa.select(mspublications).where(mspublications.c.publication == publication.publication)
            ).one()
        return _publication(row)

    def start_watermark(self, record: PublicationRecord, position: Position) -> None:
        """Where a new slot begins to read."""
        with self._begin() as connection:
            connection.execute(
                mspublications.update()
                .where(
                    mspublications.c.publication_id == record.publication_id, mspublications.c.registered_lsn.is_(None)
                )
                .values(registered_lsn=position.value, start_lsn=position.value)
            )

    def renew_position(self, record: PublicationRecord, position: Position, timeline: int) -> PublicationRecord:
        """The log goes on from `position` on another timeline than is registered, or from before what is.

        Raises FencedError where another log reader was faster.
        """
        with self._begin() as connection:
            moved = connection.execute(
                mspublications.update()
                .where(_at_position(record))
                .values(registered_lsn=position.value, timeline=timeline)
            )
            if moved.rowcount != 1:
                raise self._overtaken(record)
        return replace(record, registered_to=position, timeline=timeline)

    def _overtaken(self, record: PublicationRecord) -> FencedError:
        return FencedError(
            f"{self.where}: another log reader of publication {record.publication} has registered this part of the log"
        )

    def forget_log(self, record: PublicationRecord, statuses: Mapping[str, SubscriptionStatus]) -> None:
        """Forget what is registered of the log, stored commands among it, as the log is about to be read anew.

        Each subscription gets the status of its name, and waits like that until it has a new beginning: a job that dies
        meanwhile leaves nothing that is delivered from the wrong place.
        """
        mine = mspublications.c.publication_id == record.publication_id
        with self._begin() as connection:
            connection.execute(msrepl_batches.delete().where(msrepl_batches.c.publication_id == record.publication_id))
            connection.execute(mspublications.update().where(mine).values(dict.fromkeys(_LOG_COLUMNS)))
            # Rows that begin anew do so in the log that is forgotten.
            connection.execute(
                msarticles.update()
                .where(msarticles.c.publication_id == record.publication_id)
                .values(begins_after=None, source_file=None)
            )
            for row in connection.execute(
                sa.select(mssubscriptions).where(mssubscriptions.c.publication_id == record.publication_id)
            ).all():
                subscription = mssubscriptions.c.subscription_id == row.subscription_id
                status = statuses.get(row.subscription, SubscriptionStatus.INACTIVE)
                connection.execute(
                    mssubscriptions.update().where(subscription).values(status=status, subscription_seqno=None)
                )
                connection.execute(
                    msarticle_subscriptions.delete().where(
                        msarticle_subscriptions.c.subscription_id == row.subscription_id
                    )
                )

    def set_up_articles(
        self, record: PublicationRecord, wanted: Sequence[RegisteredArticle]
    ) -> list[RegisteredArticle]:
        """Register articles, whose `article_id` is 0, unless the very same is active. Others become inactive."""
        with self._begin() as connection:
            active = self._articles(connection, record, ArticleStatus.ACTIVE)
            asked = {article.source: article for article in wanted}
            kept = {it.source: it for it in active if it.source in asked and it.same_definition(asked[it.source])}
            connection.execute(
                msarticles.update()
                .where(
                    msarticles.c.publication_id == record.publication_id,
                    msarticles.c.article_id.not_in([article.article_id for article in kept.values()]),
                )
                .values(status=ArticleStatus.INACTIVE)
            )
            for article in wanted:
                if article.source not in kept:
                    connection.execute(msarticles.insert().values(**_article_values(record, article)))
                else:
                    _renew(connection, kept[article.source].article_id, article)
            return self._articles(connection, record, ArticleStatus.ACTIVE)

    def renew_articles(self, articles: Iterable[RegisteredArticle]) -> None:
        """Register what changes without the definition: the table's file, and after which point rows begin anew."""
        with self._begin() as connection:
            for article in articles:
                _renew(connection, article.article_id, article)

    def registered_articles(self, record: PublicationRecord) -> list[RegisteredArticle]:
        """The definitions in force."""
        with self._begin() as connection:
            return self._articles(connection, record, ArticleStatus.ACTIVE)

    def active_articles(self, publication: Publication, record: PublicationRecord) -> list[RegisteredArticle]:
        """The articles to read. Raises ConfigurationError where the file was changed and not set up since."""
        with self._begin() as connection:
            articles = self._articles(connection, record, ArticleStatus.ACTIVE)
        registered = {article.source: article for article in articles}
        for article in publication.articles:
            if not _agrees(article, registered.get(article.source)):
                raise _changed(publication, article.source)
        for source in registered.keys() - {article.source for article in publication.articles}:
            raise _changed(publication, source)
        return articles

    def all_articles(self, record: PublicationRecord) -> dict[int, RegisteredArticle]:
        """Every definition that stored commands may refer to, by `article_id`."""
        with self._begin() as connection:
            articles = self._articles(connection, record, *ArticleStatus)
        return {article.article_id: article for article in articles}

    def _articles(
        self, connection: sa.Connection, record: PublicationRecord, *statuses: ArticleStatus
    ) -> list[RegisteredArticle]:
        rows = connection.execute(
            sa.select(msarticles)
            .where(msarticles.c.publication_id == record.publication_id, msarticles.c.status.in_(statuses))
            .order_by(msarticles.c.article_id)
        )
        return [_article(row) for row in rows]

    # Subscriptions

    def set_up_subscription(
        self,
        record: PublicationRecord,
        name: str,
        subscriber_db: str,
        status: SubscriptionStatus = SubscriptionStatus.ACTIVE,
    ) -> SubscriptionRecord:
        """Register a new subscription, of this status; one that is there is left alone."""
        with self._begin() as connection:
            found = self._subscription(connection, record, name)
            if found is None:
                connection.execute(
                    mssubscriptions.insert().values(
                        publication_id=record.publication_id,
                        subscription=name,
                        subscriber_db=subscriber_db,
                        status=status,
                    )
                )
        return self.subscription(record, name)

    def find_subscription(self, record: PublicationRecord, name: str) -> SubscriptionRecord | None:
        with self._begin() as connection:
            row = self._subscription(connection, record, name)
        return None if row is None else _subscription(row)

    def subscription(self, record: PublicationRecord, name: str) -> SubscriptionRecord:
        """Raises ConfigurationError where it is not set up."""
        with self._begin() as connection:
            row = self._subscription(connection, record, name)
        if row is None:
            raise ConfigurationError(
                f"{self.where}: subscription {name} of publication {record.publication} is not set up",
                remedy="run `tranrepl setup FILE`",
            )
        return _subscription(row)

    def active_subscriptions(self, record: PublicationRecord) -> list[SubscriptionRecord]:
        """Those that need stored commands, now or as soon as their snapshot is there."""
        return self._subscriptions(record, SubscriptionStatus.ACTIVE, SubscriptionStatus.INITIATED)

    def living_subscriptions(self, record: PublicationRecord) -> list[SubscriptionRecord]:
        """All that are not deactivated."""
        return self._subscriptions(record, *(it for it in SubscriptionStatus if it is not SubscriptionStatus.INACTIVE))

    def _subscriptions(self, record: PublicationRecord, *statuses: SubscriptionStatus) -> list[SubscriptionRecord]:
        with self._begin() as connection:
            rows = connection.execute(
                sa.select(mssubscriptions)
                .where(
                    mssubscriptions.c.publication_id == record.publication_id,
                    mssubscriptions.c.status.in_(statuses),
                )
                .order_by(mssubscriptions.c.subscription_id)
            ).all()
        return [_subscription(row) for row in rows]

    def set_subscription_status(self, subscription: SubscriptionRecord, status: SubscriptionStatus) -> bool:
        """Whether it was another before."""
        with self._begin() as connection:
            changed = connection.execute(
                mssubscriptions.update()
                .where(
                    mssubscriptions.c.subscription_id == subscription.subscription_id,
                    mssubscriptions.c.status != status,
                )
                .values(status=status)
            )
        return changed.rowcount == 1

    def _subscription(self, connection: sa.Connection, record: PublicationRecord, name: str) -> sa.Row[Any] | None:
        return connection.execute(
            sa.select(mssubscriptions).where(
                mssubscriptions.c.publication_id == record.publication_id, mssubscriptions.c.subscription == name
            )
        ).one_or_none()

    # Snapshots. What a subscription's articles hold is told here before and after, never during: between `initiate` and
    # `activate`, nothing is delivered.

    def article_states(self, subscription: SubscriptionRecord) -> dict[str, ArticleState]:
        """Of the articles that wait for a snapshot or have had one, by source."""
        with self._begin() as connection:
            rows = connection.execute(
                sa.select(msarticle_subscriptions).where(
                    msarticle_subscriptions.c.subscription_id == subscription.subscription_id
                )
            ).all()
        return {row.article: _article_state(row) for row in rows}

    def subscribe(
        self,
        subscription: SubscriptionRecord,
        articles: Iterable[str],
        *,
        whole: bool,
        unknown: UnknownRows | None = None,
    ) -> None:
        """Let articles wait for a snapshot; `whole`: and the subscription with them."""
        with self._begin() as connection:
            for article in articles:
                self._set_article(connection, subscription, article, SubscriptionStatus.SUBSCRIBED, None, unknown)
            if whole:
                _set_status(connection, subscription, SubscriptionStatus.SUBSCRIBED)

    def stop_article(self, subscription: SubscriptionRecord, article: str, unknown: UnknownRows) -> None:
        """Let nothing be delivered to the subscription before somebody has seen to this article's rows."""
        known = self.article_states(subscription).get(article)
        # Where its snapshot began still counts, should its rows turn out to be right.
        began = known.xact_seqno if known else None
        with self._begin() as connection:
            self._set_article(connection, subscription, article, SubscriptionStatus.INACTIVE, began, unknown)

    def resume_articles(self, subscription: SubscriptionRecord, articles: Sequence[str]) -> None:
        """Of these, those that were stopped have the Publisher's rows."""
        stopped = sa.and_(
            _articles_of(subscription, articles), msarticle_subscriptions.c.status == SubscriptionStatus.INACTIVE
        )
        began = msarticle_subscriptions.c.subscription_seqno.is_not(None)
        with self._begin() as connection:
            connection.execute(msarticle_subscriptions.delete().where(stopped, ~began))
            connection.execute(
                msarticle_subscriptions.update()
                .where(stopped)
                .values(status=SubscriptionStatus.ACTIVE, reason=None, earlier_filter=None)
            )

    def initiate(self, record: PublicationRecord, subscription: SubscriptionRecord, articles: Iterable[str]) -> None:
        """A snapshot of these articles is about to begin. It will show all that is registered by now: what comes later
        is kept from clean-up.

        Raises ConfigurationError where the subscription was deactivated.
        """
        with self._begin() as connection:
            status = self._locked_status(connection, subscription)
            if status is SubscriptionStatus.INACTIVE:
                raise _deactivated(subscription)
            registered = connection.execute(
                sa.select(mspublications.c.registered_xact_seqno).where(
                    mspublications.c.publication_id == record.publication_id
                )
            ).scalar_one()
            for article in articles:
                self._set_article(
                    connection, subscription, article, SubscriptionStatus.INITIATED, registered or FIRST_XACT_SEQNO
                )
            if status is not SubscriptionStatus.ACTIVE:
                _set_status(connection, subscription, SubscriptionStatus.INITIATED)

    def record_snapshot(self, subscription: SubscriptionRecord, articles: Sequence[str], xact_seqno: bytes) -> None:
        """Where the snapshot begins. Raises FencedError where it was called off meanwhile."""
        with self._begin() as connection:
            self._locked_status(connection, subscription)
            changed = connection.execute(
                msarticle_subscriptions.update()
                .where(
                    _articles_of(subscription, articles),
                    msarticle_subscriptions.c.status == SubscriptionStatus.INITIATED,
                )
                .values(subscription_seqno=xact_seqno)
            )
            if changed.rowcount != len(articles):
                raise self._another_snapshot(subscription)

    def activate(
        self, subscription: SubscriptionRecord, articles: Sequence[str], xact_seqno: bytes, *, whole: bool
    ) -> None:
        """The Subscriber has the snapshot that began there: deliveries may go on. `whole`: it is the subscription's
        beginning. Raises FencedError where another
        snapshot has begun since, ConfigurationError where the subscription was deactivated."""
        with self._begin() as connection:
            status = self._locked_status(connection, subscription)
            if status is SubscriptionStatus.INACTIVE:
                raise _deactivated(subscription)
            changed = connection.execute(
                msarticle_subscriptions.update()
                .where(
                    _articles_of(subscription, articles),
                    msarticle_subscriptions.c.status == SubscriptionStatus.INITIATED,
                    msarticle_subscriptions.c.subscription_seqno == xact_seqno,
                )
                .values(status=SubscriptionStatus.ACTIVE, time=sa.func.now(), reason=None, earlier_filter=None)
            )
            if changed.rowcount != len(articles):
                raise self._another_snapshot(subscription)
            _set_status(connection, subscription, SubscriptionStatus.ACTIVE)
            if whole:
                connection.execute(
                    mssubscriptions.update()
                    .where(mssubscriptions.c.subscription_id == subscription.subscription_id)
                    .values(subscription_seqno=xact_seqno)
                )

    def forget_snapshots(self, subscription: SubscriptionRecord) -> None:
        """It begins with rows that were loaded by hand: those of snapshots are gone, and none is waited for."""
        with self._begin() as connection:
            connection.execute(
                mssubscriptions.update()
                .where(mssubscriptions.c.subscription_id == subscription.subscription_id)
                .values(subscription_seqno=None)
            )
            connection.execute(
                msarticle_subscriptions.delete().where(
                    msarticle_subscriptions.c.subscription_id == subscription.subscription_id
                )
            )

    def _another_snapshot(self, subscription: SubscriptionRecord) -> FencedError:
        return FencedError(
            f"{self.where}: another snapshot of subscription {subscription.subscription} has begun; this one has ended"
        )

    def _locked_status(self, connection: sa.Connection, subscription: SubscriptionRecord) -> SubscriptionStatus:
        query = sa.select(mssubscriptions.c.status).where(
            mssubscriptions.c.subscription_id == subscription.subscription_id
        )
        return SubscriptionStatus(connection.execute(query.with_for_update()).scalar_one())

    def _set_article(
        self,
        connection: sa.Connection,
        subscription: SubscriptionRecord,
        article: str,
        status: SubscriptionStatus,
        xact_seqno: bytes | None,
        unknown: UnknownRows | None = None,
    ) -> None:
        values: dict[str, object] = {"status": status, "subscription_seqno": xact_seqno}
        if unknown is not None:
            values |= {"reason": unknown.reason, "earlier_filter": unknown.earlier_filter}
        updated = connection.execute(
            msarticle_subscriptions.update()
            .where(_articles_of(subscription, [article]))
            .values(**values, time=sa.func.now())
        )
        if updated.rowcount == 0:
            connection.execute(
                msarticle_subscriptions.insert().values(
                    subscription_id=subscription.subscription_id, article=article, **values
                )
            )

    # Batches

    def register_batch(self, record: PublicationRecord, batch: Batch | None, end: Position) -> PublicationRecord:
        """Register what was read after `record.registered_to`, in one transaction with the watermark.

        Without a batch (the log held no published change) only the watermark moves. Returns the record as it is then,
        from which the next batch may have been read already. Raises FencedError where another log reader was faster.
        """
        xact_seqno = batch.last_xact_seqno if batch else record.registered_xact_seqno
        commit_time = batch.last_commit_time if batch else record.registered_commit_time
        with self._begin() as connection:
            moved = connection.execute(
                mspublications.update()
                .where(_at_position(record))
                .values(
                    registered_lsn=end.value,
                    registered_xact_seqno=xact_seqno,
                    registered_commit_time=commit_time,
                )
            )
            if moved.rowcount != 1:
                raise self._overtaken(record)
            if batch is not None:
                connection.execute(
                    msrepl_batches.insert().values(
                        publication_id=record.publication_id,
                        folder=batch.folder,
                        first_xact_seqno=batch.first_xact_seqno,
                        last_xact_seqno=batch.last_xact_seqno,
                        first_commit_time=batch.first_commit_time,
                        last_commit_time=batch.last_commit_time,
                        transactions=batch.transactions,
                        commands=batch.commands,
                        log_bytes=batch.log_bytes,
                    )
                )
        return replace(record, registered_to=end, registered_xact_seqno=xact_seqno, registered_commit_time=commit_time)

    def batches_after(self, record: PublicationRecord, xact_seqno: bytes) -> list[Batch]:
        """Registered batches that hold transactions after `xact_seqno`, in commit order."""
        with self._begin() as connection:
            rows = connection.execute(
                sa.select(msrepl_batches)
                .where(
                    msrepl_batches.c.publication_id == record.publication_id,
                    msrepl_batches.c.last_xact_seqno > xact_seqno,
                )
                .order_by(msrepl_batches.c.first_xact_seqno)
            ).all()
        return [_batch(row) for row in rows]

    def batches_around(self, record: PublicationRecord, xact_seqno: bytes) -> list[Batch]:
        """Registered batches that may hold a transaction of this place in the log."""
        first, last = seqnos_of_one_place(xact_seqno)
        with self._begin() as connection:
            rows = connection.execute(
                sa.select(msrepl_batches).where(
                    msrepl_batches.c.publication_id == record.publication_id,
                    msrepl_batches.c.first_xact_seqno <= last,
                    msrepl_batches.c.last_xact_seqno >= first,
                )
            ).all()
        return [_batch(row) for row in rows]

    # Clean-up. Ages are told by the distribution database's own clock, which wrote the times.

    def first_older_batch(self, record: PublicationRecord, xact_seqno: bytes, age: timedelta) -> Batch | None:
        """The first batch after `xact_seqno`, where it was registered so long ago."""
        with self._begin() as connection:
            row = connection.execute(
                sa.select(msrepl_batches, (msrepl_batches.c.entry_time <= sa.func.now() - age).label("older"))
                .where(
                    msrepl_batches.c.publication_id == record.publication_id,
                    msrepl_batches.c.last_xact_seqno > xact_seqno,
                )
                .order_by(msrepl_batches.c.first_xact_seqno)
                .limit(1)
            ).one_or_none()
        return _batch(row) if row is not None and row.older else None

    def remove_batches(self, record: PublicationRecord, up_to: bytes, age: timedelta) -> list[Batch]:
        """Forget batches that end at or before `up_to` and were registered so long ago.

        Their folders are no batches any more, and may be removed.
        """
        chosen = sa.and_(
            msrepl_batches.c.publication_id == record.publication_id,
            msrepl_batches.c.entry_time <= sa.func.now() - age,
            msrepl_batches.c.last_xact_seqno <= up_to,
        )
        with self._begin() as connection:
            rows = connection.execute(msrepl_batches.delete().where(chosen).returning(msrepl_batches)).all()
            removed = sorted((_batch(row) for row in rows), key=lambda batch: batch.last_xact_seqno)
            if removed:
                connection.execute(
                    mspublications.update()
                    .where(mspublications.c.publication_id == record.publication_id)
                    .values(removed_xact_seqno=removed[-1].last_xact_seqno)
                )
        return removed

    def batch_folders(self) -> set[str]:
        """Of every publication: two may share a store."""
        with self._begin() as connection:
            return set(connection.execute(sa.select(msrepl_batches.c.folder)).scalars())

    def remove_history(self, record: PublicationRecord, age: timedelta) -> int:
        """Remove history rows so old, and errors, save the newest row of each agent and the newest that knows where
        it stood. What they say of delivered commands is kept in sum. Returns the number of rows.
        """
        with self._begin() as connection:
            removed = self._remove_history(connection, mslogreader_history, record, age)
            rows = self._remove_history(connection, msdistribution_history, record, age)
            for subscription_id in {row.subscription_id for row in rows}:
                mine = mssubscriptions.c.subscription_id == subscription_id
                known = connection.execute(
                    sa.select(mssubscriptions.c.delivered_commands).where(mine).with_for_update()
                ).scalar_one()
                gone = [row.commands_by_article for row in rows if row.subscription_id == subscription_id]
                connection.execute(
                    mssubscriptions.update()
                    .where(mine)
                    .values(delivered_commands=_sum_by_article([known or {}, *gone]))
                )
            errors = connection.execute(
                msrepl_errors.delete().where(
                    msrepl_errors.c.publication_id == record.publication_id,
                    msrepl_errors.c.time <= sa.func.now() - age,
                    *(
                        ~sa.exists().where(history.c.error_id == msrepl_errors.c.id)
                        for history in (mslogreader_history, msdistribution_history)
                    ),
                )
            )
        return len(removed) + len(rows) + errors.rowcount

    def _remove_history(
        self, connection: sa.Connection, table: sa.Table, record: PublicationRecord, age: timedelta
    ) -> Sequence[sa.Row[Any]]:
        agent = [table.c.subscription_id] if "subscription_id" in table.c else [table.c.publication_id]
        newest = sa.select(sa.func.max(table.c.id)).group_by(*agent)
        return connection.execute(
            table.delete()
            .where(
                table.c.publication_id == record.publication_id,
                table.c.time <= sa.func.now() - age,
                table.c.id.not_in(newest),
                table.c.id.not_in(newest.where(table.c.xact_seqno.is_not(None))),
            )
            .returning(table)
        ).all()

    def latest_snapshot(self, record: PublicationRecord) -> bytes | None:
        """The last point of the log at which a living subscription, or an article of it, has its rows from."""
        living = sa.and_(
            mssubscriptions.c.publication_id == record.publication_id,
            mssubscriptions.c.status != SubscriptionStatus.INACTIVE,
        )
        whole = sa.select(mssubscriptions.c.subscription_seqno).where(living)
        each = (
            sa.select(msarticle_subscriptions.c.subscription_seqno)
            .join(mssubscriptions)
            .where(living, msarticle_subscriptions.c.status == SubscriptionStatus.ACTIVE)
        )
        with self._begin() as connection:
            found = connection.execute(sa.union(whole, each)).scalars().all()
        return max((bytes(it) for it in found if it is not None), default=None)

    def last_known_watermark(self, record: PublicationRecord, subscription: SubscriptionRecord) -> bytes | None:
        """Where the last run that knew it left the Subscriber; None before the first."""
        query = (
            sa.select(msdistribution_history.c.xact_seqno)
            .where(
                msdistribution_history.c.publication_id == record.publication_id,
                msdistribution_history.c.subscription_id == subscription.subscription_id,
                msdistribution_history.c.xact_seqno.is_not(None),
            )
            .order_by(msdistribution_history.c.id.desc())
            .limit(1)
        )
        with self._begin() as connection:
            seqno = connection.execute(query).scalar_one_or_none()
        return bytes(seqno) if seqno is not None else None

    # History

    def record_error(self, record: PublicationRecord, error: ErrorReport, subscription: str | None = None) -> int:
        """A row of `msrepl_errors`; its id goes into the history row."""
        with self._begin() as connection:
            values = writable(connection, _error_values(record, error, subscription))
            result = connection.execute(msrepl_errors.insert().values(**values))
        key = result.inserted_primary_key
        return int(key[0]) if key else 0

    def record_skipped(self, record: PublicationRecord, subscription: str, errors: Sequence[ErrorReport]) -> None:
        """Commands that `skip_errors` left out, with what they were."""
        with self._begin() as connection:
            rows = [{**_error_values(record, error, subscription), "skipped": True} for error in errors]
            connection.execute(msrepl_errors.insert(), [writable(connection, row) for row in rows])

    def record_administration(
        self, record: PublicationRecord, subscription: SubscriptionRecord, xact_seqno: bytes, comments: str
    ) -> None:
        """A row of `msdistribution_history` for a watermark that was moved by hand."""
        values = _history_values(JobResult(last_xact_seqno=xact_seqno.hex()))
        row = self.start_run(record, subscription)
        self._update_run(row, values | {"runstatus": RunStatus.SUCCEED, "comments": comments})

    def start_run(self, record: PublicationRecord, subscription: SubscriptionRecord | None = None) -> RunRow:
        """A history row of status 1: of the log reader, or of one subscription's distribution. The run's later
        states take its place (`updateable_row`), so that a job that was killed leaves what it last told.
        """
        table = mslogreader_history if subscription is None else msdistribution_history
        own = {} if subscription is None else {"subscription_id": subscription.subscription_id}
        values = _history_values(JobResult()) | {"runstatus": RunStatus.START, "comments": "Starting."}
        with self._begin() as connection:
            inserted = connection.execute(
                table.insert().values(
                    publication_id=record.publication_id, start_time=datetime.now(UTC), **values, **own
                )
            )
        key = inserted.inserted_primary_key
        return RunRow(int(key[0]) if key else 0, record, subscription)

    def record_progress(self, row: RunRow, result: JobResult) -> None:
        """What the run has done so far: status 3."""
        self._update_run(row, _run_values(row, result) | {"runstatus": RunStatus.IN_PROGRESS})

    def record_comments(self, row: RunRow, comments: str) -> None:
        """What the run does while nothing is counted: status 3."""
        self._update_run(row, {"runstatus": RunStatus.IN_PROGRESS, "comments": comments})

    def end_run(self, row: RunRow, result: JobResult) -> None:
        """How the run ended: status 2, 4, 5 or 6."""
        name = row.subscription.subscription if row.subscription else None
        values = _run_values(row, result)
        if _failed(result) and result.error:
            values["error_id"] = self.record_error(row.record, result.error, name)
        self._update_run(row, values)

    def _update_run(self, row: RunRow, values: Mapping[str, object]) -> None:
        table = mslogreader_history if row.subscription is None else msdistribution_history
        with self._begin() as connection:
            written = writable(connection, values)
            connection.execute(table.update().where(table.c.id == row.id).values(time=sa.func.now(), **written))

    def record_log_reader(self, record: PublicationRecord, result: JobResult) -> None:
        """A row of `mslogreader_history`, of a run that has ended."""
        self.end_run(self.start_run(record), result)

    def record_distribution(
        self, record: PublicationRecord, subscription: SubscriptionRecord, result: JobResult
    ) -> None:
        """A row of `msdistribution_history`, of a run that has ended."""
        self.end_run(self.start_run(record, subscription), result)

    def record_validation(self, record: PublicationRecord, subscription: SubscriptionRecord, result: JobResult) -> None:
        """A row of `msdistribution_history` for a validation. One that has found differences has done its work: the
        row names error 20574, and is none of a failure."""
        values = _history_values(JobResult(seconds=result.seconds, error=result.error))
        if result.error is not None:
            values["error_id"] = self.record_error(record, result.error, subscription.subscription)
        if result.validation is not None:
            comments = result.error.message if result.error else passed_comments(result.validation)
            values |= {"runstatus": RunStatus.SUCCEED, "comments": comments}
        row = self.start_run(record, subscription)
        self._update_run(row, values)

    def delivery_rate(self, record: PublicationRecord, subscription: SubscriptionRecord) -> float:
        """Commands a second: of the last run that delivered without an error, else of all on average.

        Source: `sp_replmonitorsubscriptionpendingcmds`.
        """
        history = msdistribution_history.c
        rates = sa.select(history.delivery_rate).where(
            history.publication_id == record.publication_id,
            history.subscription_id == subscription.subscription_id,
            history.delivery_rate > 0,
        )
        good = (RunStatus.SUCCEED, RunStatus.IN_PROGRESS, RunStatus.IDLE)
        last = rates.where(history.runstatus.in_(good)).order_by(history.id.desc()).limit(1)
        with self._begin() as connection:
            rate = connection.execute(last).scalar_one_or_none()
            if rate is None:
                rate = connection.execute(sa.select(sa.func.avg(rates.subquery().c.delivery_rate))).scalar_one()
        return float(rate or 0.0)

    def delivery_latency(self, record: PublicationRecord, subscription: SubscriptionRecord) -> float | None:
        """Seconds, of the last run that delivered."""
        history = msdistribution_history.c
        query = (
            sa.select(history.delivery_latency)
            .where(
                history.publication_id == record.publication_id,
                history.subscription_id == subscription.subscription_id,
                history.delivery_latency.is_not(None),
            )
            .order_by(history.id.desc())
            .limit(1)
        )
        with self._begin() as connection:
            milliseconds = connection.execute(query).scalar_one_or_none()
        return None if milliseconds is None else milliseconds / 1000

    def last_history(
        self, record: PublicationRecord, subscription: SubscriptionRecord | None = None
    ) -> dict[str, object] | None:
        """The newest history row of the log reader, or of one subscription's distribution."""
        table = mslogreader_history if subscription is None else msdistribution_history
        query = sa.select(table).where(table.c.publication_id == record.publication_id)
        if subscription is not None:
            query = query.where(table.c.subscription_id == subscription.subscription_id)
        with self._begin() as connection:
            row = connection.execute(query.order_by(table.c.id.desc()).limit(1)).one_or_none()
        return dict(row._mapping) if row else None

    def delivered_commands(self, record: PublicationRecord, subscription: SubscriptionRecord) -> dict[str, int]:
        """Commands delivered since the subscription was created, by article."""
        query = sa.select(msdistribution_history.c.commands_by_article).where(
            msdistribution_history.c.publication_id == record.publication_id,
            msdistribution_history.c.subscription_id == subscription.subscription_id,
        )
        removed = sa.select(mssubscriptions.c.delivered_commands).where(
            mssubscriptions.c.subscription_id == subscription.subscription_id
        )
        with self._begin() as connection:
            before = connection.execute(removed).scalar_one()
            return _sum_by_article([before or {}, *connection.execute(query).scalars()])


def _sum_by_article(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for row in counts:
        for article, commands in row.items():
            total[article] = total.get(article, 0) + commands
    return total


def _history_values(result: JobResult) -> dict[str, Any]:
    return {
        "runstatus": _run_status(result),
        "duration": result.seconds,
        "comments": _comments(result),
        "xact_seqno": bytes.fromhex(result.last_xact_seqno) if result.last_xact_seqno else None,
        "delivered_transactions": result.transactions,
        "delivered_commands": result.commands,
        "delivery_rate": result.commands / result.seconds if result.seconds else 0.0,
        "delivery_latency": result.latency_ms,
        "commands_by_article": result.commands_by_article,
    }


def _run_values(row: RunRow, result: JobResult) -> dict[str, Any]:
    values = _history_values(result)
    if row.subscription is None:
        return values
    how: dict[str, Any] = {"bulk_commands": result.in_bulk, "fallbacks": result.fallbacks}
    if result.snapshot:
        how["snapshot"] = [it.model_dump() for it in result.snapshot]
    return values | how


def _error_values(record: PublicationRecord, error: ErrorReport, subscription: str | None) -> dict[str, object]:
    """A row of `msrepl_errors`."""
    return {
        "publication_id": record.publication_id,
        "subscription": subscription,
        "error_type": error.kind,
        "error_code": error.shown_number or None,
        "error_text": "\n".join(filter(None, [error.message, error.remedy])),
        "article": error.article,
        "xact_seqno": bytes.fromhex(error.xact_seqno) if error.xact_seqno else None,
        "command_id": error.command_id,
        "command": error.command,
    }


def _failed(result: JobResult) -> bool:
    """Being fenced off is no failure: another job does the work."""
    return result.error is not None and result.error.kind is not ErrorKind.FENCED


def _run_status(result: JobResult) -> RunStatus:
    if _failed(result):
        transient = result.error is not None and result.error.kind is ErrorKind.TRANSIENT
        return RunStatus.RETRY if transient else RunStatus.FAIL
    return RunStatus.SUCCEED if result.commands or result.snapshot else RunStatus.IDLE


def _comments(result: JobResult) -> str:
    skipped = f" Skipped, as skip_errors says: {result.skipped} of them." if result.skipped else ""
    if result.error is not None:
        return result.error.message + skipped.replace("of them", "commands before it")
    if result.snapshot:
        return snapshot_comments(result.snapshot)
    if not result.commands:
        return " ".join(["No replicated transactions are available.", *result.notices])
    delivered = f"{result.transactions} transactions with {result.commands} commands were delivered"
    serial = result.commands - result.in_bulk
    how = f", {result.in_bulk} of them in bulk, {serial} serially" if result.in_bulk else ""
    why = "; ".join(f"{reason} ({times} times)" for reason, times in result.fallbacks.items())
    return f"{delivered}{how}.{skipped}" + (f" Not in bulk after all: {why}." if why else "")


def snapshot_comments(tables: Sequence[TableProgress]) -> str:
    """How a snapshot gets on, a line for each table on its way."""
    whole = [it for it in tables if it.share >= 1]
    rows, size = sum(it.rows for it in tables), sum(it.bytes for it in tables)
    lines = [f"Snapshot: {len(whole)} of {len(tables)} tables, {rows:,} rows, {size:,} bytes."]
    lines += (
        f"{it.article}: {it.share:.0%}, {it.rows:,} rows, {it.bytes:,} bytes, {it.rate:,.0f} bytes/s, "
        f"{it.seconds_left or 0:,.0f} s left"
        for it in tables
        if 0 < it.share < 1
    )
    return "\n".join(lines)


_LOG_COLUMNS = (
    "registered_xact_seqno",
    "registered_lsn",
    "registered_commit_time",
    "removed_xact_seqno",
    "start_lsn",
    "publisher_system",
    "timeline",
)


def _at_position(record: PublicationRecord) -> sa.ColumnElement[bool]:
    """The publication's row, where nobody has moved it since the record was read."""
    return sa.and_(
        mspublications.c.publication_id == record.publication_id,
        mspublications.c.registered_lsn == (record.registered_to or FIRST_POSITION).value,
        mspublications.c.publisher_system == record.publisher_system,
        mspublications.c.timeline == record.timeline,
        mspublications.c.start_lsn.is_not_distinct_from(None if record.read_from is None else record.read_from.value),
    )


def another_publisher(where: str, publication: str, registered: str | None, found: str) -> MustBeReinitializedError:
    """The connection leads to another server than the one whose log is registered."""
    return MustBeReinitializedError(
        f"{where}: publication {publication} belongs to the Publisher with the system identifier {registered}; the "
        f"connection leads to another server, {found}, as one that a dump was restored into, one that pg_upgrade has "
        "made, or a second Publisher of the same name",
        remedy="where this server has taken the other one's place, `tranrepl reinitialize FILE` begins anew from its "
        "rows, or `tranrepl reinitialize FILE --log-reader` without them where the Subscribers have them all; a second "
        "Publisher takes another name for its publication, or a distribution database of its own",
    )


def _articles_of(subscription: SubscriptionRecord, articles: Sequence[str]) -> sa.ColumnElement[bool]:
    return sa.and_(
        msarticle_subscriptions.c.subscription_id == subscription.subscription_id,
        msarticle_subscriptions.c.article.in_(articles),
    )


def _set_status(connection: sa.Connection, subscription: SubscriptionRecord, status: SubscriptionStatus) -> None:
    connection.execute(
        mssubscriptions.update()
        .where(mssubscriptions.c.subscription_id == subscription.subscription_id)
        .values(status=status)
    )


def _deactivated(subscription: SubscriptionRecord) -> ConfigurationError:
    return ConfigurationError(
        f"subscription {subscription.subscription} is inactive",
        remedy=f"`tranrepl reinitialize FILE -s {subscription.subscription}` begins it anew",
        number=MUST_BE_REINITIALIZED,
    )


def _article_state(row: sa.Row[Any]) -> ArticleState:
    seqno = row.subscription_seqno
    began = bytes(seqno) if seqno is not None else None
    return ArticleState(SubscriptionStatus(row.status), began, row.reason, row.earlier_filter)


def _subscription(row: sa.Row[Any]) -> SubscriptionRecord:
    seqno = row.subscription_seqno
    return SubscriptionRecord(
        row.subscription_id,
        row.subscription,
        SubscriptionStatus(row.status),
        row.subscriber_db,
        bytes(seqno) if seqno is not None else None,
    )


def _batch(row: sa.Row[Any]) -> Batch:
    return Batch(
        row.folder,
        bytes(row.first_xact_seqno),
        bytes(row.last_xact_seqno),
        row.first_commit_time,
        row.last_commit_time,
        row.transactions,
        row.commands,
        row.log_bytes,
    )


def _publication(row: sa.Row[tuple[object, ...]]) -> PublicationRecord:
    fields = row._mapping
    seqno, registered = fields["registered_xact_seqno"], fields["registered_lsn"]
    removed, start = fields["removed_xact_seqno"], fields["start_lsn"]
    return PublicationRecord(
        fields["publication_id"],
        fields["publication"],
        fields["store"],
        fields["slot_name"],
        bytes(seqno) if seqno is not None else None,
        Position(bytes(registered)) if registered is not None else None,
        bytes(removed) if removed is not None else None,
        Position(bytes(start)) if start is not None else None,
        fields["publisher_system"],
        fields["timeline"],
        fields["registered_commit_time"],
    )


def _article(row: sa.Row[tuple[object, ...]]) -> RegisteredArticle:
    fields = row._mapping
    return RegisteredArticle(
        article_id=fields["article_id"],
        source=TableName(fields["source_owner"], fields["source_object"]),
        destination=TableName(fields["destination_owner"], fields["destination_object"]),
        source_object_id=fields["source_object_id"],
        columns=tuple(PublishedColumn.model_validate(column) for column in fields["columns"]),
        ins_cmd=fields["ins_cmd"],
        upd_cmd=fields["upd_cmd"],
        del_cmd=fields["del_cmd"],
        filter=fields["filter_clause"],
        update_policy=fields["update_policy"],
        truncate=fields["truncate"],
        deferrable=fields["deferrable"],
        file=TableFile.model_validate(fields["source_file"]) if fields["source_file"] else None,
        begins_after=Position(bytes(fields["begins_after"])) if fields["begins_after"] else FIRST_POSITION,
    )


def _article_values(record: PublicationRecord, article: RegisteredArticle) -> dict[str, object]:
    return {
        "publication_id": record.publication_id,
        "source_owner": article.source.schema,
        "source_object": article.source.table,
        "destination_owner": article.destination.schema,
        "destination_object": article.destination.table,
        "source_object_id": article.source_object_id,
        "columns": [column.model_dump() for column in article.columns],
        "ins_cmd": str(article.ins_cmd),
        "upd_cmd": str(article.upd_cmd),
        "del_cmd": str(article.del_cmd),
        "filter_clause": article.filter,
        "update_policy": article.update_policy,
        "truncate": article.truncate,
        "deferrable": article.deferrable,
        "status": ArticleStatus.ACTIVE,
        **_renewed_values(article),
    }


def _renewed_values(article: RegisteredArticle) -> dict[str, object]:
    file = article.file.model_dump(mode="json") if article.file is not None else None
    return {"source_file": file, "begins_after": article.begins_after.value}


def _renew(connection: sa.Connection, article_id: int, article: RegisteredArticle) -> None:
    connection.execute(
        msarticles.update().where(msarticles.c.article_id == article_id).values(**_renewed_values(article))
    )


def _agrees(article: Article, registered: RegisteredArticle | None) -> bool:
    if registered is None:
        return False
    columns = {column.name for column in registered.columns}
    same = ("ins_cmd", "upd_cmd", "del_cmd", "filter", "update_policy", "truncate")
    return (
        article.destination_table == registered.destination
        and all(getattr(article, name) == getattr(registered, name) for name in same)
        and (article.columns is None or set(article.columns) == columns)
        and set(article.lob_columns) == {column.name for column in registered.columns if column.lob}
    )


def _changed(publication: Publication, source: TableName) -> ConfigurationError:
    return ConfigurationError(
        f"publication {publication.publication}: article {source} is not registered as its file describes it",
        remedy="run `tranrepl setup FILE`",
        article=str(source),
    )
