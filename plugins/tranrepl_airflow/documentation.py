"""What Airflow's UI says of a publication: its articles, how each operation is propagated, its subscriptions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tranrepl.commands import Operation
from tranrepl.settings import Article, Publication, Subscription

_PROPAGATED = (Operation.INSERT, Operation.UPDATE, Operation.DELETE)


def publication_doc(publication: Publication) -> str:
    """Markdown for the DAG's page."""
    articles = _table(
        ["article", "Subscriber table", "columns", *(operation.name for operation in _PROPAGATED)],
        [_article(article) for article in publication.articles],
    )
    subscriptions = _table(
        ["subscription", "connection", "streams", "transactions a commit"],
        [_subscription(subscription) for subscription in publication.subscriptions],
    )
    return (
        f"Publisher `{publication.publisher.connection}`, "
        f"distribution database `{publication.distributor.connection}`, {_schedule(publication.schedule)}.\n\n"
        f"{articles}\n\n{subscriptions}\n\n"
        "A scheduled run or a backfill delivers the transactions committed before the end of its interval; "
        "a manual run delivers all there are.\n"
    )


def _schedule(schedule: str | None) -> str:
    return f"schedule `{schedule}` (UTC)" if schedule else "manual runs only"


def _article(article: Article) -> list[str]:
    columns = ", ".join(article.columns) if article.columns else "all"
    commands = [str(article.propagation(operation)) for operation in _PROPAGATED]
    return [str(article.source), str(article.destination_table), columns, *commands]


def _subscription(subscription: Subscription) -> list[str]:
    return [
        subscription.name,
        subscription.connection,
        str(subscription.subscription_streams),
        str(subscription.commit_batch_size),
    ]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join([_row(head), _row(["---"] * len(head)), *(_row(row) for row in rows)])


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"
