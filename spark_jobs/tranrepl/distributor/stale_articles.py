"""Articles whose rows at the Subscribers may not be the Publisher's any more: why, and what becomes of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tranrepl.distributor.database import (
    ArticleState,
    DistributionDatabase,
    PublicationRecord,
    SubscriptionRecord,
    UnknownRows,
)
from tranrepl.distributor.tables import WITHOUT_SNAPSHOT
from tranrepl.model.names import TableName
from tranrepl.settings.publication import OnUnknownRows, Publication, Subscription, SyncType


def waits_for_snapshot(publication: Publication, source: TableName, subscription: Subscription) -> bool:
    """Return whether the article is to have a snapshot there; else the subscription stops."""
    article = publication.article(source)
    reinitializes = article is not None and article.on_unknown_rows is OnUnknownRows.REINITIALIZE
    return reinitializes and subscription.sync_type is SyncType.AUTOMATIC


def reinitialize_or_stop(
    database: DistributionDatabase,
    record: PublicationRecord,
    publication: Publication,
    source: TableName,
    unknown: UnknownRows,
    concerns: Callable[[str], bool] = lambda _: True,
) -> list[str]:
    """Let the article wait for a snapshot at each subscription that it `concerns`, or stop the subscription, as
    `on_unknown_rows` and `sync_type` say. Returns what was done, in words."""
    living = [it for it in database.subscriptions.living(record) if concerns(it.subscription)]
    return [reinitialize_or_stop_at(database, it, publication, source, unknown) for it in living]


def reinitialize_or_stop_at(
    database: DistributionDatabase,
    subscription: SubscriptionRecord,
    publication: Publication,
    source: TableName,
    unknown: UnknownRows,
) -> str:
    """Do as `reinitialize_or_stop` does at one subscription. Returns what was done, in words."""
    chosen = next((it for it in publication.subscriptions if it.name == subscription.subscription), None)
    state = database.snapshots.article_states(subscription).get(str(source))
    why = unknown if state is None else _added(state, unknown)
    place = f"article {source} of subscription {subscription.subscription}"
    # It is to have a snapshot in any case, where it waits for one; one that is on its way begins again.
    waits = subscription.status in WITHOUT_SNAPSHOT or (state is not None and state.status in WITHOUT_SNAPSHOT)
    if waits or (chosen is not None and waits_for_snapshot(publication, source, chosen)):
        database.snapshots.subscribe(subscription, [str(source)], whole=False, unknown=why)
        return f"article {source} is copied to {subscription.subscription} again: {why.reason}"
    database.snapshots.stop_article(subscription, str(source), why)
    return f"{place} is stopped until its rows are validated or copied: {why.reason}"


def _added(state: ArticleState, unknown: UnknownRows) -> UnknownRows:
    """Add the reason to what was not known before."""
    # `known_before` takes it apart.
    filters = [f"({it})" for it in (state.earlier_filter, unknown.earlier_filter) if it is not None]
    return UnknownRows(unknown.reason, " OR ".join(filters) or None)


def known_before(earlier_filter: str, replaced: Sequence[str]) -> str | None:
    """Return what an earlier filter was before setup replaced these filters, in order, and each was added to it; None
    where it was none."""
    before: str | None = earlier_filter
    for it in reversed(replaced):
        if before is None:
            return None
        before = _without(before, it)
    return before


def _without(earlier_filter: str, replaced: str) -> str | None:
    """Return what an earlier filter was before this one was added to it, the last; itself where it was not."""
    text = earlier_filter
    while True:
        if text == replaced:
            return None
        before = text.removesuffix(f" OR ({replaced})")
        if before != text:
            return before[1:-1]
        # Each reason that came without a filter put the text in parentheses.
        if not (text.startswith("(") and text.endswith(")")):
            return earlier_filter
        text = text[1:-1]
