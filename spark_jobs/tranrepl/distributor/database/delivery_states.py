"""What the distribution database says of how a subscription is delivered to: read in one query, to be compared with
what a continuous delivery has begun with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

import sqlalchemy as sa

from tranrepl.distributor.database.articles import digest_of_versions
from tranrepl.distributor.database.connection import DatabaseConnection
from tranrepl.distributor.database.publications import PublicationRecord
from tranrepl.distributor.database.subscriptions import SubscriptionRecord
from tranrepl.distributor.database.tracer_tokens import on_the_way
from tranrepl.distributor.tables import (
    msarticle_subscriptions,
    msarticles,
    mspublications,
    msschema_changes,
    mssubscriptions,
    mstracer_tokens,
)
from tranrepl.errors import ReplicationError

_PAUSES = 20598
"""The class of advisory locks that are pauses; their objects are subscriptions."""
_SNAPSHOTS = 21075
"""The class of those that say that a snapshot is being taken."""
_AGENTS = 20554
"""The class of those that say that a subscription's agents are kept up at a shell."""


@dataclass(frozen=True, slots=True)
class DeliveryState:
    """Where two are equal, nothing that a delivery has read has changed from the one to the other."""

    status: str
    """The subscription's."""
    settings: tuple[str | bytes | None, ...]
    """What else is registered of publication and subscription."""
    definitions: str | None
    """A digest of the articles' definitions."""
    article_states: str | None
    """A digest of what the subscription's articles wait for, and of the snapshots that they began with."""


@dataclass(frozen=True, slots=True)
class StateAfter:
    """A delivery's state, and what else it has to know of the commands after a transaction."""

    state: DeliveryState
    removed_xact_seqno: bytes | None
    """Last transaction whose commands clean-up has removed."""
    changes_schema: bool
    """There is a schema change or a script among them."""
    has_tokens: bool
    """There is a tracer token that the subscription has not delivered."""
    is_paused: bool
    """Somebody holds `DeliveryStates.paused`."""
    takes_snapshot: bool
    """Somebody holds `DeliveryStates.taking_snapshot`."""


class DeliveryStates:
    """Reads where deliveries stand, and holds the locks that pause one or let a snapshot be taken."""

    def __init__(self, database: DatabaseConnection) -> None:
        self._database = database

    def after(
        self, record: PublicationRecord, subscription: SubscriptionRecord, xact_seqno: bytes
    ) -> StateAfter | None:
        """Return the state, with what is registered after a transaction; None where publication or subscription are
        not registered any more.

        It is asked for after the batches to be delivered are known: a snapshot that begins later shows all of them.
        """
        query = _query(record, subscription)
        with self._database.reading() as connection:
            row = connection.execute(query, {"after": xact_seqno}).one_or_none()
        if row is None:
            return None
        settings = (
            row.store,
            row.publisher_system,
            row.subscription_version,
            *map(_bytes, (row.read_from, row.subscription_seqno)),
        )
        return StateAfter(
            DeliveryState(row.status, settings, row.definitions, row.article_states),
            _bytes(row.removed_xact_seqno),
            row.changes_schema,
            row.has_tokens,
            row.is_paused,
            row.takes_snapshot,
        )

    @contextmanager
    def paused(self, subscription: SubscriptionRecord) -> Iterator[None]:
        """Let continuous deliveries deliver nothing to a subscription that is not registered by now. It ends with the
        session, however that ends. Waits for another that holds it."""
        with self._database.transaction() as connection:
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_PAUSES, subscription.subscription_id)))
            yield

    @contextmanager
    def taking_snapshot(self, subscription: SubscriptionRecord) -> Iterator[None]:
        """Let who delivers to a subscription see that its snapshot is being taken, and wait for it. It ends with the
        session, however that ends. Others may do the same: which snapshot counts, the Subscriber decides."""
        with ExitStack() as held:
            connection = held.enter_context(self._database.transaction())
            connection.execute(
                sa.select(sa.func.pg_advisory_xact_lock_shared(_SNAPSHOTS, subscription.subscription_id))
            )
            try:
                yield
            finally:
                # Where the session was lost meanwhile, the snapshot is as good as without it.
                with suppress(ReplicationError):
                    held.pop_all().close()

    @contextmanager
    def running_agents(self, subscriptions: Sequence[SubscriptionRecord]) -> Iterator[bool]:
        """Let others see that the subscriptions' continuous agents run here; give whether none runs them already.
        It ends with the session, however that ends: that each change is made once does not depend on it."""
        with ExitStack() as held:
            connection = held.enter_context(self._database.transaction())
            locks = [sa.func.pg_try_advisory_xact_lock(_AGENTS, it.subscription_id) for it in subscriptions]
            free = all(connection.execute(sa.select(*locks)).one())
            try:
                yield free
            finally:
                with suppress(ReplicationError):
                    held.pop_all().close()


def _query(record: PublicationRecord, subscription: SubscriptionRecord) -> sa.Select[tuple[object, ...]]:
    number = subscription.subscription_id
    held = _held(number)
    changes = sa.exists().where(
        msschema_changes.c.publication_id == record.publication_id,
        msschema_changes.c.xact_seqno > sa.bindparam("after", type_=sa.LargeBinary),
    )
    return (
        sa.select(
            mspublications.c.store,
            mspublications.c.publisher_system,
            mspublications.c.removed_xact_seqno,
            mssubscriptions.c.status,
            mssubscriptions.c.subscription_seqno,
            mspublications.c.read_from,
            sa.cast(sa.literal_column("mssubscriptions.xmin"), sa.Text).label("subscription_version"),
            digest_of_versions(msarticles, "article_id", msarticles.c.publication_id == record.publication_id).label(
                "definitions"
            ),
            digest_of_versions(
                msarticle_subscriptions, "article", msarticle_subscriptions.c.subscription_id == number
            ).label("article_states"),
            changes.label("changes_schema"),
            sa.exists().select_from(mstracer_tokens).where(on_the_way(record, subscription)).label("has_tokens"),
            held.c.is_paused,
            held.c.takes_snapshot,
        )
        .select_from(mspublications.join(mssubscriptions).join(held, sa.true()))
        .where(mspublications.c.publication_id == record.publication_id, mssubscriptions.c.subscription_id == number)
    )


def _held(subscription_id: int) -> sa.Subquery:
    """Return one row: of which classes somebody holds a subscription's lock. All locks of the server are looked through
    for it, so it is done once. Source: PostgreSQL documentation, `pg_locks`."""
    locks = sa.table(
        "pg_locks", *map(sa.column, ("locktype", "database", "classid", "objid", "granted")), schema="pg_catalog"
    )
    databases = sa.table("pg_database", sa.column("oid"), sa.column("datname"), schema="pg_catalog")
    here = sa.select(databases.c.oid).where(databases.c.datname == sa.func.current_database()).scalar_subquery()

    def is_held(lock: int) -> sa.ColumnElement[bool]:
        return sa.func.coalesce(sa.func.bool_or(locks.c.classid == lock), sa.false())

    return (
        sa.select(is_held(_PAUSES).label("is_paused"), is_held(_SNAPSHOTS).label("takes_snapshot"))
        .where(
            locks.c.locktype == "advisory",
            locks.c.database == here,
            locks.c.objid == subscription_id,
            locks.c.granted,
        )
        .subquery()
    )


def _bytes(value: object) -> bytes | None:
    return None if value is None else bytes(value)  # type: ignore[call-overload]
