"""A listener in the scheduler: a run never waits for a pool that nobody has created.

Airflow leaves a task whose pool is missing scheduled for ever, with a line in the scheduler's log. Neither a DAG file
nor a task can look at pools, but the scheduler can when it starts a run, in the very transaction that does.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from airflow.listeners import hookimpl

from tranrepl.admin.airflow_pools import DESCRIPTION, PREFIX

if TYPE_CHECKING:
    from airflow.models.dagrun import DagRun
    from sqlalchemy.orm import Session

log = logging.getLogger(__name__)


@hookimpl
def on_dag_run_running(dag_run: DagRun, msg: str) -> None:  # noqa: ARG001 - Airflow's signature
    """Create the pools of a publication's run where they are missing."""
    # Imported here: every process of Airflow loads its plugins.
    from sqlalchemy.orm import object_session

    session = object_session(dag_run)
    dag = dag_run.dag
    if session is None or dag is None:
        return
    for pool in sorted({task.pool for task in dag.tasks if task.pool.startswith(PREFIX)}):
        if session.execute(_insert(session, pool)).rowcount == 1:  # type: ignore[attr-defined]
            log.info("Created pool %s", pool)


def _insert(session: Session, pool: str) -> Any:
    """Return an INSERT that does nothing where the pool is there: an error would end the scheduler's transaction."""
    import sqlalchemy as sa
    from airflow.models.pool import Pool
    from sqlalchemy.dialects import postgresql, sqlite

    values = {"pool": pool, "slots": 1, "description": DESCRIPTION, "include_deferred": False}
    match session.get_bind().dialect.name:
        case "postgresql":
            return postgresql.insert(Pool).values(**values).on_conflict_do_nothing()
        case "sqlite":
            return sqlite.insert(Pool).values(**values).on_conflict_do_nothing()
        case _:
            return sa.insert(Pool).values(**values).prefix_with("IGNORE")
