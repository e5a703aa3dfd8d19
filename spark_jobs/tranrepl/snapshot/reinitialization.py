"""Reinitialization of a subscription, or of an article of it: it waits for a snapshot again."""

from __future__ import annotations

from tranrepl.distribution.opening import open_distribution
from tranrepl.distributor.tables import SubscriptionStatus
from tranrepl.jobs.requests import SnapshotRequest
from tranrepl.snapshot.opening import Waiting, open_snapshot, published_articles
from tranrepl.topology import Topology


def mark_for_reinitialization(request: SnapshotRequest, topology: Topology) -> None:
    """Let the request's articles (none: the subscription) wait for a snapshot, an inactive subscription among them.

    Raises ConfigurationError where the snapshot would find rows that it must not touch, or where an article is asked
    for of a subscription that is inactive. Source: `sp_reinitsubscription`.
    """
    with open_distribution(topology, request.subscription) as opened:
        articles = published_articles(request, opened)
        whole = not request.articles
        if not whole and opened.subscription.status is SubscriptionStatus.INACTIVE:
            opened.refuse_incomplete(opened.subscriber.watermark())
        chosen = tuple(it for it in articles if whole or str(it.source) in request.articles)
        with open_snapshot(request, topology, opened, Waiting(chosen, whole)) as plan:
            for problem in plan.target.problems(plan.articles):
                raise problem
        opened.database.snapshots.subscribe(opened.subscription, [str(it.source) for it in chosen], whole=whole)
