"""The agents' history with the logs of their tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import sqlalchemy as sa

from tranrepl.distributor.monitoring.publication import MonitoredRecord
from tranrepl.distributor.monitoring.runs import Agent, AgentRun, ChosenRuns, newest_runs
from tranrepl_airflow.monitor.errors import WITHHELD
from tranrepl_airflow.monitor.task_logs import DagRunOfTasks, Task, Tasks, tasks_between, tasks_of_run

PAGE = 50
"""Runs on one page."""
_MOST_OF_A_RUN = 500
_DONE = ("succeed", "idle")
"""Runs that say themselves whose they are: a validation delivers, too."""
_MARGIN = timedelta(minutes=1)
"""The database's clock, which says when a run ended, may be ahead of the task's."""


@dataclass(frozen=True, slots=True)
class LoggedRun:
    """A run of an agent, and the task that it was."""

    run: AgentRun
    task_log: str | None
    """Path of the task's log, below Airflow's own address; None where no task is known."""


@dataclass(frozen=True, slots=True)
class AgentHistory:
    runs: Sequence[LoggedRun]
    subscriptions: Sequence[str]
    """All of the publication."""
    earlier: datetime | None
    """What to ask for `before` to get the earlier ones; None where there are none."""


@dataclass(frozen=True, slots=True)
class HistoryQuestion:
    """What of the history is looked at."""

    publication: str
    may_edit: bool
    agent: Agent | None = None
    subscription: str | None = None
    before: datetime | None = None
    dag_run: DagRunOfTasks | None = None

    def ask(self, connection: sa.Connection, record: MonitoredRecord) -> AgentHistory:
        """Return the newest of the chosen runs, the latest first."""
        names = [it.subscription for it in record.subscriptions.values()]
        if self.dag_run is not None:
            return AgentHistory(self._of_dag_run(connection, record, self.dag_run), names, None)
        chosen = ChosenRuns(PAGE + 1, self.agent, self.subscription, before=self.before)
        found = newest_runs(connection, record, chosen)
        runs = found[:PAGE]
        tasks = self._tasks(runs)
        earlier = runs[-1].time if len(found) > PAGE else None
        return AgentHistory([self._logged(it, tasks.of(it)) for it in runs], names, earlier)

    def _tasks(self, runs: Sequence[AgentRun]) -> Tasks:
        starts = [it.start_time for it in runs]
        return tasks_between(self.publication, min(starts), max(starts)) if starts else Tasks([])

    def _of_dag_run(
        self, connection: sa.Connection, record: MonitoredRecord, dag_run: DagRunOfTasks
    ) -> Sequence[LoggedRun]:
        tasks = tasks_of_run(self.publication, dag_run)
        if tasks.first is None:
            return []
        found = newest_runs(
            connection, record, ChosenRuns(_MOST_OF_A_RUN, after=tasks.first, before=tasks.last + _MARGIN)
        )
        mine = [(it, tasks.of(it)) for it in found]
        return [self._logged(it, task) for it, task in mine if task is not None]

    def _logged(self, run: AgentRun, task: Task | None) -> LoggedRun:
        run = run if self.may_edit else withheld(run)
        if task is not None and run.agent is Agent.DISTRIBUTION and run.status not in _DONE:
            run = replace(run, agent=task.agent)
        return LoggedRun(run, None if task is None else task.log)


def withheld(run: AgentRun) -> AgentRun:
    """Return the run as one sees it who may not see values of rows: an error's text may hold some."""
    return replace(run, comments=WITHHELD) if run.failed else run
