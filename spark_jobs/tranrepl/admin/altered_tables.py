"""Tables that are otherwise than they are registered, and whose alteration the log does not bring: setup lets the
Subscribers' tables follow, as a schema change in the log would.

Such are a primary key that was dropped and added again, with the log read in between, and a type that was changed
while nothing announced it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from tranrepl.distributor.changed_definitions import ChangedDefinition
from tranrepl.distributor.database import DistributionDatabase, PublicationRecord, UnknownRows
from tranrepl.distributor.stale_articles import why_unknown
from tranrepl.distributor.tables import SubscriptionStatus
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.names import TableName
from tranrepl.model.schema_change import SETUP_TAG, ColumnAction
from tranrepl.publisher.publisher import SchemaChanges
from tranrepl.schema.columns import ColumnDifference
from tranrepl.schema.labels import LabelDifference
from tranrepl.schema.messages import AlteredTable, Subject
from tranrepl.settings.publication import Publication

_NEW_KEY = UnknownRows("its primary key is another one")
_NOT_COPIED = "its rows are to be copied"


def unknown_rows(
    publication: Publication, known: RegisteredArticle | None, article: RegisteredArticle
) -> UnknownRows | None:
    """Return why it is open which rows the Subscribers have of an article that was registered as `known`, and that
    setup registers otherwise; None where it is not."""
    if known is None:
        return None
    found = why_unknown(article, known)
    if found is None and known.definition is not None and article.definition is not None:
        renamed = LabelDifference(known, known.definition, article.definition).why_unknown()
        found = None if renamed is None else UnknownRows(renamed)
    return _NEW_KEY if found is None and publication.replicate_ddl and _has_new_key(article, known) else found


def with_alterations(
    publication: Publication,
    changed: Iterable[ChangedDefinition],
    unknown: Mapping[TableName, UnknownRows],
    waiting: Mapping[str, str],
    names: SchemaChanges,
) -> list[ChangedDefinition]:
    """Return the changed articles with what is done to the Subscribers' tables: nothing, where the publication
    replicates no schema changes.

    `unknown` are those whose rows become unknown, `waiting` (by source) why others are to be copied or compared.
    """
    if not publication.replicate_ddl:
        return list(changed)
    return [_with_alterations(it, unknown, waiting, names) for it in changed]


def without_rows(
    database: DistributionDatabase, record: PublicationRecord, known: Iterable[TableName]
) -> dict[str, str]:
    """Return by source the known articles whose rows some subscription waits for, or does not know, with the reason."""
    found: dict[str, str] = {}
    for subscription in database.subscriptions.living(record):
        if subscription.status is not SubscriptionStatus.ACTIVE:
            found |= {str(it): _NOT_COPIED for it in known}
        states = database.snapshots.article_states(subscription).items()
        inactive = [(source, it) for source, it in states if it.status is not SubscriptionStatus.ACTIVE]
        found |= {source: it.reason or _NOT_COPIED for source, it in inactive}
    return found


def _with_alterations(
    it: ChangedDefinition,
    unknown: Mapping[TableName, UnknownRows],
    waiting: Mapping[str, str],
    names: SchemaChanges,
) -> ChangedDefinition:
    old, new = it.old, it.new
    if old.definition is None or new.definition is None or old.destination != new.destination:
        return it
    if old.source_object_id != new.source_object_id:
        return it
    numbers = {it.collation_oid for it in new.definition.columns if it.collation_oid is not None}
    collations = {number: name for number in numbers if (name := names.collation(number)) is not None}
    found = AlteredTable(new.source_object_id, SETUP_TAG, new.definition, Subject.OTHER, collations=collations)
    columns = ColumnDifference(old, old.definition, new.definition, found).changes()
    if not _has_new_key(new, old) and not any(part.action is ColumnAction.RETYPE for part in columns):
        return it
    reason = unknown[old.source].reason if old.source in unknown else waiting.get(str(old.source))
    return replace(it, columns=columns, rows_unknown=reason)


def _has_new_key(article: RegisteredArticle, known: RegisteredArticle) -> bool:
    return known.source_object_id == article.source_object_id and _key(article) != _key(known)


def _key(article: RegisteredArticle) -> list[int]:
    return [article.columns[at].ordinal for at in article.key_positions]
