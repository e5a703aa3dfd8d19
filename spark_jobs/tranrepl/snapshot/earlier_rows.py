"""Rows of articles whose tables are to be altered before a snapshot: deleted while a row filter still tells them.

A schema change may take the values of a column that a filter reads. Afterwards nobody knows which rows of the table
are the article's, and which are others'; those that the Publisher does not have any more would stay.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

from tranrepl.distributor.stale_articles import known_before
from tranrepl.model.schema_change import SETUP_TAG
from tranrepl.settings.publication import PreCreation
from tranrepl.snapshot.definitions import TableBehind
from tranrepl.snapshot.opening import OpenSnapshot
from tranrepl.subscriber.snapshot import OwnedRows, SnapshotArticle
from tranrepl.subscriber.subscription import SubscriptionPosition

log = logging.getLogger(__name__)


def delete_earlier_rows(
    plan: OpenSnapshot,
    snapshot: str,
    behind: Sequence[TableBehind],
    position: SubscriptionPosition,
    say: Callable[[str], None],
) -> tuple[SnapshotArticle, ...]:
    """Delete the rows that articles have by the definitions which their tables have; return the snapshot's articles
    as they are then: what an earlier filter said of rows that have gone is said no more. Rows that cannot be known
    stay, which is reported.

    It may be done again: a table has that definition until it is altered. Raises as `delete_before_changes` does.
    """
    applied = {str(it.article.source): it for it in behind}
    chosen = {it.name for it in plan.articles if it.name in applied and _is_filtered(it, applied[it.name])}
    if not chosen:
        return plan.articles
    rows = [_rows(it, applied.get(it.name)) for it in plan.articles]
    deleted = plan.target.delete_before_changes(
        snapshot, rows, chosen, position, not_for_replication=plan.options.not_for_replication
    )
    for left in deleted.left:
        log.warning("%s", left)
        say(left)
    gone = {
        it.name: it.earlier_filter
        for it in plan.articles
        if it.name in deleted.articles and it.earlier_filter is not None
    }
    plan.opened.database.snapshots.forget_earlier_filters(plan.opened.subscription, gone)
    return tuple(replace(it, earlier_filter=None) if it.name in gone else it for it in plan.articles)


def _is_filtered(it: SnapshotArticle, behind: TableBehind) -> bool:
    """Return whether the snapshot deletes rows by a filter, of which those of before may be others."""
    return (
        it.settings.pre_creation_cmd is PreCreation.DELETE
        and it.article.filter is not None
        and behind.applied.filter is not None
        and behind.applied.destination == it.article.destination
    )


def _rows(it: SnapshotArticle, behind: TableBehind | None) -> OwnedRows:
    if behind is None:
        return it.owned
    earlier = it.earlier_filter
    if earlier is not None:
        # Filters that were replaced later have the names of later columns, and are that of `applied` under others.
        earlier = known_before(earlier, _replaced(behind))
    return it.owned_by(behind.applied, earlier)


def _replaced(behind: TableBehind) -> list[str]:
    """Return the filters that setup replaced since the definition that the table has."""
    steps = zip(behind.changes, pairwise(behind.definitions), strict=True)
    return [
        old.filter or "true" for change, (old, new) in steps if change.tag == SETUP_TAG and old.filter != new.filter
    ]
