"""The task in Airflow of an agent's run, found by the time at which it began.

Both times are of the machine that the task ran on. A publication's tasks of one kind never run two at once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from airflow.models.taskinstance import TaskInstance
from airflow.models.taskinstancehistory import TaskInstanceHistory
from airflow.utils.session import create_session
from sqlalchemy import or_, select

from tranrepl.distributor.monitoring.runs import Agent, AgentRun
from tranrepl_airflow.dag_builder import REINITIALIZATION_SUFFIX, REINITIALIZATION_TASKS, VALIDATION_SUFFIX
from tranrepl_airflow.graph import LOG_READER

_MOST_TASKS = 5000
_DELIVERING = {"distribute": Agent.DISTRIBUTION, "retry_on_single_connection": Agent.DISTRIBUTION}
_OF_GROUP = {"initialize": Agent.SNAPSHOT, **_DELIVERING}
"""A subscription's tasks in the publication's own DAG, by what follows its name."""


@dataclass(frozen=True, slots=True)
class Task:
    """A try of a task instance."""

    dag_id: str
    run_id: str
    task_id: str
    try_number: int
    start: datetime
    end: datetime | None
    agent: Agent
    subscription: str | None

    @property
    def log(self) -> str:
        """The path of its log, below Airflow's own address."""
        return log_path(self.dag_id, self.run_id, self.task_id, self.try_number)


def log_path(dag_id: str, run_id: str, task_id: str, try_number: int) -> str:
    """Return the path of a task's log, below Airflow's own address."""
    names = (quote(it, safe="") for it in (dag_id, run_id, task_id))
    return "dags/{}/runs/{}/tasks/{}?try_number={}".format(*names, try_number)


@dataclass(frozen=True, slots=True)
class DagRunOfTasks:
    """The only run to look for."""

    dag_id: str
    run_id: str


class Tasks:
    """Tasks of one publication."""

    def __init__(self, tasks: Iterable[Task]) -> None:
        self._tasks: dict[str | None, list[Task]] = defaultdict(list)
        for it in sorted(tasks, key=lambda it: it.start):
            self._tasks[it.subscription].append(it)

    def of(self, run: AgentRun) -> Task | None:
        """Return the task that the run was; None where none is known: a shell may have started it."""
        within = [it for it in self._tasks[run.subscription] if _is_within(it, run.start_time)]
        alike = [it for it in within if it.agent is run.agent]
        return next(reversed(alike or within), None)

    @property
    def first(self) -> datetime | None:
        """When the first of them began."""
        return min((tasks[0].start for tasks in self._tasks.values() if tasks), default=None)

    @property
    def last(self) -> datetime:
        """When the last of them ended; now where one runs."""
        now = datetime.now(UTC)
        return max((it.end or now for tasks in self._tasks.values() for it in tasks), default=now)


def tasks_between(publication: str, first: datetime, last: datetime) -> Tasks:
    """Return the publication's tasks that ran at some moment of this time."""
    dag_ids = [f"{publication}{suffix}" for suffix in ("", VALIDATION_SUFFIX, REINITIALIZATION_SUFFIX)]
    found = [
        row
        for table in (TaskInstance, TaskInstanceHistory)
        for row in _rows(
            select(*_columns(table)).where(
                table.dag_id.in_(dag_ids),
                table.start_date <= last,
                or_(table.end_date.is_(None), table.end_date >= first),
            )
        )
    ]
    return Tasks(_known(publication, found))


def tasks_of_run(publication: str, run: DagRunOfTasks) -> Tasks:
    """Return the tasks of one run."""
    found = [
        row
        for table in (TaskInstance, TaskInstanceHistory)
        for row in _rows(select(*_columns(table)).where(table.dag_id == run.dag_id, table.run_id == run.run_id))
    ]
    return Tasks(_known(publication, found))


def _columns(table: Any) -> Sequence[Any]:
    return (table.dag_id, table.run_id, table.task_id, table.try_number, table.start_date, table.end_date)


def _rows(query: Any) -> Sequence[Any]:
    with create_session() as session:
        return session.execute(query.order_by(query.selected_columns.start_date.desc()).limit(_MOST_TASKS)).all()


def _known(publication: str, rows: Iterable[Any]) -> Iterable[Task]:
    for row in rows:
        named = _agent_of(publication, row.dag_id, row.task_id)
        if named is not None and row.start_date is not None:
            yield Task(row.dag_id, row.run_id, row.task_id, row.try_number, row.start_date, row.end_date, *named)


def _agent_of(publication: str, dag_id: str, task_id: str) -> tuple[Agent, str | None] | None:
    """Return whose work a task is; None for one that is no agent's."""
    if dag_id == f"{publication}{VALIDATION_SUFFIX}":
        name = task_id.removeprefix("validate_")
        return None if name == task_id else (Agent.VALIDATION, name)
    if dag_id == f"{publication}{REINITIALIZATION_SUFFIX}":
        name = task_id.removeprefix(REINITIALIZATION_TASKS)
        return None if name == task_id else (Agent.SNAPSHOT, name)
    if task_id == LOG_READER:
        return Agent.LOG_READER, None
    subscription, _, kind = task_id.rpartition(".")
    return (_OF_GROUP[kind], subscription) if kind in _OF_GROUP else None


def _is_within(task: Task, time: datetime) -> bool:
    return task.start <= time and (task.end is None or time <= task.end)
