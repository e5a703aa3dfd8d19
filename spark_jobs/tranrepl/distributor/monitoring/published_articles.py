"""The articles in force: their settings, what was delivered of each, and those that wait or are stopped."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from tranrepl import garbage_collection
from tranrepl.distributor.monitoring.publication import MonitoredRecord
from tranrepl.distributor.monitoring.snapshots import WaitingArticle, waiting_articles
from tranrepl.distributor.tables import (
    ArticleStatus,
    msarticles,
    msdistribution_history,
    mssubscriptions,
)
from tranrepl.model.names import TableName


@dataclass(frozen=True, slots=True)
class PublishedArticle:
    """An article as registered."""

    article: str
    """The source table."""
    destination: str
    destinations: Mapping[str, str]
    """Those of subscriptions that have another one."""
    columns: Sequence[str]
    ins_cmd: str
    upd_cmd: str
    del_cmd: str
    filter: str | None
    update_policy: str
    truncate: str
    ended: bool
    """Its table was dropped, or taken out of the publication."""
    delivered_commands: Mapping[str, int]
    """By subscription, since each was created; those that had none are left out."""
    waiting: Sequence[WaitingArticle]
    """Where it waits for its snapshot, or is stopped."""


@garbage_collection.paused()
def published_articles(connection: sa.Connection, record: MonitoredRecord) -> Sequence[PublishedArticle]:
    """Return the articles in force and those that have ended, by name."""
    articles = msarticles.c
    status = articles.status.in_((ArticleStatus.ACTIVE, ArticleStatus.ENDED))
    # Definitions, which it does not show, are most of a row.
    shown = [it for it in articles if it.name not in ("source_file", "source_definition", "file_names")]
    query = sa.select(*shown).where(articles.publication_id == record.publication_id, status)
    delivered = _delivered(connection, record)
    waiting: dict[str, list[WaitingArticle]] = defaultdict(list)
    for it in waiting_articles(connection, record):
        waiting[it.article].append(it)
    rows = connection.execute(query.order_by(articles.source_owner, articles.source_object))
    return [_article(row, delivered, waiting) for row in rows]


def _article(
    row: sa.Row[Any], delivered: Mapping[str, Mapping[str, int]], waiting: Mapping[str, Sequence[WaitingArticle]]
) -> PublishedArticle:
    name = str(TableName(row.source_owner, row.source_object))
    return PublishedArticle(
        article=name,
        destination=str(TableName(row.destination_owner, row.destination_object)),
        destinations=row.destinations,
        columns=[it["name"] for it in row.columns],
        ins_cmd=row.ins_cmd,
        upd_cmd=row.upd_cmd,
        del_cmd=row.del_cmd,
        filter=row.filter_clause,
        update_policy=row.update_policy,
        truncate=row.truncate,
        ended=row.status == ArticleStatus.ENDED,
        delivered_commands=delivered.get(name, {}),
        waiting=waiting.get(name, ()),
    )


def _delivered(connection: sa.Connection, record: MonitoredRecord) -> Mapping[str, Mapping[str, int]]:
    """Return the commands delivered of each article, by subscription: history's, and what clean-up has kept in sum."""
    history = msdistribution_history.c
    kept = sa.select(mssubscriptions.c.subscription_id, mssubscriptions.c.delivered_commands.label("counts")).where(
        mssubscriptions.c.publication_id == record.publication_id,
        sa.func.json_typeof(mssubscriptions.c.delivered_commands) == "object",
    )
    runs = sa.select(history.subscription_id, history.commands_by_article.label("counts")).where(
        history.publication_id == record.publication_id, history.delivered_commands > 0
    )
    rows = sa.union_all(kept, runs).subquery()
    each = sa.func.json_each_text(rows.c.counts).table_valued("key", "value").lateral("each")
    query = (
        sa.select(rows.c.subscription_id, each.c.key, sa.func.sum(sa.cast(each.c.value, sa.BigInteger)))
        .select_from(rows.join(each, sa.true()))
        .group_by(rows.c.subscription_id, each.c.key)
    )
    found: dict[str, dict[str, int]] = defaultdict(dict)
    for subscription_id, article, commands in connection.execute(query):
        found[article][record.subscriptions[subscription_id].subscription] = int(commands)
    return found
