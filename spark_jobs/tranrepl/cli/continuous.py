"""`tranrepl run FILE --continuous`: continuous agents, side by side in one Spark application."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from threading import Thread

from rich.markup import escape

from tranrepl.admin.joining_tables import joining_new_tables
from tranrepl.admin.run import LOG_READER, SNAPSHOT, read_log
from tranrepl.cli.continuous_display import ContinuousDisplay, showing_agents
from tranrepl.cli.output import err
from tranrepl.distributor.database import DistributionDatabase, SubscriptionRecord
from tranrepl.errors import ConfigurationError, ErrorReport, TransientError
from tranrepl.jobs.requests import ApplyMode, DistributionRequest, LogReaderRequest, SnapshotRequest
from tranrepl.jobs.results import JobResult
from tranrepl.jobs.retry import attempt_repeatedly, keep_running, may_succeed_serially
from tranrepl.jobs.shutdown import Shutdown, ShutdownRequest, shut_down_by_signals
from tranrepl.settings.loading import load_publication
from tranrepl.snapshot.without_spark import run_without_spark as snapshot_without_spark
from tranrepl.spark.application import SparkApplication, with_cores_for_agents
from tranrepl.topology import Topology

_FOR_EVER = timedelta(days=36_500)
_LOOKED_EVERY_SECONDS = 1.0
Load = Callable[[Path], Topology]


def run_continuously(
    file: Path, load: Load, chosen: Callable[[Topology], list[str]], master: str
) -> dict[str, JobResult]:
    """Run the agents until SIGINT or SIGTERM; return what they did, by step. They end after what is at hand; a second
    signal kills them. Where the file is changed, they begin again with what is in it."""
    results: dict[str, JobResult] = {}
    asked = ShutdownRequest()
    with shut_down_by_signals(asked):
        while True:
            changed = partial(_is_changed, file, _time_of(file))
            topology = load(file)
            agents = _Agents(topology, chosen(topology), master, asked)
            for name, result in agents.run_alone(changed).items():
                results[name] = results[name].plus(result) if name in results else result
            if asked.is_asked() or not agents.begin_again:
                return results


def _is_free(
    database: DistributionDatabase, subscriptions: Sequence[SubscriptionRecord], held: ExitStack
) -> bool | None:
    """Return whether nobody else runs the agents of the subscriptions; if so, nobody else does until `held` ends. None
    where the distribution database does not say so for the moment."""
    try:
        return held.enter_context(database.delivery_states.running_agents(subscriptions))
    except TransientError:
        return None


def _time_of(file: Path) -> int | None:
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return None


def _is_changed(file: Path, since: int | None) -> bool:
    """Return whether the file was changed and can be used. One that cannot, or is gone, changes nothing."""
    now = _time_of(file)
    if now is None or now == since:
        return False
    try:
        load_publication(file)
    except ConfigurationError:
        return False
    return True


@dataclass
class _Agents:
    """The agents of one reading of the file, each kept running by a thread."""

    topology: Topology
    names: list[str]
    master: str
    asked: ShutdownRequest
    """By a signal."""
    begin_again: bool = False
    """Whether they ended because the file was changed."""
    _results: dict[str, JobResult] = field(default_factory=dict)
    _display: ContinuousDisplay = field(init=False)
    _application: SparkApplication = field(init=False)
    _shutdown: Shutdown = field(default_factory=lambda: Shutdown(datetime.now(UTC) + _FOR_EVER, ShutdownRequest()))
    """A signal's, and that of a changed file."""

    def run_alone(self, changed: Callable[[], bool]) -> dict[str, JobResult]:
        """Run the agents as soon as nobody else runs those of the same subscriptions. Raises ConfigurationError where
        the publication or a subscription is not set up: it would not pass."""
        name, said = self.topology.publication.publication, False
        with self.topology.distributor() as database:
            record = database.publications.get(name)
            subscriptions = [database.subscriptions.get(record, it) for it in self.names]
            while not self.asked.is_asked():
                with ExitStack() as held:
                    free = _is_free(database, subscriptions, held)
                    if free:
                        return self._run(changed)
                if free is False and not said:
                    said = True
                    others = f"another `tranrepl run FILE --continuous` runs the agents of publication {name}"
                    err.print(f"{others}: waiting until it ends", highlight=False, markup=False)
                self.asked.wait(_LOOKED_EVERY_SECONDS)
        return {}

    def _run(self, changed: Callable[[], bool]) -> dict[str, JobResult]:
        publication = self.topology.publication
        master = with_cores_for_agents(self.master, publication)
        with (
            showing_agents(err, [LOG_READER, *self.names], self.topology) as display,
            SparkApplication(publication.publication, master, side_by_side=True) as application,
        ):
            self._display, self._application = display, application
            jobs = {LOG_READER: self._read, **{name: partial(self._deliver, name) for name in self.names}}
            threads = [Thread(target=self._keep, args=it, name=f"tranrepl-{it[0]}", daemon=True) for it in jobs.items()]
            for thread in threads:
                thread.start()
            with self._joining_new_tables():
                self._wait(threads, changed)
            for thread in threads:
                thread.join()
        return {name: self._results[name] for name in self._in_order() if name in self._results}

    def _wait(self, threads: Sequence[Thread], changed: Callable[[], bool]) -> None:
        """Wait until the agents end, or are asked to."""
        while any(it.is_alive() for it in threads) and not self._shutdown.is_due():
            if self.asked.wait(_LOOKED_EVERY_SECONDS) or changed():
                self.begin_again = not self.asked.is_asked()
                self._shut_down()

    def _joining_new_tables(self) -> AbstractContextManager[None]:
        if not self.topology.publication.has_patterns:
            return nullcontext()
        say = partial(err.print, highlight=False, markup=False)
        return joining_new_tables(lambda: self.topology, self.names, self._take_snapshot_of_new, say)

    def _take_snapshot_of_new(self, name: str) -> JobResult:
        """Take the snapshot of tables that have joined, once no other one is being taken."""
        if self._is_taken_by_others(name):
            raise TransientError("another snapshot is being taken, that of new tables follows")
        return self._take_snapshot(name)

    def _in_order(self) -> list[str]:
        return [LOG_READER, *(step for name in self.names for step in (f"{name}{SNAPSHOT}", name))]

    def _shut_down(self) -> None:
        why = "the file was changed: restarting" if self.begin_again else "ending after the current batches"
        err.print(why, highlight=False, markup=False)
        for name in self._display.agents:
            self._display.say(name, "ending")
        self._shutdown.request.ask()
        self._application.ask_to_shut_down()

    def _keep(self, name: str, keep: Callable[[], JobResult]) -> None:
        result = self._results[name] = keep()
        self._display.say(name, "ended" if result.error is None else f"{result.error.kind} error")

    def _read(self) -> JobResult:
        """Keep the log reader running."""

        def read() -> JobResult:
            self._display.say(LOG_READER, "running")
            request = LogReaderRequest(publication=self.topology.publication, continuous_until=self._until())
            return self._application.submit(request)

        again = partial(read_log, self.topology.publication, lambda: self.topology, read, publishes_new=False)
        return keep_running(again, self._shutdown, partial(self._failed, LOG_READER), gives_up=False)

    def _deliver(self, name: str) -> JobResult:
        """Keep a delivery running."""
        request = DistributionRequest(publication=self.topology.publication, subscription=name)

        def deliver() -> JobResult:
            self._take_snapshot(name)
            self._display.say(name, "running")
            return self._application.submit(request.model_copy(update={"continuous_until": self._until()}))

        def deliver_serially() -> JobResult:
            self._display.say(name, "over a single connection")
            return self._application.submit(request.model_copy(update={"mode": ApplyMode.SINGLE_CONNECTION}))

        failed = partial(self._failed, name)
        return keep_running(deliver, self._shutdown, failed, serially=deliver_serially, gives_up=False)

    def _take_snapshot(self, name: str) -> JobResult:
        """Take the snapshot of what waits for one, unless another job does: the delivery waits for that one."""
        request = SnapshotRequest(publication=self.topology.publication, subscription=name)

        def take() -> JobResult:
            if self._is_taken_by_others(name):
                return JobResult()
            idle = snapshot_without_spark(request, self.topology)
            if idle is not None:
                return idle
            self._display.say(name, "taking its snapshot")
            return self._application.submit(request)

        taken, step = attempt_repeatedly(take), f"{name}{SNAPSHOT}"
        if taken.snapshot or taken.error is not None or step in self._results:
            self._results[step] = self._results.get(step, JobResult()).plus(taken)
        return taken

    def _is_taken_by_others(self, name: str) -> bool:
        with self.topology.distributor() as database:
            record = database.publications.get(self.topology.publication.publication)
            state = database.delivery_states.after(record, database.subscriptions.get(record, name), b"")
        return state is not None and state.takes_snapshot

    def _until(self) -> datetime:
        """Return when the job that begins now ends: another one follows, and the history has a row of each."""
        return datetime.now(UTC) + timedelta(seconds=self.topology.publication.run_for)

    def _failed(self, name: str, error: ErrorReport) -> None:
        then = "waiting, then trying again"
        if name != LOG_READER and may_succeed_serially(error):
            then = "trying again over a single connection"
        if self._display.fails(name, f"{error.kind} error", error.message):
            err.print(f"{name}: {escape(error.message)}: {then}", highlight=False)
