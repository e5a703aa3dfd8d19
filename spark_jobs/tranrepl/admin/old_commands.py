"""Subscriptions that are to begin with what is stored, where that is of earlier definitions of the tables.

`setup` makes a new Subscriber's tables as the Publisher's are now, and records that. Commands of before a stored schema
change do not fit them, or would put values into other columns: the Subscriber reports nothing of that.
"""

from __future__ import annotations

from collections.abc import Sequence

from tranrepl.distributor.database import DistributionDatabase, PublicationRecord
from tranrepl.errors import ConfigurationError
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.position import FIRST_POSITION
from tranrepl.settings.publication import Publication, Subscription, SyncType
from tranrepl.topology import Topology


def refuse_old_commands(
    topology: Topology, database: DistributionDatabase, record: PublicationRecord, articles: Sequence[RegisteredArticle]
) -> None:
    """Raise ConfigurationError where a new subscription takes no snapshot, and commands that it would begin with are of
    an earlier definition of a table; before anything is made for it."""
    publication = topology.publication
    for subscription in _beginning_with_commands(publication, database, record):
        begun = record.read_from or FIRST_POSITION
        if subscription.subscription_lsn is not None:
            begun = topology.positions.parse(subscription.subscription_lsn)
        changes = database.schema_changes.after(record, topology.positions.watermark(begun))
        by_id, tables = database.articles.by_id(record), {it.source_object_id for it in articles}
        for it in changes:
            known = by_id.get(it.change.article_id)
            if it.change.changes_destination and known is not None and known.source_object_id in tables:
                raise _of_earlier_definitions(subscription, it.change.source, it.change.tag, it.xact_seqno)


def _beginning_with_commands(
    publication: Publication, database: DistributionDatabase, record: PublicationRecord
) -> list[Subscription]:
    return [
        it
        for it in publication.subscriptions
        if it.sync_type is not SyncType.AUTOMATIC and database.subscriptions.find(record, it.name) is None
    ]


def _of_earlier_definitions(
    subscription: Subscription, article: object, tag: str, xact_seqno: bytes
) -> ConfigurationError:
    return ConfigurationError(
        f"subscription {subscription.name} is new, and would begin with commands of article {article} that were stored "
        f"before a schema change ({tag}, transaction 0x{xact_seqno.hex()}): they do not fit the Subscriber's table, "
        "which setup makes as it is after the change",
        remedy="give `sync_type: automatic`: it begins with a snapshot; or load the rows as they are now, and give "
        "`sync_type: initialize_from_lsn` with the rows' position as `subscription_lsn`",
        article=str(article),
    )
