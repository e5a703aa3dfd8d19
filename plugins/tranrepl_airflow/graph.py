"""The tasks of a publication's DAG and what each waits for, as plain values that know nothing of Airflow.

The start rules are those of the measured truth table: of the rules that look alike, the others turn a failed run
green or a rescued one red.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from tranrepl.settings import Publication, Subscription, SyncType

LOG_READER = "log_reader"
SEVERAL_TRIES = 2
"""Retries where an error may pass by itself: a lost connection, a Publisher that restarts."""


class StartRule(StrEnum):
    """When a task starts. The values are Airflow's trigger rules."""

    ALL_SUCCEEDED = "all_success"
    ONE_FAILED = "one_failed"
    ONE_SUCCEEDED = "one_success"
    NONE_FAILED = "none_failed"
    """Also after one that was skipped."""


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
    groups: tuple[Group, ...]

    def tasks(self) -> Iterator[Task]:
        """Every task, each after those it waits for."""
        yield self.log_reader
        for group in self.groups:
            yield from [group.initialize] if group.initialize is not None else []
            yield from (group.distribute, group.retry_on_single_connection, group.delivered)


def replication_graph(publication: Publication) -> Graph:
    """`log_reader`, then for each subscription `initialize` where it takes a snapshot, `distribute`,
    `retry_on_single_connection` and `delivered`."""
    log_reader = Task(LOG_READER, retries=SEVERAL_TRIES)
    return Graph(log_reader, tuple(_group(subscription) for subscription in publication.subscriptions))


def _group(settings: Subscription) -> Group:
    subscription, initialize = settings.name, None
    if settings.sync_type is SyncType.AUTOMATIC:
        initialize = Task(f"{subscription}.initialize", after=(Dependency(LOG_READER),), retries=SEVERAL_TRIES)
    distribute = Task(
        f"{subscription}.distribute",
        # The log reader's failure comes through it.
        after=(Dependency(initialize.task_id if initialize is not None else LOG_READER),),
        starts=StartRule.ALL_SUCCEEDED if initialize is None else StartRule.NONE_FAILED,
    )
    retry = Task(
        f"{subscription}.retry_on_single_connection",
        # With the log reader upstream as well, its failure or success would decide instead of the batch's.
        after=(Dependency(distribute.task_id, "a batch failed"),),
        starts=StartRule.ONE_FAILED,
        retries=SEVERAL_TRIES,
    )
    delivered = Task(
        f"{subscription}.delivered",
        after=(Dependency(distribute.task_id), Dependency(retry.task_id)),
        starts=StartRule.ONE_SUCCEEDED,
        retries=SEVERAL_TRIES,
    )
    return Group(subscription, initialize, distribute, retry, delivered)
