"""The databases of a scenario: a Publisher, Subscribers of ours for each mode, as many of built-in replication."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from benchmarks.reference import BuiltInReplication
from benchmarks.session import CORES
from benchmarks.workloads import Scenario
from support.databases import Databases
from support.embedded_postgres import PostgresServer
from support.site import Site, execute
from tranrepl.connections import Connection
from tranrepl.jobs.results import JobResult
from tranrepl.settings.publication import Apply

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_T = TypeVar("_T")
_ROWS = "SELECT '{0}', count(*), coalesce(sum(hashtextextended(t::text, 0)::numeric), 0) FROM {0} t"


@dataclass(frozen=True, slots=True)
class Servers:
    """One server twice, or the Publisher's and that of everybody else."""

    publisher: PostgresServer
    others: PostgresServer

    def checkpoint(self) -> None:
        for server in {id(it): it for it in (self.publisher, self.others)}.values():
            with server.connect() as session:
                session.execute("CHECKPOINT")


class BenchmarkSite:
    """Both systems, set up over the same Publisher. Nothing is delivered until `deliver`."""

    def __init__(
        self,
        scenario: Scenario,
        site: Site,
        subscriptions: dict[Apply, list[str]],
        built_in: BuiltInReplication,
        references: Sequence[Connection],
    ) -> None:
        self.scenario = scenario
        self.site = site
        self.built_in = built_in
        self.references = references
        self._subscriptions = subscriptions
        self._markers = itertools.count(1)

    @property
    def publisher(self) -> Connection:
        return self.site.databases.publisher

    @property
    def modes(self) -> Sequence[Apply]:
        return list(self._subscriptions)

    def end_backlog(self) -> int:
        """Update the row of table `marker` as the backlog's last change; return its value."""
        number = next(self._markers)
        execute(self.publisher, f"INSERT INTO marker VALUES ({number})")
        return number

    def vacuum(self, ends: Sequence[Connection]) -> None:
        """Vacuum now, so that autovacuum does not do it while others are measured."""
        for end in ends:
            execute(end, f"VACUUM {', '.join(self.scenario.published)}")

    def probe_log(self) -> None:
        """Do what the log reader does before its Spark job starts. Raises AssertionError where there is nothing to
        read.
        """
        if self.site.probe_log() is not None:
            raise AssertionError("there is nothing to read")

    def probe_batches(self, mode: Apply) -> None:
        """Do what each delivery does before its Spark job starts. Raises AssertionError where there is nothing to
        deliver.
        """
        if any(self._for_each_subscriber(mode, self.site.probe_batches)):
            raise AssertionError("there is nothing to deliver")

    def deliver(self, mode: Apply) -> JobResult:
        """Deliver to every Subscriber of the mode, as Airflow's tasks would; return the sum of all jobs."""
        total = JobResult()
        for result in self._for_each_subscriber(mode, self.site.run_distribution):
            result.raise_error()
            total = total.plus(result)
        return total

    def _for_each_subscriber(self, mode: Apply, job: Callable[[str], _T]) -> list[_T]:
        """Run the job for every Subscriber of the mode, `CORES` at a time."""
        names = self._subscriptions[mode]
        if len(names) == 1:
            return [job(names[0])]
        with ThreadPoolExecutor(CORES) as jobs:
            return list(jobs.map(job, names))

    def check_equal(self) -> None:
        """Check that every Subscriber holds the same rows, and the Publisher's where there is no row filter."""
        ours = [it for mode in self.modes for it in self.subscribers(mode)]
        ends = [*([] if self.scenario.row_filter else [self.publisher]), *ours, *self.references]
        rows = " UNION ALL ".join(_ROWS.format(table) for table in self.scenario.published)
        first, *others = (set(execute(end, rows)) for end in ends)
        for end, other in zip(ends[1:], others, strict=True):
            if different := sorted({table for table, *_ in first ^ other}):
                raise AssertionError(f"{ends[0].database} and {end.database} differ in {', '.join(different)}")

    def subscribers(self, mode: Apply) -> list[Connection]:
        return [self.site.connections[name] for name in self._subscriptions[mode]]


@contextmanager
def opened(
    servers: Servers, scenario: Scenario, modes: Sequence[Apply], store: Path, spark: SparkSession | None = None
) -> Iterator[BenchmarkSite]:
    """Yield the scenario's databases with their first rows. Without a Spark session, jobs are submitted."""
    with ExitStack() as stack:
        numbers = range(1, scenario.subscribers + 1)
        names = [
            *("publisher", "distribution"),
            *(f"{mode}_{it}" for mode in modes for it in numbers),
            *(f"reference_{it}" for it in numbers),
        ]

        def create(name: str) -> Connection:
            server = servers.publisher if name == "publisher" else servers.others
            server.create_database(name)
            stack.callback(server.drop_database, name)
            if name != "distribution":
                scenario.create(server.connection(name))
            return server.connection(name)

        with ThreadPoolExecutor(CORES) as creators:
            created = dict(zip(names, creators.map(create, names), strict=True))
        publisher, distribution = created["publisher"], created["distribution"]
        ours = {mode: [created[f"{mode}_{it}"] for it in numbers] for mode in modes}
        references = [created[f"reference_{it}"] for it in numbers]
        site = _site(scenario, publisher, distribution, ours, store, spark)
        site.set_up()
        built_in = BuiltInReplication(publisher, references, scenario.published)
        built_in.set_up()
        stack.callback(built_in.drop)
        subscriptions = {mode: [it.connection_id for it in connections] for mode, connections in ours.items()}
        yield BenchmarkSite(scenario, site, subscriptions, built_in, references)


def _site(
    scenario: Scenario,
    publisher: Connection,
    distribution: Connection,
    ours: dict[Apply, list[Connection]],
    store: Path,
    spark: SparkSession | None,
) -> Site:
    """Return the site; each subscription has the name of its connection."""
    subscribers = list(itertools.chain.from_iterable(ours.values()))
    site = Site(
        Databases(publisher, subscribers[0], distribution),
        store,
        [
            {"source": f"public.{table}", **({"filter": row_filter} if row_filter else {})}
            for table, row_filter in scenario.published.items()
        ],
        spark,
        [
            {"name": it.connection_id, "connection": it.connection_id, "apply": mode.value}
            for mode, connections in ours.items()
            for it in connections
        ],
    )
    site.connections |= {it.connection_id: it for it in subscribers}
    return site
