"""`tranrepl run FILE --continuous` under a load, while its processes are killed or stand still, databases are restarted
or crash, and other jobs run beside: in the end all ends are equal, and every single change was made once.

`support/chaos.py` has the variables that choose.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from random import Random
from threading import Thread

import psycopg
import pytest

from support.chaos import SECONDS, SEED, end_sessions, make_load, make_mariadb_load
from support.child_job import DISTRIBUTION, LOG_READER, ChildJob, JobKilledError
from support.continuous_run import start_continuously, three_servers, written
from support.databases import Databases
from support.embedded_postgres import PostgresServer
from support.mariadb import MariaDbServer
from support.observed import (
    AUDIT,
    ITEM,
    assert_each_change_is_stored_once,
    audit_at,
    audit_by_row,
    item_article,
    wait_until,
)
from support.processes import command_of, descendants, kill, lives
from support.publishers import SERVERS, new_mariadb_database, publishing_mariadb
from support.site import Site, execute
from tranrepl.connections import Connection
from tranrepl.errors import ErrorKind, ReplicationError

_SUBSCRIPTIONS = (
    # Its triggers have commands applied one by one.
    {"name": "reporting", "connection": "subscriber"},
    {"name": "archive", "connection": "archive", "subscription_streams": 2},
)
_LOAD_SECONDS = 5.0
_LASTING = (b"SparkSubmit", b"run.py", b"pyspark.daemon")
"""Spark's JVM, its driver and its workers; not what finds Java and Spark before."""
_COUNT = "SELECT count(*), sum(xact) FROM item"


@dataclass(frozen=True, slots=True)
class _Ends:
    """The archive is at the Subscriber's server."""

    databases: Databases
    archive: Connection
    servers: Mapping[str, PostgresServer | MariaDbServer]
    make_load: Callable[[Path], None]


@pytest.fixture(params=["postgres", "mariadb", "mysql-9.7"])
def ends(request: pytest.FixtureRequest, server_folder: Path) -> Iterator[_Ends]:
    # Each case has servers of its own.
    folder = server_folder / f"chaos-{request.param}"
    with three_servers(folder) as three, ExitStack() as stack:
        three.subscriber.create_database("archive")
        archive, databases = three.subscriber.connection("archive"), three.databases
        servers: dict[str, PostgresServer | MariaDbServer] = {
            "publisher": three.publisher,
            "subscriber": three.subscriber,
            "distribution": three.distribution,
        }
        make = partial(make_load, three.publisher, databases.publisher, seconds=_LOAD_SECONDS)
        if request.param in SERVERS:
            server = stack.enter_context(publishing_mariadb(folder / "server", request.param))
            servers["publisher"] = server
            databases = replace(databases, publisher=server.connection(new_mariadb_database(server), "publisher"))
            yield _Ends(databases, archive, servers, lambda _: make_mariadb_load(databases.publisher, _LOAD_SECONDS))
        else:
            yield _Ends(databases, archive, servers, make)


@pytest.mark.slow
@pytest.mark.submit
@pytest.mark.new_sessions
@pytest.mark.timeout(SECONDS + 900)
def test_agents_that_deliver_continuously_make_every_change_once_whatever_is_killed(
    ends: _Ends, tmp_path: Path
) -> None:
    print(f"TRANREPL_CHAOS_SEED={SEED}")
    site = _audited(ends, tmp_path)
    with _Agents.running(site, tmp_path) as agents:
        load = Thread(target=_make_load, args=[ends, tmp_path], daemon=True)
        load.start()
        wait_until(lambda: _delivers(site), agents.run)
        chaos = _Chaos(site, ends, agents, Random(SEED))
        while load.is_alive() or not chaos.has_happened():
            chaos.round()
        load.join()
        print(dict(chaos.outcomes))
        # An agent notices what the last disturbance did when it has something to do; then it goes on, and may end.
        site.at_publisher("INSERT INTO item VALUES (0, 1, 'after the last disturbance')")
        wait_until(lambda: _is_delivered(site, ends), agents.run)
        agents.end()
    assert audit_by_row(site.at_publisher) == audit_by_row(site.at_subscriber)
    assert site.differences() == []
    site.databases = replace(ends.databases, subscriber=ends.archive)
    assert site.differences() == []
    assert_each_change_is_stored_once(site)


def _audited(ends: _Ends, folder: Path) -> Site:
    article = item_article(ends.databases.publisher)
    site = Site(ends.databases, folder / "store", [article], subscriptions=_SUBSCRIPTIONS, replicate_ddl=False)
    site.connections["archive"] = ends.archive
    site.at_publisher(ITEM)
    site.set_up()
    site.at_publisher(*audit_at(ends.databases.publisher))
    site.at_subscriber(AUDIT)
    return site


def _make_load(ends: _Ends, folder: Path) -> None:
    """Run clients again and again: a Publisher that is restarted ends their sessions."""
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        try:
            ends.make_load(folder)
        except subprocess.CalledProcessError:
            time.sleep(0.2)


def _delivers(site: Site) -> bool:
    return site.at_subscriber("SELECT 1 FROM item LIMIT 1") != []


def _is_delivered(site: Site, ends: _Ends) -> bool:
    there = site.at_publisher(_COUNT)
    return there == site.at_subscriber(_COUNT) == execute(ends.archive, _COUNT)


@dataclass
class _Agents:
    """The command and its processes, started again where the command itself was killed."""

    site: Site
    file: Path
    output: Path
    process: subprocess.Popen[bytes]
    started: set[int] = field(default_factory=set)

    @classmethod
    @contextmanager
    def running(cls, site: Site, folder: Path) -> Iterator[_Agents]:
        """Start them, and kill them at the end, should they run."""
        file = written(site, folder, schedule="continuous", run_for=20, polling_interval=0.5)
        agents = cls(site, file, folder / "output", cls._start(site, file, folder / "output"))
        try:
            yield agents
        finally:
            agents.kill()

    @staticmethod
    def _start(site: Site, file: Path, output: Path) -> subprocess.Popen[bytes]:
        with output.open("ab") as said:
            return start_continuously(site, file, said)

    def run(self) -> bool:
        assert self.process.poll() is None, self.said()
        return True

    def processes(self) -> list[int]:
        """Return the processes that the command has started: Spark's driver, its JVM, its workers."""
        found = descendants(self.process.pid)
        self.started |= found
        return sorted(found)

    def kill_command(self) -> None:
        """Kill the command alone, and start it again at once: its driver has to end by itself."""
        self.processes()
        self.process.kill()
        self.process.wait()
        self.process = self._start(self.site, self.file, self.output)

    def end(self) -> None:
        """End them as a person would. Nothing of them goes on. A command that is not up yet would die of the signal."""
        wait_until(lambda: any(map(_is_lasting, self.processes())), self.run)
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(120) == 0, self.said()
        wait_until(lambda: not any(lives(it) for it in self.started))

    def kill(self) -> None:
        for pid in (*self.processes(), self.process.pid):
            kill(pid)
        self.process.wait()

    def said(self) -> str:
        return self.output.read_text(encoding="utf-8")


class _Chaos:
    def __init__(self, site: Site, ends: _Ends, agents: _Agents, random: Random) -> None:
        self._site = site
        self._ends = ends
        self._agents = agents
        self._random = random
        self.outcomes: Counter[str] = Counter()

    def has_happened(self) -> bool:
        """Return whether processes were killed, and databases restarted."""
        return sum(self.outcomes.values()) > 3

    def round(self) -> None:
        """Let something happen, and go on for a moment."""
        time.sleep(self._random.uniform(0.5, 6))
        self._agents.run()
        at_databases = [self._restart, self._crash, self._crash, self._end_sessions]
        at_processes = [self._kill, self._kill, self._kill_command, self._stop, self._run_beside]
        happens = self._random.choice(at_databases + at_processes)
        print(f"{time.monotonic():.1f} {happens.__name__}: {happens()}", flush=True)
        self.outcomes[happens.__name__.lstrip("_")] += 1

    def _kill(self) -> str:
        pid = self._one_process()
        what = _name(pid)
        kill(pid)
        return what

    def _kill_command(self) -> str:
        self._agents.kill_command()
        return ""

    def _stop(self) -> str:
        """Let a process stand still for a while."""
        pid = self._one_process()
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
            time.sleep(self._random.uniform(0, 3))
            os.kill(pid, signal.SIGCONT)
        return _name(pid)

    def _one_process(self) -> int:
        # The command starts others before it has any.
        wait_until(lambda: bool(self._lasting()), self._agents.run)
        return self._random.choice(self._lasting())

    def _lasting(self) -> list[int]:
        return list(filter(_is_lasting, self._agents.processes()))

    def _restart(self) -> str:
        return self._without(lambda it: it.stop())

    def _crash(self) -> str:
        return self._without(lambda it: it.kill())

    def _without(self, end: Callable[[PostgresServer | MariaDbServer], None]) -> str:
        name, server = self._random.choice(list(self._ends.servers.items()))
        end(server)
        time.sleep(self._random.choice([0, 0, 1, 4]))
        server.start()
        return name

    def _end_sessions(self) -> str:
        databases = self._ends.databases
        place = self._random.choice([databases.publisher, databases.subscriber, databases.distribution])
        with suppress(psycopg.Error, ReplicationError):
            end_sessions(place)
        return place.connection_id

    def _run_beside(self) -> str:
        """Run jobs of a schedule beside, which is not what a user should do all the time."""
        said = []
        for job in (LOG_READER, DISTRIBUTION):
            with ChildJob(job, self._site) as beside, suppress(JobKilledError):
                error = beside.result().error
                assert error is None or error.kind in (ErrorKind.TRANSIENT, ErrorKind.FENCED), error
                said.append("done" if error is None else str(error.kind))
        return ", ".join(said)


def _is_lasting(pid: int) -> bool:
    return any(word in command_of(pid) for word in _LASTING)


def _name(pid: int) -> str:
    return " ".join(command_of(pid).decode(errors="replace").split("\0"))[-80:]
