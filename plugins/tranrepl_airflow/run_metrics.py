"""A run's results and backlog in Airflow's own metrics: StatsD, Datadog or OpenTelemetry, as Airflow is configured.

Where metrics are off, nothing is asked for.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from airflow.sdk.configuration import conf
from airflow.sdk.observability import stats

from tranrepl.errors import ErrorKind, ReplicationError
from tranrepl.jobs.results import JobResult
from tranrepl.printable import one_event
from tranrepl.settings.publication import Publication
from tranrepl_airflow.job_connections import resolve_connections

if TYPE_CHECKING:
    from tranrepl.distributor.database.overview import SubscriptionOverview
    from tranrepl.topology import Topology

log = logging.getLogger(__name__)

_PREFIX = "tranrepl"
_BACKENDS = ("statsd_on", "statsd_datadog_enabled", "otel_on")
_WITH_TAGS = ("statsd_datadog_enabled", "statsd_influxdb_enabled", "otel_on")
_LOG_READER = "log_reader"


@dataclass(frozen=True, slots=True)
class _Gauge:
    name: str
    value: float
    subscription: str
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Counter:
    name: str
    count: int
    subscription: str
    tags: Mapping[str, str] = field(default_factory=dict)


_Metric = _Gauge | _Counter


def report_run(publication: Publication, agent: str, subscription: str, result: JobResult) -> None:
    """Report what a run did, and what is left now: by the log reader of every subscription and of the Publisher's log,
    by another of its own subscription. `agent` is the job's name. Raises nothing: the task has done its work."""
    if not _is_on(_BACKENDS):
        return
    _send(publication, _of_result(agent, subscription, result))
    try:
        _send(publication, _left(publication, agent, subscription))
    except ReplicationError as error:
        log.warning("The backlog's metrics were not reported: %s", one_event(error.message))
    except Exception:
        log.exception("The backlog's metrics were not reported")


def _is_on(settings: tuple[str, ...]) -> bool:
    return any(conf.getboolean("metrics", it, fallback=False) for it in settings)


def _of_result(agent: str, subscription: str, result: JobResult) -> Iterator[_Metric]:
    by_agent = {"agent": agent}
    yield _Gauge("run_seconds", result.seconds, subscription, by_agent)
    error = result.error
    failed = error is not None and error.kind is not ErrorKind.FENCED
    yield _Counter("errors", int(failed), subscription, by_agent)
    if agent == _LOG_READER:
        yield _Counter("stored_commands", result.commands, subscription)
        yield _Counter("stored_transactions", result.transactions, subscription)
    elif agent == "distribution":
        yield _Counter("delivered_commands", result.commands, subscription)
        yield _Counter("delivered_transactions", result.transactions, subscription)
        yield _Counter("skipped_commands", result.skipped, subscription)
        yield from _of_delivery(subscription, result)


def _of_delivery(subscription: str, result: JobResult) -> Iterator[_Metric]:
    if result.commands and result.seconds:
        yield _Gauge("delivery_rate", result.commands / result.seconds, subscription)
    if result.latency_ms is not None:
        yield _Gauge("last_latency_seconds", result.latency_ms / 1000, subscription)
    for leg, it in result.latency.all_quantiles().items() if result.latency is not None else ():
        for quantile, seconds in it.model_dump().items():
            yield _Gauge("leg_latency_seconds", seconds, subscription, {"leg": leg.value, "quantile": quantile})


def _left(publication: Publication, agent: str, subscription: str) -> Iterator[_Metric]:
    # Imported here: parsing a DAG file loads no database driver.
    from tranrepl.topology import Topology

    ends = [publication.publisher.connection, publication.distributor.connection]
    topology = Topology(publication, resolve_connections(ends).by_id)
    with topology.distributor() as database:
        (known,) = database.overview.of([publication.publication], timedelta(days=1), 1)
    for it in known.subscriptions:
        if agent == _LOG_READER or it.subscription == subscription:
            yield from _backlog(it)
    if agent == _LOG_READER:
        yield from _of_log(topology)


def _backlog(known: SubscriptionOverview) -> Iterator[_Metric]:
    yield _Gauge("undelivered_commands", known.backlog.commands, known.subscription)
    yield _Gauge("latency_seconds", known.latency_seconds or 0.0, known.subscription)


def _of_log(topology: Topology) -> Iterator[_Metric]:
    with topology.publisher("tranrepl metrics") as publisher:
        health = publisher.health()
    kept = health.retained
    found = {
        "retained_log_bytes": kept.size if kept else None,
        "retained_log_left_bytes": kept.left if kept else None,
        "unread_log_bytes": health.unread_bytes,
    }
    for name, value in found.items():
        if value is not None:
            yield _Gauge(name, value, "")


def _send(publication: Publication, metrics: Iterator[_Metric]) -> None:
    with_tags = _is_on(_WITH_TAGS)
    for it in metrics:
        own = {"subscription": it.subscription} if it.subscription else {}
        tags = {"publication": publication.publication, **own, **it.tags}
        # A backend without tags would take the metrics of all publications for one.
        parts = [_PREFIX, it.name] if with_tags else [_PREFIX, *_names(publication, it), it.name, *it.tags.values()]
        name = ".".join(parts)
        if isinstance(it, _Gauge):
            stats.gauge(name, it.value, tags=tags)
        else:
            stats.incr(name, it.count, tags=tags)


def _names(publication: Publication, metric: _Metric) -> list[str]:
    return [publication.publication, *([metric.subscription] if metric.subscription else [])]
