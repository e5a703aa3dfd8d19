"""What a run delivered to one subscription, told to whoever schedules by its tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import quote

from airflow.sdk import Asset, AssetAlias, BaseOperator, Context

from tranrepl.jobs import JobResult
from tranrepl.settings import Publication, TableName
from tranrepl_airflow.operators import RESULT_KEY


@dataclass(frozen=True, slots=True)
class Delivery:
    """All attempts of one run together."""

    transactions: int
    commands: int
    commands_by_article: Mapping[str, int]
    last_xact_seqno: str | None


def delivery_of(attempts: Sequence[JobResult]) -> Delivery:
    """Add up attempts, the first one first: one that failed may have delivered before it did."""
    by_article: dict[str, int] = {}
    for attempt in attempts:
        for article, commands in attempt.commands_by_article.items():
            by_article[article] = by_article.get(article, 0) + commands
        for table in attempt.snapshot:
            # An empty one may have replaced a table that was not.
            by_article[table.article] = by_article.get(table.article, 0) + max(1, table.rows)
    watermarks = [attempt.last_xact_seqno for attempt in attempts if attempt.last_xact_seqno is not None]
    return Delivery(
        transactions=sum(attempt.transactions for attempt in attempts),
        commands=sum(attempt.commands for attempt in attempts),
        commands_by_article=by_article,
        last_xact_seqno=watermarks[-1] if watermarks else None,
    )


def subscriber_table(publication: str, subscription: str, table: TableName) -> Asset:
    """The asset of a Subscriber's table: `x-tranrepl://publication/subscription/schema.table`."""
    return Asset(uri=f"x-tranrepl://{publication}/{subscription}/{quote(str(table))}")


class DeliveredOperator(BaseOperator):
    """Emits one Asset event for each Subscriber table that had commands, whichever of `attempts` (task ids)
    delivered them. Returns the Delivery as XCom.
    """

    def __init__(
        self, *, publication: Mapping[str, Any], subscription: str, attempts: Sequence[str], **kwargs: Any
    ) -> None:
        self.tables = AssetAlias(f"{publication['publication']}/{subscription}")
        super().__init__(outlets=[self.tables], **kwargs)
        self.publication = publication
        self.subscription = subscription
        self.attempts = attempts

    def execute(self, context: Context) -> Any:
        """Read the attempts' results and add the events to this task's outlet."""
        results = [context["ti"].xcom_pull(task_ids=task_id, key=RESULT_KEY) for task_id in self.attempts]
        delivery = delivery_of([JobResult.model_validate(result) for result in results if result is not None])
        publication = Publication.model_validate(self.publication)
        for article in publication.articles:
            commands = delivery.commands_by_article.get(str(article.source), 0)
            if commands:
                context["outlet_events"][self.tables].add(
                    subscriber_table(publication.publication, self.subscription, article.destination_table),
                    extra={"commands": commands, "last_xact_seqno": delivery.last_xact_seqno},
                )
        return asdict(delivery)
