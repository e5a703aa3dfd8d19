"""Which articles of a subscription wait for a snapshot, or have had one.

It is written before and after a snapshot, never during one: between `initiate` and `activate`, nothing is delivered.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from tranrepl.distributor.database.connection import DatabaseConnection
from tranrepl.distributor.database.publications import PublicationRecord
from tranrepl.distributor.database.subscriptions import SubscriptionRecord
from tranrepl.distributor.tables import SubscriptionStatus, msarticle_subscriptions, mspublications, mssubscriptions
from tranrepl.errors import MUST_BE_REINITIALIZED, ConfigurationError, FencedError
from tranrepl.model.commands import FIRST_XACT_SEQNO
from tranrepl.remedies import reinitialize_subscription


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


class Snapshots:
    """What `msarticle_subscriptions` holds, and the statuses of subscriptions that follow from it."""

    def __init__(self, database: DatabaseConnection) -> None:
        self._database = database

    def article_states(self, subscription: SubscriptionRecord) -> dict[str, ArticleState]:
        """Return the states of the articles that wait for a snapshot or have had one, by source."""
        with self._database.reading() as connection:
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
        with self._database.transaction() as connection:
            for article in articles:
                self._set_article(connection, subscription, article, SubscriptionStatus.SUBSCRIBED, None, unknown)
            if whole:
                _set_status(connection, subscription, SubscriptionStatus.SUBSCRIBED)

    def stop_article(self, subscription: SubscriptionRecord, article: str, unknown: UnknownRows) -> None:
        """Let nothing be delivered to the subscription before this article's rows are validated or copied."""
        known = self.article_states(subscription).get(article)
        # Where its snapshot began still counts, should its rows turn out to be right.
        began = known.xact_seqno if known else None
        with self._database.transaction() as connection:
            self._set_article(connection, subscription, article, SubscriptionStatus.INACTIVE, began, unknown)

    def forget_articles(self, subscription: SubscriptionRecord, articles: Sequence[str], last: bytes) -> None:
        """Forget the snapshots that these articles began with, up to that of `last`: the articles have ended, and the
        Subscriber forgets them too."""
        began = msarticle_subscriptions.c.subscription_seqno <= last
        active = msarticle_subscriptions.c.status == SubscriptionStatus.ACTIVE
        with self._database.transaction() as connection:
            connection.execute(
                msarticle_subscriptions.delete().where(_articles_of(subscription, articles), active, began)
            )

    def resume_articles(self, subscription: SubscriptionRecord, articles: Sequence[str]) -> None:
        """Let those of these articles go on that were stopped: they have the Publisher's rows."""
        stopped = sa.and_(
            _articles_of(subscription, articles), msarticle_subscriptions.c.status == SubscriptionStatus.INACTIVE
        )
        began = msarticle_subscriptions.c.subscription_seqno.is_not(None)
        with self._database.transaction() as connection:
            connection.execute(msarticle_subscriptions.delete().where(stopped, ~began))
            connection.execute(
                msarticle_subscriptions.update()
                .where(stopped)
                .values(status=SubscriptionStatus.ACTIVE, reason=None, earlier_filter=None)
            )

    def initiate(self, record: PublicationRecord, subscription: SubscriptionRecord, articles: Iterable[str]) -> None:
        """Register that a snapshot of these articles is about to begin. It will show all that is registered by now:
        what comes later is kept from clean-up.

        Raises ConfigurationError where the subscription was deactivated.
        """
        with self._database.transaction() as connection:
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

    def record_start(self, subscription: SubscriptionRecord, articles: Sequence[str], xact_seqno: bytes) -> None:
        """Register where the snapshot begins. Raises FencedError where it was called off meanwhile."""
        with self._database.transaction() as connection:
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

    def require_begun(self, subscription: SubscriptionRecord, began: Mapping[str, bytes]) -> None:
        """Raise FencedError where the snapshot of one of these articles was called off; `began` as `activate` has
        it."""
        states = self.article_states(subscription).items()
        begun = {it: state.xact_seqno for it, state in states if state.status is SubscriptionStatus.INITIATED}
        if not began.items() <= begun.items():
            raise self._another_snapshot(subscription)

    def activate(self, subscription: SubscriptionRecord, began: Mapping[str, bytes], watermark: bytes | None) -> None:
        """Let deliveries go on: the Subscriber has the rows of these articles; `began`: by article, the last
        transaction that they show. Where the subscription as such begins, it does so with a watermark.

        Raises FencedError where another snapshot has begun since, ConfigurationError where the subscription was
        deactivated.
        """
        with self._database.transaction() as connection:
            status = self._locked_status(connection, subscription)
            if status is SubscriptionStatus.INACTIVE:
                raise _deactivated(subscription)
            for xact_seqno in set(began.values()):
                articles = [name for name, it in began.items() if it == xact_seqno]
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
            if watermark is not None:
                connection.execute(
                    mssubscriptions.update()
                    .where(mssubscriptions.c.subscription_id == subscription.subscription_id)
                    .values(subscription_seqno=watermark)
                )

    def forget_earlier_filters(self, subscription: SubscriptionRecord, filters: Mapping[str, str]) -> None:
        """Forget what is known of rows by earlier filters, by article: they have gone from the Subscriber's tables. One
        that setup has changed meanwhile is left."""
        with self._database.transaction() as connection:
            for article, earlier_filter in filters.items():
                connection.execute(
                    msarticle_subscriptions.update()
                    .where(
                        _articles_of(subscription, [article]),
                        msarticle_subscriptions.c.earlier_filter == earlier_filter,
                    )
                    .values(earlier_filter=None)
                )

    def forget(self, subscription: SubscriptionRecord) -> None:
        """Forget them: the subscription begins with rows that were loaded by hand, and none is waited for."""
        with self._database.transaction() as connection:
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

    def latest(self, record: PublicationRecord) -> bytes | None:
        """Return the last point of the log at which a living subscription, or an article of it, has its rows from, or
        will have those that an interrupted snapshot has copied."""
        with_rows = (SubscriptionStatus.ACTIVE, SubscriptionStatus.INITIATED)
        living = sa.and_(
            mssubscriptions.c.publication_id == record.publication_id,
            mssubscriptions.c.status != SubscriptionStatus.INACTIVE,
        )
        whole = sa.select(mssubscriptions.c.subscription_seqno).where(living)
        each = (
            sa.select(msarticle_subscriptions.c.subscription_seqno)
            .join(mssubscriptions)
            .where(living, msarticle_subscriptions.c.status.in_(with_rows))
        )
        with self._database.reading() as connection:
            found = connection.execute(sa.union(whole, each)).scalars().all()
        return max((bytes(it) for it in found if it is not None), default=None)

    def _another_snapshot(self, subscription: SubscriptionRecord) -> FencedError:
        return FencedError(
            f"{self._database.where}: this snapshot of subscription {subscription.subscription} has ended: another one "
            "has begun, or one of its articles is to begin again, as a schema change asks for"
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
        remedy=reinitialize_subscription(subscription.subscription),
        number=MUST_BE_REINITIALIZED,
    )


def _article_state(row: sa.Row[Any]) -> ArticleState:
    seqno = row.subscription_seqno
    began = bytes(seqno) if seqno is not None else None
    return ArticleState(SubscriptionStatus(row.status), began, row.reason, row.earlier_filter)
