"""A listener in the scheduler: a finished run's note says what was delivered, or what stopped it.

A task cannot write a note, but the scheduler can when it ends a run, in the very transaction that does. An error here
is logged, and the run ends all the same. A note that a person wrote is left alone.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import accumulate
from textwrap import shorten
from typing import TYPE_CHECKING, Any

from airflow.listeners import hookimpl

from tranrepl.printable import counted
from tranrepl_airflow.documentation import code
from tranrepl_airflow.summary import run_in_words

if TYPE_CHECKING:
    from airflow.models.dagrun import DagRun
    from sqlalchemy import Connection

log = logging.getLogger(__name__)

# As in `graph` and `earlier_tasks`, which every process of Airflow would import with this listener.
_LOG_READER = "log_reader"
_CHOSEN = "delivered_"
_RESULT, _ERROR = "return_value", "error"
_MOST_CHARACTERS = 1000
"""The most that a note holds in Airflow's database."""
_MOST_OF_A_MESSAGE = 400


@dataclass(frozen=True, slots=True)
class DeliveryTasks:
    """The tasks of one subscription, by id."""

    subscription: str
    delivered: str
    before: Sequence[str]
    """In the order in which they run."""
    is_chosen: bool = False
    """A run may be for other subscriptions, and leaves nothing of this one then."""


@dataclass(frozen=True, slots=True)
class ReinitializationTask:
    """The task that reinitializes one subscription, by id. It leaves nothing where others were chosen."""

    subscription: str
    task_id: str


@dataclass(frozen=True, slots=True)
class HandTask:
    """A task of setup or administration, by id, whose result is a sentence. It leaves nothing where it was not
    chosen."""

    task_id: str


Tasks = Sequence[DeliveryTasks | ReinitializationTask | HandTask]
_BY_HAND = ("CheckOperator", "SetupOperator", "AdministrationOperator")
XComs = Mapping[tuple[str, str], Any]
"""A run's results and errors, by task id and key."""


@hookimpl
def on_dag_run_success(dag_run: DagRun, msg: str) -> None:  # noqa: ARG001 - Airflow's signature
    """Write the note of a run that succeeded."""
    _write_note(dag_run)


@hookimpl
def on_dag_run_failed(dag_run: DagRun, msg: str) -> None:  # noqa: ARG001 - Airflow's signature
    """Write the note of a run that failed."""
    _write_note(dag_run)


def note_of(tasks: Tasks, xcoms: XComs) -> str:
    """Return a line for each subscription, as in "reporting: delivered 804 commands, latency 3.1 s"."""
    error = xcoms.get((_LOG_READER, _ERROR))
    lines = [f"log reader: {_problem(error)}"] if error else []
    outcomes = [(it.task_id if isinstance(it, HandTask) else it.subscription, _outcome(it, xcoms)) for it in tasks]
    lines += [f"{subscription}: {line}" for subscription, line in outcomes if line]
    # Whole lines: half of one would leave its Markdown open.
    lengths = accumulate(len(it) + 1 for it in lines)
    return "\n".join(it for it, length in zip(lines, lengths, strict=True) if length <= _MOST_CHARACTERS)


def _outcome(task: DeliveryTasks | ReinitializationTask | HandTask, xcoms: XComs) -> str:
    if isinstance(task, HandTask):
        error = xcoms.get((task.task_id, _ERROR))
        return _problem(error) if error else xcoms.get((task.task_id, _RESULT), "")
    return _line(task, xcoms) if isinstance(task, DeliveryTasks) else _snapshot(task, xcoms)


def _snapshot(task: ReinitializationTask, xcoms: XComs) -> str:
    if error := xcoms.get((task.task_id, _ERROR)):
        return _problem(error)
    result = xcoms.get((task.task_id, _RESULT))
    return f"snapshot of {counted(sum(it['rows'] for it in result['snapshot']), 'row')}" if result else ""


def _line(group: DeliveryTasks, xcoms: XComs) -> str:
    delivery = xcoms.get((group.delivered, _RESULT))
    failed = {it: _problem(xcoms[it, _ERROR]) for it in group.before if (it, _ERROR) in xcoms}
    if delivery is None:
        return list(failed.values())[-1] if failed else "" if group.is_chosen else "nothing delivered"
    rescued = [f"a batch failed first, {it}" if name.endswith(".distribute") else it for name, it in failed.items()]
    return "; ".join([run_in_words(delivery), *rescued])


def _problem(error: Mapping[str, Any]) -> str:
    number = f"error {error['number']}: " if error.get("number") else ""
    # Airflow shows a note as Markdown, and an error may be in a value's words.
    return f"{number}{code(shorten(error['message'], _MOST_OF_A_MESSAGE, placeholder=' …'))}"


def _write_note(dag_run: DagRun) -> None:
    # Imported here: every process of Airflow loads its plugins.
    from sqlalchemy.orm import object_session

    session = object_session(dag_run)
    tasks: Tasks = [*_groups(dag_run), *_reinitializations(dag_run), *_hand_tasks(dag_run)]
    if session is None or not tasks:
        return
    try:
        connection = session.connection()
        # The connection's savepoint and not the session's, whose commit the scheduler forbids.
        with connection.begin_nested():
            _store(connection, dag_run.id, note_of(tasks, _xcoms(connection, dag_run.id)))
    except Exception:
        log.exception("The note of run %s of %s was not written", dag_run.run_id, dag_run.dag_id)


def _groups(dag_run: DagRun) -> list[DeliveryTasks]:
    """Return the tasks of each delivery of the run; none for a DAG that is not ours."""
    dag = dag_run.dag
    delivering = [it for it in dag.tasks if it.task_type == "DeliveredOperator"] if dag is not None else []
    return [
        DeliveryTasks(
            it.task_id.removesuffix(".delivered").removeprefix(_CHOSEN),
            it.task_id,
            # Their names in the order of the alphabet are their order: distribute, initialize (which ends a group
            # where it fails), retry_on_single_connection.
            sorted(it.get_flat_relative_ids(upstream=True) - {_LOG_READER}),
            is_chosen=it.task_id.startswith(_CHOSEN),
        )
        for it in delivering
    ]


def _reinitializations(dag_run: DagRun) -> list[ReinitializationTask]:
    """Return the reinitialization tasks of the run; none for a DAG that is not ours."""
    dag = dag_run.dag
    tasks = [it for it in dag.tasks if it.task_type == "ReinitializeOperator"] if dag is not None else []
    return [ReinitializationTask(it.task_id.removeprefix("reinitialize_"), it.task_id) for it in tasks]


def _hand_tasks(dag_run: DagRun) -> list[HandTask]:
    """Return the tasks of the run that are somebody's by hand; none for a DAG that is not ours."""
    dag = dag_run.dag
    return [HandTask(it.task_id) for it in dag.tasks if it.task_type in _BY_HAND] if dag is not None else []


def _xcoms(connection: Connection, dag_run_id: int) -> dict[tuple[str, str], Any]:
    import sqlalchemy as sa
    from airflow.models.xcom import XComModel

    query = sa.select(XComModel.task_id, XComModel.key, XComModel.value).where(
        XComModel.dag_run_id == dag_run_id, XComModel.key.in_([_RESULT, _ERROR])
    )
    return {(task_id, key): value for task_id, key, value in connection.execute(query)}


def _store(connection: Connection, dag_run_id: int, note: str) -> None:
    import sqlalchemy as sa
    from airflow.models.dagrun import DagRunNote

    now = datetime.now(UTC)
    mine = sa.update(DagRunNote).where(DagRunNote.dag_run_id == dag_run_id, DagRunNote.user_id.is_(None))
    if connection.execute(mine.values(content=note, updated_at=now)).rowcount:
        return
    found = connection.execute(sa.select(DagRunNote.dag_run_id).where(DagRunNote.dag_run_id == dag_run_id)).first()
    if found is None:
        new = {"dag_run_id": dag_run_id, "content": note, "user_id": None, "created_at": now, "updated_at": now}
        connection.execute(sa.insert(DagRunNote).values(new))
