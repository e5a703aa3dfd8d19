"""What a person may choose for a run that is triggered by hand, as Airflow's form shows it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from airflow.sdk import Context, Param

from tranrepl.errors import ConfigurationError
from tranrepl.settings.publication import Publication, SyncType

REINITIALIZE = "reinitialize"
"""Of a publication's DAG: subscriptions that begin anew."""
SUBSCRIPTIONS = "subscriptions"
"""Of a validation: those to compare."""
ARTICLES = "articles"
ROWCOUNT_ONLY = "rowcount_only"
REPAIR = "repair"

_BEGIN_ANEW = "Begin anew with a snapshot (only for a manual run, not for a backfill)"


def run_parameters(publication: Publication) -> dict[str, Param]:
    """Those of a publication's DAG; none where no subscription takes a snapshot."""
    names = [it.name for it in publication.subscriptions if it.sync_type is SyncType.AUTOMATIC]
    if not names:
        return {}
    return {
        REINITIALIZE: _choice(
            names,
            "Subscriptions",
            "They get the Publisher's rows again, as pre_creation_cmd says. None chosen: the run delivers as ever.",
            _BEGIN_ANEW,
        ),
        ARTICLES: _choice(
            _sources(publication),
            "Articles",
            "Only these tables of the subscriptions above begin anew. None chosen: all of them.",
            _BEGIN_ANEW,
        ),
    }


def validation_parameters(publication: Publication) -> dict[str, Param]:
    """Those of a publication's validation DAG."""
    names = [it.name for it in publication.subscriptions]
    return {
        SUBSCRIPTIONS: _choice(names, "Subscriptions", "Compare only these with the Publisher. None chosen: all."),
        ARTICLES: _choice(_sources(publication), "Articles", "Compare only these tables. None chosen: all."),
        ROWCOUNT_ONLY: _switch("Count only", "Count the rows at both ends, and do not compare what is in them."),
        REPAIR: _switch("Repair", "Correct the rows that differ at the Subscriber, in one transaction."),
    }


def articles_to_begin_anew(context: Context, subscription: str) -> tuple[str, ...] | None:
    """The articles of this subscription that a person wants a snapshot of again; empty: all, None: nothing is wanted.

    Raises ConfigurationError where articles were chosen without a subscription, and for a backfill: each of its runs
    would take the same snapshot, of now and not of its interval.
    """
    wanted, articles = _chosen(context, REINITIALIZE), _chosen(context, ARTICLES)
    if (wanted or articles) and context["dag_run"].run_type == "backfill":
        raise ConfigurationError(
            "a backfill cannot begin a subscription anew: every run of it would take a snapshot of now",
            remedy=f"trigger a manual run with the parameter {REINITIALIZE}, or "
            f"`tranrepl reinitialize FILE -s {subscription}`; then backfill without it",
        )
    if articles and not wanted:
        raise ConfigurationError(
            f"articles were chosen ({', '.join(articles)}), but no subscription that is to begin anew",
            remedy=f"choose the subscription too, as in {json.dumps({REINITIALIZE: [subscription]})}",
        )
    return tuple(articles) if subscription in wanted else None


def is_to_be_validated(context: Context, subscription: str) -> bool:
    """Whether this subscription was chosen, or none was."""
    return subscription in (_chosen(context, SUBSCRIPTIONS) or [subscription])


def _chosen(context: Context, name: str) -> list[str]:
    return list(context["params"].get(name) or ())


def _sources(publication: Publication) -> list[str]:
    return [str(article.source) for article in publication.articles]


def _choice(names: Sequence[str], title: str, sentence: str, section: str | None = None) -> Param:
    """A list to choose from. Airflow's form offers `examples`, and marks as required what may not be null, which is
    what it sends for nothing chosen."""
    schema: dict[str, Any] = {
        "type": ["array", "null"],
        "items": {"type": "string", "enum": list(names)},
        "examples": list(names),
        "title": title,
        "section": section,
    }
    return Param([], sentence, **schema)


def _switch(title: str, sentence: str) -> Param:
    return Param(False, type=["boolean", "null"], title=title, description=sentence)
