"""Parameters of runs that are triggered by hand, as Airflow's form shows them."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum, auto
from typing import Any

from airflow.sdk import Context, Param

from tranrepl.model.commands import XACT_SEQNO_BYTES
from tranrepl.settings.publication import Publication

SUBSCRIPTIONS = "subscriptions"
ARTICLES = "articles"
ROWCOUNT_ONLY = "rowcount_only"
REPAIR = "repair"
CHECK_ONLY = "check_only"
ACTION = "action"
SUBSCRIPTION = "subscription"
XACT_SEQNO = "xact_seqno"
_SEQNO_PATTERN = rf"^(0x)?[0-9a-fA-F]{{{2 * XACT_SEQNO_BYTES}}}$"


class AdministrationAction(StrEnum):
    """What an administrator does by hand: the ids of the administration DAG's tasks."""

    TRACE = auto()
    """Post a tracer token."""
    SKIP = auto()
    """Skip the next transaction of a subscription."""
    RETRY = auto()
    """Let the next delivery begin with an earlier transaction."""
    CLEANUP = auto()
    """Remove what the publication needs no more."""
    ACKNOWLEDGE = auto()
    """Acknowledge the unresolved errors."""
    TEST_ALERT = auto()
    """Send a test alert by each notifier."""


def reinitialization_parameters(publication: Publication, subscriptions: Sequence[str]) -> dict[str, Param]:
    """Return the parameters of the DAG that reinitializes subscriptions of the publication; `subscriptions` are those
    that can."""
    return {
        SUBSCRIPTIONS: _required_choice(
            subscriptions, "Subscriptions", "They get the Publisher's rows again, as pre_creation_cmd says."
        ),
        ARTICLES: _choice(
            _sources(publication),
            "Articles",
            "Only these tables of the subscriptions above are reinitialized. None chosen: all of them.",
        ),
    }


def validation_parameters(publication: Publication) -> dict[str, Param]:
    """Return the parameters of a publication's validation DAG."""
    names = [it.name for it in publication.subscriptions]
    return {
        SUBSCRIPTIONS: _choice(names, "Subscriptions", "Compare only these with the Publisher. None chosen: all."),
        ARTICLES: _choice(_sources(publication), "Articles", "Compare only these tables. None chosen: all."),
        ROWCOUNT_ONLY: _switch("Count only", "Count the rows at both ends, and do not compare what is in them."),
        REPAIR: _switch("Repair", "Correct the rows that differ at the Subscriber, in one transaction."),
    }


def setup_parameters() -> dict[str, Param]:
    """Return the parameters of the DAG that checks a publication and sets it up."""
    return {CHECK_ONLY: _switch("Check only", "Report what would keep the publication from running; change nothing.")}


def administration_parameters(publication: Publication) -> dict[str, Param]:
    """Return the parameters of the DAG of what an administrator does by hand."""
    actions, names = [it.value for it in AdministrationAction], [it.name for it in publication.subscriptions]
    return {
        ACTION: Param(
            type="string",
            enum=actions,
            title="Action",
            description="Tracer token, skip, retry, clean-up, acknowledge or test alert.",
        ),
        SUBSCRIPTION: Param(
            None,
            type=["string", "null"],
            enum=[*names, None],
            title="Subscription",
            description="The one whose transaction is skipped, or delivered again.",
        ),
        XACT_SEQNO: Param(
            None,
            type=["string", "null"],
            pattern=_SEQNO_PATTERN,
            title="Transaction",
            description="Its xact_seqno, hexadecimal. Skip: the next transaction. Retry: the one to begin with.",
        ),
    }


def is_only_checked(context: Context) -> bool:
    """Return whether nothing is to be changed."""
    return bool(context["params"].get(CHECK_ONLY))


def chosen_action(context: Context) -> AdministrationAction:
    """Return what the administrator wants."""
    return AdministrationAction(context["params"][ACTION])


def chosen_subscription(context: Context) -> str | None:
    """Return the subscription that the administrator means."""
    return context["params"].get(SUBSCRIPTION)


def chosen_transaction(context: Context) -> str | None:
    """Return the `xact_seqno` that the administrator means, as it was typed."""
    return context["params"].get(XACT_SEQNO)


def subscriptions_to_reinitialize(context: Context) -> list[str]:
    """Return the subscriptions that a person wants a snapshot of again."""
    return _chosen(context, SUBSCRIPTIONS)


def chosen_articles(context: Context) -> tuple[str, ...]:
    """Return the articles that were chosen; empty: all."""
    return tuple(_chosen(context, ARTICLES))


def is_to_be_validated(context: Context, subscription: str) -> bool:
    """Return whether this subscription was chosen, or none was."""
    return subscription in (_chosen(context, SUBSCRIPTIONS) or [subscription])


def _chosen(context: Context, name: str) -> list[str]:
    return list(context["params"].get(name) or ())


def _sources(publication: Publication) -> list[str] | None:
    """Return the articles to choose from; None where the file does not say which there are, but has patterns."""
    return None if publication.has_patterns else [str(article.source) for article in publication.articles]


def _choice(names: Sequence[str] | None, title: str, sentence: str) -> Param:
    """Return a list to choose from. Airflow's form offers `examples`, and marks as required what may not be null, which
    is what it sends for nothing chosen."""
    return Param([], sentence, type=["array", "null"], **_list_of(names, title))


def _required_choice(names: Sequence[str], title: str, sentence: str) -> Param:
    """Return a list of which something must be chosen. Only a DAG without a schedule can have one."""
    return Param([], sentence, type="array", minItems=1, **_list_of(names, title))


def _list_of(names: Sequence[str] | None, title: str) -> dict[str, Any]:
    if names is None:
        return {"items": {"type": "string"}, "title": title}
    return {"items": {"type": "string", "enum": list(names)}, "examples": list(names), "title": title}


def _switch(title: str, sentence: str) -> Param:
    return Param(False, type=["boolean", "null"], title=title, description=sentence)
