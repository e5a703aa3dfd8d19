"""The tasks of a publication's DAG and what each waits for, as plain values that know nothing of Airflow.

The start rules are those of the measured truth table: of the rules that look alike, the others turn a failed run
green or a rescued one red. Every task of a good run succeeds; none is skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from tranrepl.settings.publication import Publication, Subscription, SyncType

LOG_READER = "log_reader"
LOG_WAS_READ = "log_was_read"
RUN_IS_OVER = "run_is_over"
SEVERAL_TRIES = 2
"""Retries where an error may pass by itself: a lost connection, a Publisher that restarts."""


class StartRule(StrEnum):
    """When a task starts. The values are Airflow's trigger rules."""

    ALL_SUCCEEDED = "all_success"
    ALL_ENDED = "all_done"
    """The task runs when those before it have ended, however they did."""
    ONE_RAN = "one_done"
    """The task runs after a task that succeeded or failed, and not where that never ran."""
    ONE_SUCCEEDED = "one_success"


@dataclass(frozen=True, slots=True)
class Dependency:
    """A task that must have ended before, and what to write on the edge."""

    task_id: str
    label: str | None = None


@dataclass(frozen=True, slots=True)
class Task:
    task_id: str
    """Full id, with the group's."""
    after: tuple[Dependency, ...] = ()
    starts: StartRule = StartRule.ALL_SUCCEEDED
    retries: int = 0


@dataclass(frozen=True, slots=True)
class Group:
    """The tasks of one subscription."""

    subscription: str
    initialize: Task | None
    """None where the subscription takes no snapshot."""
    distribute: Task
    retry_on_single_connection: Task
    delivered: Task


@dataclass(frozen=True, slots=True)
class Graph:
    log_reader: Task
    log_was_read: Task
    """Does nothing and has nothing after it: the last tasks of a run decide its state, and without this one a log
    reader that failed would not, because what is stored is delivered all the same."""
    groups: tuple[Group, ...]
    run_is_over: Task | None = None
    """In a run of continuous agents: waits for the run's end where the log reader failed before it, so that runs that
    fail do not chase one another."""

    def tasks(self) -> Iterator[Task]:
        """Yield every task, each after those it waits for."""
        yield from (self.log_reader, self.log_was_read)
        yield from [self.run_is_over] if self.run_is_over is not None else []
        for group in self.groups:
            yield from [group.initialize] if group.initialize is not None else []
            yield from (group.distribute, group.retry_on_single_connection, group.delivered)


def replication_graph(publication: Publication) -> Graph:
    """Return the tasks: `log_reader` and `log_was_read`, and for each subscription `initialize` where it takes a
    snapshot, `distribute`, `retry_on_single_connection` and `delivered`; for continuous agents `run_is_over`."""
    log_reader = Task(LOG_READER, retries=SEVERAL_TRIES)
    log_was_read = Task(LOG_WAS_READ, after=(Dependency(LOG_READER),))
    # Continuous agents run side by side.
    first = () if publication.is_continuous else (Dependency(LOG_READER),)
    groups = tuple(_group(subscription, first) for subscription in publication.subscriptions)
    run_is_over = Task(RUN_IS_OVER, (Dependency(LOG_READER),), StartRule.ALL_ENDED)
    return Graph(log_reader, log_was_read, groups, run_is_over if publication.is_continuous else None)


def _group(settings: Subscription, first_after: tuple[Dependency, ...]) -> Group:
    subscription, initialize = settings.name, None
    # What is stored is delivered although the log reader has failed.
    first_starts = StartRule.ALL_ENDED
    if settings.sync_type is SyncType.AUTOMATIC:
        initialize = Task(f"{subscription}.initialize", first_after, first_starts, SEVERAL_TRIES)
        first_after, first_starts = (Dependency(initialize.task_id),), StartRule.ALL_SUCCEEDED
    distribute = Task(f"{subscription}.distribute", first_after, first_starts)
    retry = Task(
        f"{subscription}.retry_on_single_connection",
        # With another task upstream as well, its failure or success would decide instead of the batch's.
        after=(Dependency(distribute.task_id, "a batch failed"),),
        starts=StartRule.ONE_RAN,
        retries=SEVERAL_TRIES,
    )
    delivered = Task(
        f"{subscription}.delivered",
        after=(Dependency(distribute.task_id), Dependency(retry.task_id)),
        starts=StartRule.ONE_SUCCEEDED,
        retries=SEVERAL_TRIES,
    )
    return Group(subscription, initialize, distribute, retry, delivered)
