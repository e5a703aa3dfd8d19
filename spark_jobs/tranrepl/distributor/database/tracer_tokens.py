"""Tracer tokens: their places among the stored commands, and when each subscription had them.

Source: `MStracer_tokens`, `MStracer_history`, `sp_helptracertokens`, `sp_helptracertokenhistory`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from tranrepl.distributor.database.connection import DatabaseConnection
from tranrepl.distributor.database.publications import PublicationRecord
from tranrepl.distributor.database.subscriptions import SubscriptionRecord
from tranrepl.distributor.tables import mspublications, mssubscriptions, mstracer_history, mstracer_tokens


@dataclass(frozen=True, slots=True)
class StoredToken:
    """A token, and the command that carries it."""

    xact_seqno: bytes
    command_id: int
    token: str
    publisher_commit: datetime
    clock_difference: int | None = None
    """µs by which the Publisher's clock was ahead of the distribution database's when it was registered."""


@dataclass(frozen=True, slots=True)
class PendingToken:
    """A registered token that a subscription does not have yet."""

    tracer_id: int
    xact_seqno: bytes


@dataclass(frozen=True, slots=True)
class TokenHistory:
    """A registered token, and when each subscription had it, by name. The Publisher's clock wrote `publisher_commit`,
    the distribution database's the others."""

    tracer_id: int
    token: str
    publisher_commit: datetime
    distributor_commit: datetime
    clock_difference: int | None
    """µs by which the Publisher's clock was ahead of the distribution database's."""
    expected: tuple[str, ...]
    """The subscriptions that get it: it was not in the snapshot that they began with."""
    subscriber_commit: dict[str, datetime]


class TracerTokens:
    """What `mstracer_tokens` and `mstracer_history` hold."""

    def __init__(self, database: DatabaseConnection) -> None:
        self._database = database

    def take_turn(self, record: PublicationRecord, interval: timedelta) -> bool:
        """Return whether a token is due that `tracer_interval` posts: of several runs at once, for one of them."""
        posted = mspublications.c.tracer_posted
        with self._database.transaction() as connection:
            taken = connection.execute(
                mspublications.update()
                .where(
                    mspublications.c.publication_id == record.publication_id,
                    sa.or_(posted.is_(None), posted <= sa.func.now() - interval),
                )
                .values(tracer_posted=sa.func.now())
            )
        return taken.rowcount == 1

    def pending(self, record: PublicationRecord, subscription: SubscriptionRecord) -> tuple[PendingToken, ...]:
        """Return the tokens on their way to a subscription, in commit order."""
        query = sa.select(mstracer_tokens.c.tracer_id, mstracer_tokens.c.xact_seqno).where(
            on_the_way(record, subscription)
        )
        with self._database.reading() as connection:
            rows = connection.execute(query.order_by(mstracer_tokens.c.xact_seqno, mstracer_tokens.c.command_id)).all()
        return tuple(PendingToken(row.tracer_id, bytes(row.xact_seqno)) for row in rows)

    def record_arrivals(self, record: PublicationRecord, subscription: SubscriptionRecord, watermark: bytes) -> None:
        """Write down that a subscription has the tokens up to its watermark, where nobody did when it came there."""
        arrived = sa.select(mstracer_tokens.c.tracer_id, sa.literal(subscription.subscription_id)).where(
            on_the_way(record, subscription), mstracer_tokens.c.xact_seqno <= watermark
        )
        columns = [mstracer_history.c.parent_tracer_id, mstracer_history.c.subscription_id]
        with self._database.transaction() as connection:
            connection.execute(
                insert(mstracer_history).from_select(columns, arrived, include_defaults=False).on_conflict_do_nothing()
            )

    def find(self, record: PublicationRecord, token: str) -> TokenHistory | None:
        """Return a token by what the Publisher's log has of it; None where it is not registered yet."""
        found = self._histories(record, sa.select(mstracer_tokens).where(mstracer_tokens.c.token == token))
        return found[0] if found else None

    def newest(self, record: PublicationRecord, count: int) -> list[TokenHistory]:
        """Return the newest tokens, the latest first."""
        return self._histories(record, sa.select(mstracer_tokens).limit(count))

    def remove(self, record: PublicationRecord, age: timedelta) -> int:
        """Remove tokens so old whose commands clean-up has removed, with their history; return how many."""
        with self._database.transaction() as connection:
            removed = sa.select(mspublications.c.removed_xact_seqno).where(
                mspublications.c.publication_id == record.publication_id
            )
            return connection.execute(
                mstracer_tokens.delete().where(
                    mstracer_tokens.c.publication_id == record.publication_id,
                    mstracer_tokens.c.distributor_commit <= sa.func.now() - age,
                    mstracer_tokens.c.xact_seqno <= removed.scalar_subquery(),
                )
            ).rowcount

    def _histories(self, record: PublicationRecord, query: sa.Select[Any]) -> list[TokenHistory]:
        mine = query.where(mstracer_tokens.c.publication_id == record.publication_id)
        with self._database.transaction() as connection:
            tokens = connection.execute(
                mine.order_by(mstracer_tokens.c.xact_seqno.desc(), mstracer_tokens.c.command_id.desc())
            ).all()
            subscriptions = connection.execute(
                sa.select(mssubscriptions)
                .where(mssubscriptions.c.publication_id == record.publication_id)
                .order_by(mssubscriptions.c.subscription_id)
            ).all()
            arrivals = connection.execute(
                sa.select(mstracer_history).where(
                    mstracer_history.c.parent_tracer_id.in_([it.tracer_id for it in tokens])
                )
            ).all()
        return [_history(it, subscriptions, arrivals) for it in tokens]


def register_tokens(connection: sa.Connection, record: PublicationRecord, tokens: Sequence[StoredToken]) -> None:
    """Write down which commands are tokens."""
    if tokens:
        connection.execute(
            mstracer_tokens.insert(),
            [
                {
                    "publication_id": record.publication_id,
                    "publisher_commit": it.publisher_commit,
                    "xact_seqno": it.xact_seqno,
                    "command_id": it.command_id,
                    "token": it.token,
                    "clock_difference": it.clock_difference,
                }
                for it in tokens
            ],
        )


def on_the_way(record: PublicationRecord, subscription: SubscriptionRecord) -> sa.ColumnElement[bool]:
    """Return the condition for tokens that the subscription gets and does not have: of those before its beginning, it
    never has any."""
    number = subscription.subscription_id
    had = sa.exists().where(
        mstracer_history.c.parent_tracer_id == mstracer_tokens.c.tracer_id, mstracer_history.c.subscription_id == number
    )
    began = sa.select(mssubscriptions.c.subscription_time).where(mssubscriptions.c.subscription_id == number)
    condition = sa.and_(
        mstracer_tokens.c.publication_id == record.publication_id,
        mstracer_tokens.c.distributor_commit >= began.scalar_subquery(),
        ~had,
    )
    if subscription.subscription_seqno is not None:
        condition &= mstracer_tokens.c.xact_seqno > subscription.subscription_seqno
    return condition


def _history(token: Any, subscriptions: Sequence[Any], arrivals: Sequence[Any]) -> TokenHistory:
    names = {it.subscription_id: it.subscription for it in subscriptions}
    return TokenHistory(
        token.tracer_id,
        token.token,
        token.publisher_commit,
        token.distributor_commit,
        token.clock_difference,
        tuple(it.subscription for it in subscriptions if _gets(it, token)),
        {names[it.subscription_id]: it.subscriber_commit for it in arrivals if it.parent_tracer_id == token.tracer_id},
    )


def _gets(subscription: Any, token: Any) -> bool:
    began = subscription.subscription_seqno
    return bool(
        token.distributor_commit >= subscription.subscription_time
        and (began is None or bytes(token.xact_seqno) > bytes(began))
    )
