"""A subscription, or an article of it, is to have a snapshot again."""

from __future__ import annotations

from collections.abc import Mapping

from tranrepl.connections import Connection
from tranrepl.distribution.opening import open_distribution
from tranrepl.distributor.tables import SubscriptionStatus
from tranrepl.jobs.requests import DistributionRequest, SnapshotRequest
from tranrepl.snapshot.opening import Waiting, open_snapshot, published_articles


def subscribe_anew(request: SnapshotRequest, connections: Mapping[str, Connection]) -> None:
    """Let the request's articles (none: the subscription) wait for a snapshot, an inactive subscription among them.

    Raises ConfigurationError where the snapshot would find rows that it must not touch, or where an article is asked
    for of a subscription that is inactive. Source: `sp_reinitsubscription`.
    """
    asked = DistributionRequest(publication=request.publication, subscription=request.subscription)
    with open_distribution(asked, connections) as opened:
        articles = published_articles(request, opened)
        whole = not request.articles
        if not whole and opened.subscription.status is SubscriptionStatus.INACTIVE:
            opened.refuse_incomplete(opened.subscriber.watermark())
        chosen = tuple(it for it in articles if whole or str(it.source) in request.articles)
        with open_snapshot(request, connections, opened, Waiting(chosen, whole)) as plan:
            for problem in plan.target.problems(plan.articles):
                raise problem
        opened.database.subscribe(opened.subscription, [str(it.source) for it in chosen], whole=whole)
