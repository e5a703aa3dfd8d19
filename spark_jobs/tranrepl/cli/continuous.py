"""`tranrepl run FILE --continuous`: log reader and deliveries stay up, side by side in one Spark application."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from threading import Thread

from rich.markup import escape

from tranrepl.admin.run import LOG_READER, SNAPSHOT
from tranrepl.cli.continuous_display import ContinuousDisplay, showing_agents
from tranrepl.cli.output import err
from tranrepl.distributor.database import DistributionDatabase, SubscriptionRecord
from tranrepl.errors import ConfigurationError, ErrorReport, TransientError
from tranrepl.jobs.requests import ApplyMode, DistributionRequest, LogReaderRequest, SnapshotRequest
from tranrepl.jobs.results import JobResult
from tranrepl.jobs.retry import attempt_repeatedly, deliver_while_staying, may_succeed_serially, read_while_staying
from tranrepl.jobs.staying import Stay, StopRequest, heeding_stops, stopped_by_signals
from tranrepl.settings.loading import load_publication
from tranrepl.snapshot.agent import idle_result as idle_snapshot
from tranrepl.spark.application import SparkApplication
from tranrepl.spark.local_master import with_cores_for_agents
from tranrepl.topology import Topology

_FOR_EVER = timedelta(days=36_500)
_LOOKED_EVERY_SECONDS = 1.0
Load = Callable[[Path], Topology]


def run_continuously(
    file: Path, load: Load, chosen: Callable[[Topology], list[str]], master: str
) -> dict[str, JobResult]:
    """Keep the agents up until SIGINT or SIGTERM; return what they did, by step. They end after what is at hand; a
    second signal kills them. Where the file is changed, they begin anew with what is in it."""
    results: dict[str, JobResult] = {}
    with heeding_stops() as stop_request, stopped_by_signals(stop_request):
        while True:
            changed = partial(_is_changed, file, _time_of(file))
            topology = load(file)
            session = _Session(topology, chosen(topology), master, stop_request)
            for name, result in session.run_alone(changed).items():
                results[name] = results[name].plus(result) if name in results else result
            if stop_request.is_asked() or not session.begins_anew:
                return results


def _is_free(
    database: DistributionDatabase, subscriptions: Sequence[SubscriptionRecord], held: ExitStack
) -> bool | None:
    """Return whether nobody else keeps the agents of the subscriptions up; if so, nobody else does until `held` ends.
    None where the distribution database does not say so for the moment."""
    try:
        return held.enter_context(database.delivery_states.kept_up(subscriptions))
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
class _Session:
    """The agents of one reading of the file."""

    topology: Topology
    names: list[str]
    master: str
    stop_request: StopRequest
    begins_anew: bool = False
    """Whether it ended because the file was changed."""
    _results: dict[str, JobResult] = field(default_factory=dict)
    _ending: StopRequest = field(default_factory=StopRequest)

    def run_alone(self, changed: Callable[[], bool]) -> dict[str, JobResult]:
        """Run the agents as soon as nobody else keeps those of the same subscriptions up. Raises ConfigurationError
        where the publication or a subscription is not set up: it would not pass."""
        name, told = self.topology.publication.publication, False
        with self.topology.distributor() as database:
            record = database.publications.get(name)
            subscriptions = [database.subscriptions.get(record, it) for it in self.names]
            while not self.stop_request.is_asked():
                with ExitStack() as held:
                    free = _is_free(database, subscriptions, held)
                    if free:
                        return self.run(changed)
                if free is False and not told:
                    told = True
                    others = f"another `tranrepl run FILE --continuous` keeps the agents of publication {name} up"
                    err.print(f"{others}: waiting until it ends", highlight=False, markup=False)
                self.stop_request.wait(_LOOKED_EVERY_SECONDS)
        return {}

    def run(self, changed: Callable[[], bool]) -> dict[str, JobResult]:
        publication = self.topology.publication
        master = with_cores_for_agents(self.master, publication)
        with (
            showing_agents(err, [LOG_READER, *self.names], self.topology) as display,
            SparkApplication(publication.publication, master, side_by_side=True) as application,
        ):
            stay = Stay(datetime.now(UTC) + _FOR_EVER, self._ending)
            agents = _Agents(self.topology, application, display, stay, self._results)
            threads = [Thread(target=self._keep, args=[LOG_READER, agents.read], daemon=True)]
            threads += [
                Thread(target=self._keep, args=[name, partial(agents.deliver, name)], daemon=True)
                for name in self.names
            ]
            for it in threads:
                it.start()
            while any(it.is_alive() for it in threads) and not self._ending.is_asked():
                if self.stop_request.wait(_LOOKED_EVERY_SECONDS) or changed():
                    self.begins_anew = not self.stop_request.is_asked()
                    self._end(application, display)
            for it in threads:
                it.join()
        return {name: self._results[name] for name in self._in_order() if name in self._results}

    def _in_order(self) -> list[str]:
        return [LOG_READER, *(step for name in self.names for step in (f"{name}{SNAPSHOT}", name))]

    def _end(self, application: SparkApplication, display: ContinuousDisplay) -> None:
        why = "the file was changed: beginning anew" if self.begins_anew else "ending after what is at hand"
        err.print(why, highlight=False, markup=False)
        for name in display.agents:
            display.say(name, "ending")
        self._ending.stop()
        application.ask_to_stop()

    def _keep(self, name: str, job: Callable[[], JobResult]) -> None:
        self._results[name] = job()


@dataclass(frozen=True, slots=True)
class _Agents:
    topology: Topology
    application: SparkApplication
    display: ContinuousDisplay
    stay: Stay
    snapshots: dict[str, JobResult]
    """What snapshots were taken, by step."""

    def read(self) -> JobResult:
        """Keep the log reader up."""
        publication = self.topology.publication

        def read() -> JobResult:
            self.display.say(LOG_READER, "running")
            return self.application.submit(LogReaderRequest(publication=publication, stay_until=self._until()))

        result = read_while_staying(read, self.stay, partial(self._failed, LOG_READER), gives_up=False)
        return self._ended(LOG_READER, result)

    def _take_snapshot(self, name: str) -> None:
        """Take the snapshot of what waits for one, unless another job does: the delivery waits for that one."""
        request = SnapshotRequest(publication=self.topology.publication, subscription=name)

        def take() -> JobResult:
            if self._is_taken_by_others(name):
                return JobResult()
            idle = idle_snapshot(request, self.topology)
            if idle is not None:
                return idle
            self.display.say(name, "taking its snapshot")
            return self.application.submit(request)

        taken, step = attempt_repeatedly(take), f"{name}{SNAPSHOT}"
        if taken.snapshot or taken.error is not None or step in self.snapshots:
            self.snapshots[step] = self.snapshots.get(step, JobResult()).plus(taken)

    def _is_taken_by_others(self, name: str) -> bool:
        with self.topology.distributor() as database:
            record = database.publications.get(self.topology.publication.publication)
            state = database.delivery_states.after(record, database.subscriptions.get(record, name), b"")
        return state is not None and state.takes_snapshot

    def deliver(self, name: str) -> JobResult:
        """Keep a delivery up."""
        publication = self.topology.publication

        def deliver(mode: ApplyMode, stays: bool) -> JobResult:
            if stays:
                self._take_snapshot(name)
            self.display.say(name, "running" if stays else "over a single connection")
            until = self._until() if stays else None
            return self.application.submit(
                DistributionRequest(publication=publication, subscription=name, mode=mode, stay_until=until)
            )

        result = deliver_while_staying(deliver, self.stay, partial(self._failed, name), gives_up=False)
        return self._ended(name, result)

    def _until(self) -> datetime:
        """Return when the job that begins now ends: another one follows, and the history has a row of each."""
        return datetime.now(UTC) + timedelta(seconds=self.topology.publication.run_for)

    def _failed(self, name: str, error: ErrorReport) -> None:
        then = "waiting, then trying again"
        if name != LOG_READER and may_succeed_serially(error):
            then = "trying again over a single connection"
        if self.display.fails(name, f"{error.kind} error", error.message):
            err.print(f"{name}: {escape(error.message)}: {then}", highlight=False)

    def _ended(self, name: str, result: JobResult) -> JobResult:
        self.display.say(name, "ended" if result.error is None else f"{result.error.kind} error")
        return result
