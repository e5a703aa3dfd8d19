"""Publications as they are registered: whose log is read, from where, and up to where."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime

import sqlalchemy as sa

from tranrepl.connections import Connection
from tranrepl.distributor.command_store import CommandStore
from tranrepl.distributor.database.connection import DatabaseConnection
from tranrepl.distributor.store import store_at
from tranrepl.distributor.tables import (
    SubscriptionStatus,
    msarticle_subscriptions,
    msarticles,
    mspublications,
    msrepl_batches,
    msrepl_version,
    mssubscriptions,
    mstracer_tokens,
)
from tranrepl.distributor.version import DatabaseVersion, refuse_another, require_current
from tranrepl.errors import ConfigurationError, FencedError, MustBeReinitializedError
from tranrepl.model.position import FIRST_POSITION, Position
from tranrepl.remedies import RUN_SETUP
from tranrepl.settings.publication import Publication


@dataclass(frozen=True, slots=True)
class PublicationRecord:
    """A publication as registered. All of the log before `registered_to` is registered."""

    publication_id: int
    publication: str
    store: CommandStore
    log_name: str
    """The publication's name at the Publisher."""
    registered_xact_seqno: bytes | None
    registered_to: Position | None
    removed_xact_seqno: bytes | None = None
    """Last transaction whose commands clean-up has removed."""
    read_from: Position | None = None
    """Where reading the log began; None before it has begun."""
    publisher_system: str | None = None
    """System identifier of the server whose log is registered; None before it is."""
    timeline: int | None = None
    """The timeline of that log, at `registered_to`."""
    registered_commit_time: datetime | None = None
    """A time by which the last registered transaction was committed; None before the first."""
    articles_version: int = 0
    """How often articles were changed other than by a batch."""
    registered_proof: str | None = None
    """What tells the log before `registered_to` from another one (`Publisher.proof`)."""
    compared_state: str | None = None
    """In which state tables and articles were last found alike; None where they were not compared since."""


_NEW_TABLES = 14013
"""The class of advisory locks that say that new tables are being published; their objects are publications."""
_LOG_COLUMNS = (
    "registered_xact_seqno",
    "registered_to",
    "registered_proof",
    "registered_commit_time",
    "removed_xact_seqno",
    "read_from",
    "publisher_system",
    "timeline",
    "pending_definitions",
    "compared_state",
)


class Publications:
    """What `mspublications` holds."""

    def __init__(self, database: DatabaseConnection, store: Connection | None) -> None:
        self._database = database
        self._store = store

    def find(self, name: str) -> PublicationRecord | None:
        """Return the publication as registered; None where it is not.

        Raises ConfigurationError where another version of tranrepl made the database's tables.
        """
        query = sa.select(msrepl_version.c.revision, msrepl_version.c.version, mspublications).select_from(
            msrepl_version.outerjoin(mspublications, mspublications.c.publication == name)
        )
        try:
            with self._database.reading() as connection:
                row = connection.execute(query).first()
        except ConfigurationError:
            # Tables of another version may lack what is asked for.
            with self._database.reading() as connection:
                require_current(connection, self._database.where)
            raise
        refuse_another(None if row is None else DatabaseVersion(row.revision, row.version), self._database.where)
        return None if row is None or row.publication is None else _publication(row, self._store)

    def get(self, name: str) -> PublicationRecord:
        """Return the publication as registered. Raises ConfigurationError where it is not set up."""
        record = self.find(name)
        if record is None or record.registered_to is None:
            raise ConfigurationError(f"{self._database.where}: publication {name} is not set up", remedy=RUN_SETUP)
        return record

    def set_up(
        self, publication: Publication, publisher_db: str, log_name: str, system: str, timeline: int
    ) -> PublicationRecord:
        """Register the publication, or renew what may change: the store, and whose log it is as long as nothing of a
        log is registered.

        Raises ConfigurationError where the publication of this name is another Publisher's.
        """
        values = {"publisher_db": publisher_db, "slot_name": log_name, "store": publication.distributor.store}
        with self._database.transaction() as connection:
            known = connection.execute(
                sa.select(mspublications)
                .where(mspublications.c.publication == publication.publication)
                .with_for_update()
            ).one_or_none()
            log = {"publisher_system": system, "timeline": timeline}
            if known is None:
                renewed: sa.Insert | sa.Update = mspublications.insert().values(
                    publication=publication.publication, **values, **log
                )
            elif (known.publisher_db, known.slot_name) != (publisher_db, log_name):
                raise ConfigurationError(
                    f"{self._database.where}: publication {publication.publication} belongs to Publisher database "
                    f"{known.publisher_db}",
                    remedy="give this publication another name",
                )
            elif known.registered_to is not None and known.publisher_system != system:
                raise another_publisher(self._database.where, publication.publication, known.publisher_system, system)
            elif known.store != publication.distributor.store and known.registered_xact_seqno is not None:
                raise ConfigurationError(
                    f"{self._database.where}: publication {publication.publication} has stored commands in "
                    f"{known.store}",
                    remedy=f"move that folder to {publication.distributor.store} and update mspublications.store, "
                    "or keep the store",
                )
            else:
                mine = mspublications.c.publication_id == known.publication_id
                renewable = {"store": publication.distributor.store, **(log if known.registered_to is None else {})}
                renewed = mspublications.update().where(mine).values(**renewable)
            row = connection.execute(renewed.returning(mspublications)).one()
        return _publication(row, self._store)

    @contextmanager
    def publishing_tables(self, record: PublicationRecord, *, waits: bool = False) -> Iterator[bool]:
        """Let others see that new tables of the publication are published here; give whether nobody else does that, or
        wait until then. It ends with the session, however that ends."""
        lock = sa.func.pg_advisory_xact_lock if waits else sa.func.pg_try_advisory_xact_lock
        with self._database.transaction() as connection:
            free = connection.scalar(sa.select(lock(_NEW_TABLES, record.publication_id)))
            yield waits or bool(free)

    def start_watermark(self, record: PublicationRecord, position: Position, proof: str | None) -> None:
        """Register where reading the log begins, with its proof, unless that is registered already."""
        with self._database.transaction() as connection:
            connection.execute(
                mspublications.update()
                .where(
                    mspublications.c.publication_id == record.publication_id, mspublications.c.registered_to.is_(None)
                )
                .values(registered_to=position.value, read_from=position.value, registered_proof=proof)
            )

    def renew_position(self, record: PublicationRecord, position: Position, timeline: int) -> PublicationRecord:
        """Register that the log goes on from `position` on another timeline than is registered, or from before what
        is.

        Raises FencedError where another log reader was faster.
        """
        with self._database.transaction() as connection:
            moved = connection.execute(
                mspublications.update()
                .where(at_position(record))
                .values(registered_to=position.value, timeline=timeline)
            )
            if moved.rowcount != 1:
                raise overtaken(self._database.where, record)
        return replace(record, registered_to=position, timeline=timeline)

    def set_compared(self, record: PublicationRecord, state: str) -> None:
        """Register the state in which tables and articles were found alike."""
        mine = mspublications.c.publication_id == record.publication_id
        with self._database.transaction() as connection:
            connection.execute(mspublications.update().where(mine).values(compared_state=state))

    def require_not_overtaken(self, record: PublicationRecord) -> None:
        """Raise FencedError where another log reader has registered something since the record was read."""
        with self._database.transaction() as connection:
            if not connection.scalar(sa.select(sa.exists().where(at_position(record)))):
                raise overtaken(self._database.where, record)

    def forget_log(self, record: PublicationRecord, statuses: Mapping[str, SubscriptionStatus]) -> None:
        """Forget what is registered of the log, stored commands among it, because the publication is reinitialized.

        Each subscription gets the status of its name, and waits like that until it has a new beginning: a job that dies
        meanwhile leaves nothing that is delivered from the wrong place.
        """
        mine = mspublications.c.publication_id == record.publication_id
        with self._database.transaction() as connection:
            for table in (msrepl_batches, mstracer_tokens):
                connection.execute(table.delete().where(table.c.publication_id == record.publication_id))
            connection.execute(mspublications.update().where(mine).values(dict.fromkeys(_LOG_COLUMNS)))
            # Positions at which articles were reinitialized are of the log that is forgotten.
            connection.execute(
                msarticles.update()
                .where(msarticles.c.publication_id == record.publication_id)
                .values(begins_after=None, source_file=None)
            )
            _forget_places(connection, record)
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


def _forget_places(connection: sa.Connection, record: PublicationRecord) -> None:
    """Forget from where definitions hold: a log that was begun again, or another server's, has lower positions, and its
    schema changes would pass for old ones."""
    mine = msarticles.c.publication_id == record.publication_id
    for row in connection.execute(sa.select(msarticles.c.article_id, msarticles.c.source_definition).where(mine)).all():
        definition = {**row.source_definition}
        definition.pop("holds_from", None)
        of_row = msarticles.update().where(msarticles.c.article_id == row.article_id)
        connection.execute(of_row.values(source_definition=definition))


def at_position(record: PublicationRecord) -> sa.ColumnElement[bool]:
    """Return the condition for the publication's row, where nobody has moved it since the record was read."""
    return sa.and_(
        mspublications.c.publication_id == record.publication_id,
        mspublications.c.registered_to == (record.registered_to or FIRST_POSITION).value,
        mspublications.c.publisher_system == record.publisher_system,
        mspublications.c.timeline == record.timeline,
        mspublications.c.read_from.is_not_distinct_from(None if record.read_from is None else record.read_from.value),
    )


def count_articles_changed(connection: sa.Connection, publication_id: int | sa.ScalarSelect[int]) -> None:
    """Let no log reader register what it has read by the articles of before (`Batches.register`)."""
    connection.execute(
        mspublications.update()
        .where(mspublications.c.publication_id == publication_id)
        .values(articles_version=mspublications.c.articles_version + 1)
    )


def overtaken(where: str, record: PublicationRecord) -> FencedError:
    """Return the error of a log reader that another one was faster than."""
    return FencedError(
        f"{where}: another log reader of publication {record.publication} has registered this part of the log"
    )


def another_publisher(where: str, publication: str, registered: str | None, found: str) -> MustBeReinitializedError:
    """Return the error for a connection that leads to another server than the one whose log is registered."""
    return MustBeReinitializedError(
        f"{where}: publication {publication} belongs to the Publisher with the system identifier {registered}; the "
        f"connection leads to another server, {found}, as a replica that was promoted, one that a dump was restored "
        "into, one that pg_upgrade has made, or a second Publisher of the same name",
        remedy="where this server has taken the other one's place, `tranrepl reinitialize FILE` takes its rows, "
        "or `tranrepl reinitialize FILE --log-reader` without them where the Subscribers have them all; a second "
        "Publisher takes another name for its publication, or a distribution database of its own",
    )


def _publication(row: sa.Row[tuple[object, ...]], store: Connection | None) -> PublicationRecord:
    fields = row._mapping
    seqno, registered = fields["registered_xact_seqno"], fields["registered_to"]
    removed, start = fields["removed_xact_seqno"], fields["read_from"]
    return PublicationRecord(
        fields["publication_id"],
        fields["publication"],
        store_at(fields["store"], store),
        fields["slot_name"],
        bytes(seqno) if seqno is not None else None,
        Position(bytes(registered)) if registered is not None else None,
        bytes(removed) if removed is not None else None,
        Position(bytes(start)) if start is not None else None,
        fields["publisher_system"],
        fields["timeline"],
        fields["registered_commit_time"],
        fields["articles_version"],
        fields["registered_proof"],
        fields["compared_state"],
    )
