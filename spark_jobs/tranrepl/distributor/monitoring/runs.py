"""The agents' history: the newest runs of the log reader, the distributions, snapshots and validations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

import sqlalchemy as sa

from tranrepl.distributor.database.errors import is_of_validation
from tranrepl.distributor.database.healing import is_snapshot
from tranrepl.distributor.monitoring.publication import MonitoredRecord, seqno_text
from tranrepl.distributor.tables import RunStatus, msdistribution_history, mslogreader_history, msrepl_errors
from tranrepl.jobs.validation_report import COUNTS_EQUAL, PASSED


class Agent(StrEnum):
    """Whose run a history row is of, as far as the row says."""

    LOG_READER = "log reader"
    DISTRIBUTION = "distribution"
    SNAPSHOT = "snapshot"
    VALIDATION = "validation"


@dataclass(frozen=True, slots=True)
class AgentRun:
    """A history row."""

    agent: Agent
    subscription: str | None
    """None for the log reader."""
    status: str
    """start, succeed, in_progress, idle, retry or fail."""
    start_time: datetime
    time: datetime
    """When it ended, or last recorded something."""
    duration_seconds: float
    comments: str
    xact_seqno: str | None
    transactions: int
    commands: int
    commands_in_bulk: int
    commands_per_second: float
    latency_ms: int | None
    failed: bool
    """Whether an error belongs to it: then its comments repeat that."""


@dataclass(frozen=True, slots=True)
class ChosenRuns:
    """Which runs to return; all that is None chooses nothing."""

    count: int
    agent: Agent | None = None
    subscription: str | None = None
    after: datetime | None = None
    before: datetime | None = None


def newest_runs(connection: sa.Connection, record: MonitoredRecord, chosen: ChosenRuns) -> Sequence[AgentRun]:
    """Return the newest of the chosen runs, the latest first."""
    found: list[AgentRun] = []
    if chosen.agent in (None, Agent.LOG_READER) and chosen.subscription is None:
        found += _runs(connection, record, _log_reader(), chosen)
    if chosen.agent is not Agent.LOG_READER:
        found += _runs(connection, record, _distribution(record, chosen), chosen)
    return sorted(found, key=lambda it: it.time, reverse=True)[: chosen.count]


def _log_reader() -> sa.Select[Any]:
    return sa.select(
        mslogreader_history,
        sa.literal(Agent.LOG_READER.value).label("agent"),
        sa.null().label("subscription_id"),
        sa.literal(0).label("bulk_commands"),
    )


def _distribution(record: MonitoredRecord, chosen: ChosenRuns) -> sa.Select[Any]:
    agent = agent_of_row()
    query = sa.select(msdistribution_history, agent.label("agent"))
    if chosen.agent is not None:
        query = query.where(agent == chosen.agent.value)
    if chosen.subscription is not None:
        query = query.where(msdistribution_history.c.subscription_id == record.number_of(chosen.subscription))
    return query


def agent_of_row() -> sa.ColumnElement[str]:
    """Return whose run a row of `msdistribution_history` is of: a snapshot's has its progress, a validation's what it
    found."""
    history = msdistribution_history.c
    differs = sa.exists().where(msrepl_errors.c.id == history.error_id, is_of_validation())
    validation = sa.or_(
        history.comments.startswith(PASSED),
        history.comments.startswith(COUNTS_EQUAL.capitalize()),
        sa.and_(history.error_id.is_not(None), differs),
    )
    return sa.case(
        (is_snapshot(msdistribution_history), Agent.SNAPSHOT.value),
        (validation, Agent.VALIDATION.value),
        else_=Agent.DISTRIBUTION.value,
    )


def _runs(
    connection: sa.Connection, record: MonitoredRecord, query: sa.Select[Any], chosen: ChosenRuns
) -> Sequence[AgentRun]:
    table = query.get_final_froms()[0]
    query = query.where(table.c.publication_id == record.publication_id)
    if chosen.before is not None:
        query = query.where(table.c.time < chosen.before)
    if chosen.after is not None:
        query = query.where(table.c.time >= chosen.after)
    rows = connection.execute(query.order_by(table.c.time.desc()).limit(chosen.count))
    return [_run(record, row) for row in rows]


def _run(record: MonitoredRecord, row: sa.Row[Any]) -> AgentRun:
    return AgentRun(
        agent=Agent(row.agent),
        subscription=record.name_of(row.subscription_id),
        status=RunStatus(row.runstatus).name.lower(),
        start_time=row.start_time,
        time=row.time,
        duration_seconds=row.duration,
        comments=row.comments,
        xact_seqno=seqno_text(row.xact_seqno),
        transactions=row.delivered_transactions,
        commands=row.delivered_commands,
        commands_in_bulk=row.bulk_commands,
        commands_per_second=row.delivery_rate,
        latency_ms=row.delivery_latency,
        failed=row.error_id is not None or row.runstatus in (RunStatus.FAIL, RunStatus.RETRY),
    )
