"""Texts of DAGs and tasks for Airflow's UI: the purpose of each, and the way on where it fails."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from tranrepl.model.commands import Operation
from tranrepl.printable import one_line, printable
from tranrepl.settings.publication import Article, Publication, Subscription
from tranrepl.settings.values import CONTINUOUS
from tranrepl_airflow.parameters import AdministrationAction

_PROPAGATED = (Operation.INSERT, Operation.UPDATE, Operation.DELETE)

_RUNBOOK = "`docs/how-to/a-batch-failed.md`"

LOG_READER = (
    "Reads the Publisher's log from where the last run ended, and stores the commands of all subscriptions. With "
    "nothing to read, no Spark job is started.\n\n"
    "**If it fails**, the end of its log says what to do. What is stored already is delivered all the same; the run is "
    "a failed one. Where the log went back (error 18846) nothing is delivered.\n"
)
LOG_WAS_READ = (
    "Does nothing itself. It succeeds where `log_reader` did: a run whose log reader failed is a failed one, even if "
    "it delivered what was stored.\n"
)
RUN_IS_OVER = (
    "Waits until the run's time is over where the log reader ended early, so that failing runs do not follow one "
    "another without a pause. To go on at once: mend what stopped `log_reader` and clear that task, or mark this one "
    "as a success.\n"
)
INITIALIZE = (
    "Gives the subscription, or articles that were added, the Publisher's rows by a snapshot. On most runs nothing "
    "waits for one, and it says so.\n\n"
    "**If it fails**, nothing is delivered to this subscription until a snapshot succeeds; the next run tries again.\n"
)
DISTRIBUTE = (
    "Delivers what is stored, in commit order, up to the end of the run's interval (a manual run: all of it).\n\n"
    "**If a batch fails**, all of it is rolled back, and `retry_on_single_connection` delivers it: a run in which this "
    f"task is red and that one green has delivered everything. Otherwise: {_RUNBOOK}.\n"
)
RETRY = (
    "Delivers over a single connection what `distribute` could not. Where no batch failed it says so and ends.\n\n"
    "**If it fails**, the subscription stopped at one command that cannot be applied; nothing after it is delivered. "
    f"The end of its log names the command and what can be done; {_RUNBOOK} says when to do what. It is skipped where "
    "`distribute` failed for a reason that a person must remove first.\n"
)
DELIVERED = (
    "Emits Asset events that say what arrived in which of the Subscriber's tables, for DAGs that wait for them ("
    "`docs/how-to/wait-for-a-delivery.md`). Its XCom has the counts, and the run's note says them in words.\n"
)
REINITIALIZE = (
    "Gives the subscription, or the articles that were chosen, the Publisher's rows again by a snapshot. No delivery "
    "to the subscription runs meanwhile; what is committed from then on comes with the publication's next run.\n\n"
    "**If it fails**, nothing is delivered to this subscription, or these articles, until a snapshot succeeds. The "
    "publication's next run tries again.\n"
)
VALIDATE = (
    "Compares the Subscriber's rows with the Publisher's, both at one transaction; for that it reads the log and "
    "delivers up to there. The parameter `repair` corrects what differs.\n\n"
    "**If it fails with error 20574**, rows differ: its log names them. Trigger this DAG with `repair`, or "
    f"reinitialize the article. A batch that cannot be delivered: {_RUNBOOK}.\n"
)
EQUAL = (
    "Does nothing itself. It succeeds where the rows are equal, or were repaired; otherwise the run is a failed one.\n"
)
BROKEN_SETTINGS = (
    "Fails with what is wrong in the settings file. Correct the file (`tranrepl check FILE` reports what is wrong), "
    "and Airflow has the publication's own DAG again.\n"
)
CHECK = (
    "Looks at all that the publication needs, as `tranrepl check FILE` does, and changes nothing. Its XCom `report` "
    "has what was found.\n\n"
    "**If it fails**, the end of its log says what to mend first; Replication Monitor shows the whole report.\n"
)
SETUP = (
    "Creates what is missing at Publisher, Distributor and Subscribers, as `tranrepl setup FILE` does. It may be run "
    "again at any time. Skipped where only a check was wanted.\n"
)
ADMINISTRATION_TASKS = {
    AdministrationAction.TRACE: "Posts a tracer token, by which latency is measured: the publication's next run reads "
    "and delivers it.\n",
    AdministrationAction.SKIP: "Skips the transaction, where it is the next one of the subscription: it is never "
    f"applied. The history records it. {_RUNBOOK} says when to.\n",
    AdministrationAction.RETRY: "Lets the subscription's next delivery begin with the transaction, though it was "
    "delivered before.\n",
    AdministrationAction.ACKNOWLEDGE: "Acknowledges the publication's unresolved errors, as `tranrepl status FILE "
    "--acknowledge` does: they stay in the history, and no longer count.\n",
    AdministrationAction.TEST_ALERT: "Sends one test alert by each notifier, as `tranrepl alert FILE --test` does.\n",
    AdministrationAction.CLEANUP: "Removes stored commands and history that this publication no longer needs, as "
    "`distribution_cleanup` does.\n",
}
CLEANUP = (
    "Removes what this publication no longer needs. **If it fails**, nothing is lost: the next run removes it. It "
    "fails for good where the settings or a connection are wrong.\n"
)


def code(text: str) -> str:
    """Return Markdown that shows a text which somebody else wrote, and obeys nothing in it."""
    shown = one_line(text)
    if "`" not in shown:
        return f"`{shown}`"
    fence = _fence(shown, 1)
    return f"{fence} {shown} {fence}"


def broken_doc(message: str) -> str:
    """Return Markdown for the page of a DAG whose settings cannot be used."""
    fence = _fence(message, 3)
    return f"Nothing is replicated: the settings cannot be used.\n\n{fence}\n{printable(message)}\n{fence}\n"


def _fence(text: str, shortest: int) -> str:
    """Return more backticks than the text has side by side."""
    return "`" * max(shortest, *(len(it) + 1 for it in re.findall("`+", text)), 0)


def publication_doc(publication: Publication) -> str:
    """Return Markdown for the DAG's page."""
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
        f"{_bounds(publication)} The run's note says what was delivered.\n\n"
        f"A red task: its log ends with what to do, and {_RUNBOOK} says more.\n\n"
        f"`{publication.publication}_validate` compares both ends, `{publication.publication}_reinitialize` "
        f"reinitializes subscriptions, `{publication.publication}_setup` checks and sets up, "
        f"`{publication.publication}_administer` has what an administrator does by hand.\n"
    )


def setup_doc(publication: Publication) -> str:
    """Return Markdown for the page of the DAG that sets it up."""
    return (
        f"Checks `{publication.publication}`, and creates what is missing at Publisher, Distributor and Subscribers. "
        "It may be run again at any time: after a change of the file, after an upgrade.\n\n"
        "Trigger it with `check_only` to change nothing.\n"
    )


def administration_doc(publication: Publication) -> str:
    """Return Markdown for the page of the DAG of what is done by hand."""
    return (
        f"An administrator's actions on `{publication.publication}`: post a tracer token, skip the next "
        "transaction of a subscription, go back to an earlier one, clean up. Replication Monitor triggers it, and "
        "first shows what it will do.\n"
    )


def validation_doc(publication: Publication) -> str:
    """Return Markdown for the page of its validation's DAG."""
    return (
        f"Compares the Subscribers of `{publication.publication}` with its Publisher, both at one transaction, "
        "while writes go on. A task fails where rows differ and were not repaired.\n\n"
        "Trigger it to choose subscriptions and articles, or to repair.\n"
    )


def reinitialization_doc(publication: Publication) -> str:
    """Return Markdown for the page of the DAG that reinitializes its subscriptions."""
    return (
        f"Reinitializes subscriptions of `{publication.publication}`: they get the Publisher's rows again by a "
        "snapshot, as `pre_creation_cmd` says. An inactive subscription is active again.\n\n"
        "Trigger it and choose the subscriptions, and the articles where not all are meant. A task that is tried "
        "again goes on with the snapshot that it began. There is no schedule and no backfill: a snapshot is of now.\n"
    )


def _bounds(publication: Publication) -> str:
    if publication.is_continuous:
        return (
            f"A run lasts {publication.run_for} s (`run_for`): log reader and deliveries are continuous agents, side "
            "by side (`docs/how-to/continuous-agents.md`)."
        )
    return (
        "A scheduled run or a backfill (`docs/how-to/backfill.md`) delivers the transactions committed before the end "
        "of its interval; a manual run delivers all there are."
    )


def _schedule(schedule: str | None) -> str:
    if schedule == CONTINUOUS:
        return "continuous: one run follows the other, with continuous agents"
    return f"schedule `{schedule}` (UTC)" if schedule else "manual runs only"


def _article(article: Article) -> list[str]:
    columns = ", ".join(map(code, article.columns)) if article.columns else "all"
    commands = [code(str(article.propagation(operation))) for operation in _PROPAGATED]
    elsewhere = "".join(f", {name}: {code(str(table))}" for name, table in article.destinations.items())
    return [code(str(article.source)), f"{code(str(article.destination_table))}{elsewhere}", columns, *commands]


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
