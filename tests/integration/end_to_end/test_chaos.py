"""A load at the Publisher while jobs are killed, cut off and stopped at random: in the end both sides are equal, and
every single change was made once.

`TRANREPL_CHAOS_SECONDS` says how long; `TRANREPL_CHAOS_SEED` repeats the choices of another run, though not its timing.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from random import Random, SystemRandom
from typing import Any

import pytest

from conftest import DatabasesFactory
from support.child_job import DISTRIBUTION, LOG_READER, ChildJob, Job, JobKilledError
from support.embedded_postgres import PostgresServer
from support.observed import assert_each_change_is_stored_once, audited_site
from support.site import Rows, Site, execute
from tranrepl.errors import ErrorKind
from tranrepl.failpoint import Failpoint

_SECONDS = float(os.environ.get("TRANREPL_CHAOS_SECONDS", "20"))
_SEED = int(os.environ.get("TRANREPL_CHAOS_SEED", SystemRandom().randrange(10**6)))
_RATE = 60
"""Transactions a second."""

_LOAD = r"""
\set first random(1, 300)
\set second random(1, 300)
\set third random(1, 300)
BEGIN;
INSERT INTO item VALUES (:first, 1, 'chaos') ON CONFLICT (id) DO UPDATE SET xact = item.xact + 1;
UPDATE item SET xact = xact + 1 WHERE id = :second;
DELETE FROM item WHERE id = :third AND xact % 3 = 0;
END;
"""

_FAILPOINTS: dict[Job, list[Failpoint]] = {
    LOG_READER: [
        Failpoint.FETCHED,
        Failpoint.STAGED,
        Failpoint.PUBLISHED,
        Failpoint.REGISTERED,
        Failpoint.ADVANCED,
    ],
    DISTRIBUTION: [
        Failpoint.BEGIN,
        Failpoint.APPLIED,
        Failpoint.BEFORE_COMMIT,
        Failpoint.WATERMARK_SET,
        Failpoint.AFTER_COMMIT,
    ],
}


@pytest.mark.slow
@pytest.mark.timeout(_SECONDS + 900)
def test_jobs_killed_at_random_make_every_change_once(
    databases: DatabasesFactory, postgres: PostgresServer, tmp_path: Path
) -> None:
    print(f"TRANREPL_CHAOS_SEED={_SEED}")
    site = audited_site(databases(), tmp_path / "store", step=25)
    (tmp_path / "load.sql").write_text(_LOAD, encoding="utf-8")
    chaos = _Chaos(site, Random(_SEED))
    with ThreadPoolExecutor(1) as pool:
        load = pool.submit(_make_load, postgres, site, tmp_path / "load.sql")
        while not (load.done() and chaos.has_happened()):
            chaos.round()
        load.result()
    print(dict(chaos.outcomes))
    for job in (LOG_READER, DISTRIBUTION):
        ChildJob(job, site).result().raise_error()
    assert _audit_by_row(site.at_publisher) == _audit_by_row(site.at_subscriber)
    assert site.differences() == []
    assert_each_change_is_stored_once(site)


def _make_load(postgres: PostgresServer, site: Site, script: Path) -> None:
    """Run clients whose transactions overlap; those that deadlock are retried."""
    postgres.run(
        "pgbench",
        *("--no-vacuum", "--client=4", "--max-tries=100", f"--rate={_RATE}", f"--time={_SECONDS:.0f}"),
        *(f"--random-seed={_SEED}", f"--file={script}"),
        database=site.databases.publisher.database or "",
    )


def _audit_by_row(execute_there: Any) -> Rows:
    """Return the audit by row: transactions that overlap write to it in any order, but those that change one row come
    one by one.
    """
    rows: Rows = execute_there("SELECT id, operation, xact FROM audit ORDER BY id, seq")
    assert len(rows) > 0
    return rows


class _Chaos:
    def __init__(self, site: Site, random: Random) -> None:
        self._site = site
        self._random = random
        self.outcomes: Counter[str] = Counter()

    def has_happened(self) -> bool:
        """Return whether jobs were killed, and jobs went on where those had ended."""
        return self.outcomes["killed"] > 0 and self.outcomes["done"] > 0

    def round(self) -> None:
        """Start some jobs at once, and let something happen to them."""
        verbs = self._random.choice([[LOG_READER], [DISTRIBUTION], [LOG_READER, DISTRIBUTION], *_TWO_OF_A_KIND])
        with ExitStack() as stack:
            jobs = [stack.enter_context(ChildJob(it, self._site, self._failpoint(it))) for it in verbs]
            time.sleep(self._random.uniform(0, 0.4))
            self._random.choice([self._nothing, self._nothing, self._kill, self._end_sessions, self._stop])(jobs)
            for job in jobs:
                self.outcomes[_outcome(job)] += 1

    def _failpoint(self, job: Job) -> str | None:
        if self._random.random() < 0.7:
            return None
        return f"{self._random.choice(_FAILPOINTS[job])}:{self._random.randint(1, 4)}"

    def _nothing(self, _jobs: list[ChildJob]) -> None:
        pass

    def _kill(self, jobs: list[ChildJob]) -> None:
        self._random.choice(jobs).kill()

    def _end_sessions(self, _jobs: list[ChildJob]) -> None:
        """End sessions as an administrator would, or a firewall."""
        databases = self._site.databases
        place = self._random.choice([databases.subscriber, databases.subscriber, databases.publisher])
        execute(place, _END_SESSIONS)

    def _stop(self, jobs: list[ChildJob]) -> None:
        """Stop one job for a while."""
        job = self._random.choice(jobs)
        job.stop()
        time.sleep(self._random.uniform(0, 0.5))
        job.go_on()


_TWO_OF_A_KIND: list[list[Job]] = [[LOG_READER, LOG_READER], [DISTRIBUTION, DISTRIBUTION]]
_END_SESSIONS = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
    "WHERE datname = current_database() AND application_name LIKE 'tranrepl%'"
)


def _outcome(job: ChildJob) -> str:
    """Wait for a job; whatever happened to it, its error must be one that may be retried."""
    try:
        error = job.result().error
    except JobKilledError:
        assert job.killed()
        return "killed"
    if error is None:
        return "done"
    assert error.kind in (ErrorKind.TRANSIENT, ErrorKind.FENCED), error
    return error.kind
