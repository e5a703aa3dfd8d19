"""Jobs that fail, or that are held up where they stand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg

from support.observed import wait_until, watched
from support.site import Site
from tranrepl.connections import Connection
from tranrepl.errors import ErrorReport, ReplicationError
from tranrepl.jobs.results import JobResult

Job = Callable[[Site], JobResult]


def error_of(job: Job, site: Site) -> ErrorReport:
    """Return what stopped the job, whichever way it says so."""
    try:
        report = job(site).error
    except ReplicationError as error:
        report = error.report
    assert report is not None
    return report


@contextmanager
def locked(connection: Connection, table: str) -> Iterator[Callable[[], None]]:
    """Hold up whoever comes to the table. Yields what waits until somebody is held up there."""
    parameters: Any = connection.libpq_parameters("test")
    with watched(connection) as look, suppress(psycopg.OperationalError), psycopg.connect(**parameters) as session:
        session.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
        yield lambda: wait_until(lambda: len(look(_WAITING)) == 1)


_WAITING = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
