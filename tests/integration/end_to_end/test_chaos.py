"""A load at the Publisher while jobs are killed, cut off and stopped at random: in the end both sides are equal, and
every single change was made once.

`support/chaos.py` has the variables that choose.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random

import pytest

from conftest import DatabasesFactory
from support.chaos import SECONDS, SEED, end_sessions, make_load, make_mariadb_load
from support.child_job import DISTRIBUTION, LOG_READER, ChildJob, Job, JobKilledError
from support.embedded_postgres import PostgresServer
from support.mariadb import MariaDbServer
from support.observed import assert_each_change_is_stored_once, audit_by_row, audited_site
from support.publishers import SERVERS, new_mariadb_database
from support.site import Site
from tranrepl.connections import Connection
from tranrepl.errors import ErrorKind
from tranrepl.failpoint import Failpoint

_FAILPOINTS: dict[Job, list[Failpoint]] = {
    LOG_READER: [
        Failpoint.FETCHED,
        Failpoint.STORED,
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
@pytest.mark.timeout(SECONDS + 900)
@pytest.mark.parametrize("kind", ["postgres", *SERVERS])
def test_jobs_killed_at_random_make_every_change_once(
    kind: str,
    databases: DatabasesFactory,
    postgres: PostgresServer,
    publishing: Callable[[str], MariaDbServer],
    tmp_path: Path,
) -> None:
    print(f"TRANREPL_CHAOS_SEED={SEED}")
    ends = databases()
    make: Callable[[Connection], None] = partial(make_load, postgres, folder=tmp_path)
    if kind in SERVERS:
        server = publishing(kind)
        ends = replace(ends, publisher=server.connection(new_mariadb_database(server), "publisher"))
        make = make_mariadb_load
    site = audited_site(ends, tmp_path / "store", step=25)
    chaos = _Chaos(site, Random(SEED))
    with ThreadPoolExecutor(1) as pool:
        load = pool.submit(make, site.databases.publisher)
        while not (load.done() and chaos.has_happened()):
            chaos.round()
        load.result()
    print(dict(chaos.outcomes))
    for job in (LOG_READER, DISTRIBUTION):
        ChildJob(job, site).result().raise_error()
    assert audit_by_row(site.at_publisher) == audit_by_row(site.at_subscriber)
    assert site.differences() == []
    assert_each_change_is_stored_once(site)


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
        end_sessions(place)

    def _stop(self, jobs: list[ChildJob]) -> None:
        """Stop one job for a while."""
        job = self._random.choice(jobs)
        job.stop()
        time.sleep(self._random.uniform(0, 0.5))
        job.go_on()


_TWO_OF_A_KIND: list[list[Job]] = [[LOG_READER, LOG_READER], [DISTRIBUTION, DISTRIBUTION]]


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
