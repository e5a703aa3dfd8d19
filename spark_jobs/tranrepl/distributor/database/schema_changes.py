"""Registered schema changes and scripts: their places among the stored commands, and what the changes do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from tranrepl.distributor.database.articles import end_articles, register_definitions, retire_articles
from tranrepl.distributor.database.connection import DatabaseConnection
from tranrepl.distributor.database.publications import PublicationRecord
from tranrepl.distributor.tables import (
    SubscriptionStatus,
    msarticle_subscriptions,
    msschema_changes,
    mssubscriptions,
)
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.schema_change import SchemaChange


@dataclass(frozen=True, slots=True)
class StoredSchemaChange:
    """A schema change, and the command that carries it."""

    xact_seqno: bytes
    command_id: int
    change: SchemaChange


@dataclass(frozen=True, slots=True)
class StoredScript:
    """The name of a script for the Subscribers, and the command that carries it."""

    xact_seqno: bytes
    command_id: int
    name: str
    digest: str
    """As it was written down before the log had the script."""


class SchemaChanges:
    """What `msschema_changes` holds."""

    def __init__(self, database: DatabaseConnection) -> None:
        self._database = database

    def after(self, record: PublicationRecord, xact_seqno: bytes) -> list[StoredSchemaChange]:
        """Return the registered schema changes of transactions after `xact_seqno`, in the order of their commands."""
        with self._database.reading() as connection:
            rows = connection.execute(
                sa.select(msschema_changes.c.xact_seqno, msschema_changes.c.command_id, msschema_changes.c.change)
                .where(
                    msschema_changes.c.publication_id == record.publication_id,
                    msschema_changes.c.xact_seqno > xact_seqno,
                    msschema_changes.c.article_id.is_not(None),
                )
                .order_by(msschema_changes.c.xact_seqno, msschema_changes.c.command_id)
            ).all()
        return [
            StoredSchemaChange(bytes(row.xact_seqno), row.command_id, SchemaChange.model_validate(row.change))
            for row in rows
        ]

    def scripts_after(self, record: PublicationRecord, xact_seqno: bytes) -> set[bytes]:
        """Return the transactions (`xact_seqno`) after one that hold a script."""
        with self._database.reading() as connection:
            found = connection.execute(
                sa.select(msschema_changes.c.xact_seqno)
                .where(
                    msschema_changes.c.publication_id == record.publication_id,
                    msschema_changes.c.xact_seqno > xact_seqno,
                    msschema_changes.c.article_id.is_(None),
                )
                .distinct()
            ).scalars()
            return {bytes(it) for it in found}


def register_scripts(connection: sa.Connection, record: PublicationRecord, scripts: Sequence[StoredScript]) -> None:
    """Write down which commands are scripts."""
    if scripts:
        connection.execute(
            msschema_changes.insert(),
            [
                {
                    "publication_id": record.publication_id,
                    "xact_seqno": it.xact_seqno,
                    "command_id": it.command_id,
                    "change": {"script": it.name},
                }
                for it in scripts
            ],
        )


def register_schema_changes(
    connection: sa.Connection,
    record: PublicationRecord,
    changes: Sequence[StoredSchemaChange],
    definitions: Sequence[RegisteredArticle],
) -> None:
    """Write down schema changes, and let the definitions after them be in force instead of those before."""
    register_definitions(connection, record, definitions)
    if not changes:
        return
    connection.execute(msschema_changes.insert(), [_values(record, it) for it in changes])
    retire_articles(connection, {it.change.article_id for it in changes})
    ended = [it.change for it in changes if it.change.new_article_id is None]
    end_articles(connection, {it.article_id for it in ended})
    _call_off_snapshots(connection, record, [str(it.source) for it in ended])
    sources = {it.article_id: it.source for it in definitions}
    for it in changes:
        if it.change.new_article_id in sources and sources[it.change.new_article_id] != it.change.source:
            _rename_article(connection, record, str(it.change.source), str(sources[it.change.new_article_id]))


def _call_off_snapshots(connection: sa.Connection, record: PublicationRecord, articles: Sequence[str]) -> None:
    """Let these articles, which have ended, wait for a snapshot where one of them has begun: none will end it, and the
    others' deliveries would wait for that."""
    connection.execute(
        msarticle_subscriptions.update()
        .where(
            msarticle_subscriptions.c.article.in_(articles),
            msarticle_subscriptions.c.subscription_id.in_(_subscriptions_of(record)),
            msarticle_subscriptions.c.status == SubscriptionStatus.INITIATED,
        )
        .values(status=SubscriptionStatus.SUBSCRIBED, subscription_seqno=None)
    )


def _subscriptions_of(record: PublicationRecord) -> sa.Select[int]:
    return sa.select(mssubscriptions.c.subscription_id).where(mssubscriptions.c.publication_id == record.publication_id)


def _rename_article(connection: sa.Connection, record: PublicationRecord, before: str, now: str) -> None:
    """Let what subscriptions know of an article be known under its table's new name, which an article that has ended
    may have had."""
    ours = msarticle_subscriptions.c.subscription_id.in_(_subscriptions_of(record))
    connection.execute(msarticle_subscriptions.delete().where(msarticle_subscriptions.c.article == now, ours))
    connection.execute(
        msarticle_subscriptions.update().where(msarticle_subscriptions.c.article == before, ours).values(article=now)
    )


def remove_schema_changes(connection: sa.Connection, record: PublicationRecord, last: bytes) -> None:
    """Forget schema changes up to the last transaction whose commands are forgotten too; none while an article or a
    subscription waits for a snapshot or was stopped, as its tables may not have them."""
    behind = (
        sa.select(mssubscriptions.c.subscription_id)
        .select_from(mssubscriptions.outerjoin(msarticle_subscriptions))
        .where(
            mssubscriptions.c.publication_id == record.publication_id,
            sa.or_(
                mssubscriptions.c.status != SubscriptionStatus.ACTIVE,
                msarticle_subscriptions.c.status != SubscriptionStatus.ACTIVE,
            ),
        )
    )
    connection.execute(
        msschema_changes.delete().where(
            msschema_changes.c.publication_id == record.publication_id,
            msschema_changes.c.xact_seqno <= last,
            ~behind.exists(),
        )
    )


def _values(record: PublicationRecord, stored: StoredSchemaChange) -> dict[str, object]:
    return {
        "publication_id": record.publication_id,
        "xact_seqno": stored.xact_seqno,
        "command_id": stored.command_id,
        "article_id": stored.change.article_id,
        "new_article_id": stored.change.new_article_id,
        "change": stored.change.model_dump(mode="json"),
    }
