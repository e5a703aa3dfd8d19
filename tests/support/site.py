"""A publication between real databases, its jobs run in this process on the shared Spark session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg

from support.comparison import compare
from support.databases import Databases
from support.object_server import Bucket
from tranrepl.admin.check import check
from tranrepl.admin.setup import set_up
from tranrepl.connections import Connection
from tranrepl.distribution import job as distribution_job, without_spark as distribution_without_spark
from tranrepl.jobs.requests import ApplyMode, DistributionRequest, LogReaderRequest, SnapshotRequest, ValidationRequest
from tranrepl.jobs.results import JobResult
from tranrepl.log_reader import job as log_reader_job, without_spark as log_reader_without_spark
from tranrepl.model.names import TableName
from tranrepl.mysql.session import connect
from tranrepl.settings.publication import Publication
from tranrepl.snapshot import job as snapshot_job, without_spark as snapshot_without_spark
from tranrepl.topology import Topology
from tranrepl.validation import job as validation_job

Rows = list[tuple[Any, ...]]


class Site:
    """`articles` are written as in a publication's file; there is one subscription, `reporting`, by default.

    Both ends begin empty: by default, subscriptions take no snapshot, and schema changes are not replicated.
    """

    def __init__(
        self,
        databases: Databases,
        store: Path | str | Bucket,
        articles: Sequence[Mapping[str, object] | str],
        spark: Any = None,
        subscriptions: Sequence[Mapping[str, object]] = ({"name": "reporting", "connection": "subscriber"},),
        **settings: object,
    ) -> None:
        self.databases = databases
        self.spark = spark
        self.connections: dict[str, Connection] = {
            "publisher": databases.publisher,
            "subscriber": databases.subscriber,
            "distribution": databases.distribution,
        }
        distributor = {"connection": "distribution", "store": str(store)}
        if isinstance(store, Bucket):
            distributor |= {"store": store.store, "store_connection": "store"}
            self.connections["store"] = store.connection
        self.publication = Publication.model_validate(
            {
                "publication": "purchasing",
                "publisher": {"connection": "publisher"},
                "distributor": distributor,
                "replicate_ddl": False,
                "articles": [{"source": it} if isinstance(it, str) else dict(it) for it in articles],
                "subscriptions": [{"sync_type": "replication_support_only", **it} for it in subscriptions],
                **settings,
            }
        )

    @property
    def topology(self) -> Topology:
        return Topology(self.publication, self.connections)

    def set_up(self) -> list[str]:
        """Run `tranrepl setup`. Raises the first problem that keeps it from working."""
        checked = check(self.topology)
        for problem in checked.blocking:
            raise problem
        done: list[str] = []
        set_up(checked.topology, checked.tables, done.append)
        return done

    def read_log(self) -> JobResult:
        """Run `tranrepl log-reader`; return its result with its error."""
        return self.probe_log() or self.run_log_reader()

    def probe_log(self) -> JobResult | None:
        """Run the probe alone, before the Spark job; return None where there is something to read."""
        return log_reader_without_spark.run_without_spark(LogReaderRequest(publication=self.publication), self.topology)

    def run_log_reader(self) -> JobResult:
        """Run the Spark job of the log reader alone."""
        return log_reader_job.run(self.spark, LogReaderRequest(publication=self.publication), self.connections)

    def deliver(
        self,
        subscription: str = "reporting",
        committed_before: datetime | None = None,
        mode: ApplyMode = ApplyMode.STREAMS,
    ) -> JobResult:
        """Run `tranrepl distribute`; return its result with its error."""
        request = DistributionRequest(
            publication=self.publication, subscription=subscription, committed_before=committed_before, mode=mode
        )
        idle = distribution_without_spark.run_without_spark(request, self.topology)
        return idle or distribution_job.run(self.spark, request, self.connections)

    def probe_batches(self, subscription: str) -> JobResult | None:
        """Run the probe alone, before the Spark job; return None where there is something to deliver."""
        request = DistributionRequest(publication=self.publication, subscription=subscription)
        return distribution_without_spark.run_without_spark(request, self.topology)

    def run_distribution(self, subscription: str) -> JobResult:
        """Run the Spark job of the delivery alone."""
        request = DistributionRequest(publication=self.publication, subscription=subscription)
        return distribution_job.run(self.spark, request, self.connections)

    def take_snapshot(self, *articles: str, subscription: str = "reporting") -> JobResult:
        """Run `tranrepl snapshot` in this process. Raises what stopped it."""
        request = SnapshotRequest(publication=self.publication, subscription=subscription, articles=articles)
        taken = snapshot_without_spark.run_without_spark(request, self.topology)
        return taken or snapshot_job.run(self.spark, request, self.connections)

    def validate(self, subscription: str = "reporting", *, articles: tuple[str, ...] = (), **asked: Any) -> JobResult:
        """Run `tranrepl validate`; return its result with its error."""
        request = ValidationRequest(publication=self.publication, subscription=subscription, articles=articles, **asked)
        return validation_job.run(self.spark, request, self.connections)

    def run(self) -> JobResult:
        """Read the log, deliver to every subscription, and return the last result. Raises what stopped a job."""
        self.read_log().raise_error()
        results = [self.deliver(subscription.name) for subscription in self.publication.subscriptions]
        for result in results:
            result.raise_error()
        return results[-1]

    def at_publisher(self, *statements: str) -> Rows:
        """Execute each statement by itself; return the last one's rows."""
        return execute(self.databases.publisher, *statements)

    def at_subscriber(self, *statements: str) -> Rows:
        return execute(self.databases.subscriber, *statements)

    def differences(self) -> list[str]:
        """Return the articles whose data differ between Publisher and Subscriber."""
        publisher, subscriber = self.databases.publisher, self.databases.subscriber
        if publisher.kind != "postgres":
            articles = self.publication.articles
            ends = [(it, (publisher, it.source), (subscriber, it.destination_table)) for it in articles]
            return [str(it.source) for it, one, other in ends if content(*one) != content(*other)]
        comparisons = [compare(article, publisher, subscriber) for article in self.publication.articles]
        return [str(it.article.source) for it in comparisons if not it.equal]


def content(connection: Connection, table: TableName) -> tuple[list[str], list[str]]:
    """Return a table's columns by their names, and its rows in a fixed order, by their values: of whichever database,
    one's are equal to another's where the values mean the same."""
    columns = execute(
        connection,
        "SELECT column_name FROM information_schema.columns "
        f"WHERE table_schema = '{table.schema}' AND table_name = '{table.table}'",
    )
    names = sorted(str(name) for (name,) in columns)
    rows = execute(connection, f"SELECT {', '.join(names)} FROM {table.schema}.{table.table}")
    return names, sorted(map(repr, rows))


def execute(connection: Connection, *statements: str) -> Rows:
    """Execute in autocommit; return the last statement's rows."""
    rows: Rows = []
    if connection.kind in ("mariadb", "mysql"):
        with connect(connection) as there:
            for statement in statements:
                rows = there.execute(statement)
        return rows
    with psycopg.connect(**connection.libpq_parameters("test"), autocommit=True) as session:  # type: ignore[arg-type]
        for statement in statements:
            cursor = session.execute(statement.encode())
            rows = cursor.fetchall() if cursor.description else []
    return rows
