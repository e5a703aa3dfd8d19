"""The asset events of what a run delivered to one subscription, for DAGs that are scheduled by its tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from airflow.sdk import BaseOperator, Context

from tranrepl.jobs.results import JobResult
from tranrepl.settings.publication import Publication
from tranrepl_airflow.alert_callbacks import alert_skipped
from tranrepl_airflow.assets import add_events
from tranrepl_airflow.earlier_tasks import results_of
from tranrepl_airflow.summary import TEMPLATE, run_in_words, summarize


@dataclass(frozen=True, slots=True)
class Delivery:
    """All attempts of one run together."""

    transactions: int
    commands: int
    commands_by_article: Mapping[str, int]
    last_xact_seqno: str | None
    latency_ms: int | None = None
    """The last transaction's, from its commit at the Publisher."""
    snapshot_rows: int = 0
    repaired: Mapping[str, int] = field(default_factory=dict)
    """Rows that a validation corrected, by article."""
    skipped: int = 0
    """Commands that were left out, as `skip_errors` says."""


def delivery_of(attempts: Sequence[JobResult]) -> Delivery:
    """Add up attempts, the first one first: one that failed may have delivered before it did."""
    total = JobResult()
    for attempt in attempts:
        total = total.plus(attempt)
    validated = total.validation.articles if total.validation is not None else ()
    return Delivery(
        transactions=total.transactions,
        commands=total.commands,
        commands_by_article=total.commands_by_article,
        last_xact_seqno=total.last_xact_seqno,
        latency_ms=total.latency_ms,
        snapshot_rows=sum(table.rows for table in total.snapshot),
        repaired={it.article: it.repaired for it in validated if it.repaired},
        skipped=total.skipped,
    )


class DeliveredOperator(BaseOperator):
    """Emits one Asset event for each Subscriber table that had commands or was repaired, whichever of `attempts` (task
    ids) did it, and the alert `command_skipped` where commands were skipped. Returns the Delivery as XCom. A snapshot's
    events are those of the task that took it.
    """

    def __init__(
        self,
        *,
        publication: Publication,
        subscription: str,
        attempts: Sequence[str],
        settings_file: str,
        **kwargs: Any,
    ) -> None:
        super().__init__(map_index_template=TEMPLATE, **kwargs)
        self.publication = publication
        self.subscription = subscription
        self.attempts = attempts
        self.settings_file = settings_file

    def execute(self, context: Context) -> Any:
        """Read the attempts' results and add the events to this task's outlet."""
        results = results_of(context, self.attempts)
        delivery = delivery_of(results)
        add_events(context, self.publication, self.subscription, _extras(delivery))
        summarize(context, run_in_words(asdict(delivery)))
        # The last thing that is done: a task that is tried again would emit it again.
        alert_skipped(self.publication, self.subscription, results, context)
        return asdict(delivery)


def _extras(delivery: Delivery) -> dict[str, Any]:
    """Return the asset event's extra by article, for the articles to which something was written."""
    extras: dict[str, Any] = {
        article: {"commands": commands, "last_xact_seqno": delivery.last_xact_seqno}
        for article, commands in delivery.commands_by_article.items()
        if commands
    }
    for article, rows in delivery.repaired.items():
        extras[article] = {**extras.get(article, {"last_xact_seqno": delivery.last_xact_seqno}), "repaired": rows}
    return extras
