"""A Subscriber's tables as Airflow's assets, for DAGs that are scheduled by their deliveries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from airflow.sdk import Asset, AssetAlias, Context

from tranrepl.model.names import TableName
from tranrepl.settings.publication import Publication


def subscriber_table(publication: str, subscription: str, table: TableName) -> Asset:
    """Return the asset of a Subscriber's table: `x-tranrepl://publication/subscription/schema.table`."""
    return Asset(uri=f"x-tranrepl://{publication}/{subscription}/{quote(str(table))}")


def subscription_alias(publication: str, subscription: str) -> AssetAlias:
    """Return the outlet of a task that writes to the subscription's tables; which of them it wrote to, it says as it
    runs."""
    return AssetAlias(f"{publication}/{subscription}")


def add_events(
    context: Context, alias: AssetAlias, publication: Publication, subscription: str, extras: Mapping[str, Any]
) -> None:
    """Let the task, when it succeeds, emit an event for each article's table at the Subscriber.

    `extras` holds by article (source table) what the event says besides.
    """
    for article in publication.articles:
        extra = extras.get(str(article.source))
        if extra:
            table = subscriber_table(publication.publication, subscription, article.at(subscription).destination_table)
            context["outlet_events"][alias].add(table, extra=extra)
