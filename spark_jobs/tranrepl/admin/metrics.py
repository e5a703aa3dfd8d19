"""The report of `tranrepl status` as OpenMetrics' families. An unknown value has no sample."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, StateSetMetricFamily

from tranrepl.admin.status import LogReaderStatus, MeasuredLatency, PublicationStatus, SubscriptionStatus
from tranrepl.admin.status.report import LastError, LastRun
from tranrepl.distributor.database.overview import SubscriptionState

_PUBLICATION = ("publication",)
_SUBSCRIPTION = ("publication", "subscription")
_WAL_STATUS = ("reserved", "extended", "unreserved", "lost")
LOG_READER = ""
"""The label `subscription` of what concerns the log reader."""


def metric_families(statuses: Iterable[PublicationStatus]) -> Sequence[Metric]:
    """Return the families of these publications."""
    families = _Families()
    for it in statuses:
        families.add(it)
    return families.all()


def usable_files(usable: Iterable[tuple[str, bool]]) -> Metric:
    """Return the family that says of each settings file whether its publication could be asked for."""
    family = GaugeMetricFamily(
        "tranrepl_settings_file_usable", "Whether the file can be used, and is set up.", labels=("file",)
    )
    for path, is_usable in usable:
        family.add_metric((path,), float(is_usable))
    return family


@dataclass
class _Families:
    _known: dict[str, Metric] = field(default_factory=dict)

    def all(self) -> Sequence[Metric]:
        return list(self._known.values())

    def add(self, status: PublicationStatus) -> None:
        name = (status.publication,)
        self._gauge("distributor_up", "Whether its database answers.", name, not status.distributor_problem)
        self._gauge("wrong", "How many problems need somebody's attention.", name, len(status.wrong))
        self._add_log_reader(name, status.log_reader)
        for subscription in status.subscriptions:
            self._add_subscription((status.publication, subscription.subscription), subscription)

    def _add_log_reader(self, name: tuple[str], reader: LogReaderStatus) -> None:
        self._gauge("publisher_up", "Whether the Publisher answers.", name, reader.publisher_problem is None)
        self._gauge("log_readable", "Whether the log can be read on.", name, reader.problem is None)
        self._gauge("unread_log_bytes", "Log that is not read yet.", name, reader.unread_log_bytes)
        retained = reader.retained
        if retained is not None:
            self._gauge("retained_log_bytes", "Log that the Publisher keeps.", name, retained.bytes)
            left = "How much log may be written before log that is needed may be lost."
            self._gauge("retained_log_left_bytes", left, name, retained.bytes_left)
            age = "Age of a PostgreSQL slot's catalog_xmin, in transactions."
            self._gauge("catalog_xmin_age", age, name, retained.catalog_xmin_age)
            oldest = "How long the oldest transaction with a number has been open at the Publisher."
            self._gauge("oldest_transaction_seconds", oldest, name, retained.oldest_transaction_seconds)
            if retained.wal_status in _WAL_STATUS:
                states = {it: it == retained.wal_status for it in _WAL_STATUS}
                self._state("slot_wal_status", "wal_status of a PostgreSQL slot.", _PUBLICATION, name, states)
        self._add_agent((*name, LOG_READER), reader.last_run, reader.last_error)

    def _add_subscription(self, name: tuple[str, str], it: SubscriptionStatus) -> None:
        self._gauge("subscriber_up", "Whether the Subscriber answers.", name, it.subscriber_problem is None)
        if it.state is not None:
            states = {state.value: state is it.state for state in SubscriptionState}
            self._state("subscription_state", "State, in Replication Monitor's words.", _SUBSCRIPTION, name, states)
            self._gauge(
                "latency_seconds", "How long the first undelivered command has waited.", name, it.latency_seconds or 0
            )
            delivered = sum(it.delivered_commands.values())
            self._counter("delivered_commands", "Delivered since the subscription was created.", name, delivered)
            self._gauge("stopped_articles", "Articles whose delivery is stopped.", name, len(it.stopped_articles))
        last = "Latency of the last delivery, from commit to commit."
        self._gauge("last_latency_seconds", last, name, it.last_latency_seconds)
        if it.latency is not None:
            self._add_latency(name, it.latency)
        self._gauge("undelivered_transactions", "Stored, and not delivered.", name, it.undelivered_transactions)
        self._gauge("undelivered_commands", "Stored, and not delivered.", name, it.undelivered_commands)
        rate = "Time to deliver them, at the rate of the last runs."
        self._gauge("estimated_delivery_seconds", rate, name, it.estimated_seconds)
        if it.skipped is not None:
            skipped = "Left out by skip_errors within history_retention."
            self._gauge("skipped_commands", skipped, name, it.skipped.commands)
        self._add_agent(name, it.last_run, it.last_error)

    def _add_latency(self, name: tuple[str, str], latency: MeasuredLatency) -> None:
        ahead = "By how much the Publisher's clock is ahead of the distribution database's."
        self._gauge("clock_difference_seconds", ahead, name, latency.clock_difference)
        text = "Latency of this quantile of the last minutes' commands, by leg."
        labels = (*_SUBSCRIPTION, "leg", "quantile")
        made = GaugeMetricFamily("tranrepl_leg_latency_seconds", text, labels=labels)
        found = self._known.setdefault("leg_latency_seconds", made)
        for leg, it in latency.legs.items():
            for part, seconds in (("0.5", it.p50), ("0.95", it.p95), ("0.99", it.p99)):
                found.add_sample(found.name, dict(zip(labels, (*name, leg, part), strict=True)), seconds)

    def _add_agent(self, name: tuple[str, str], run: LastRun | None, error: LastError | None) -> None:
        if run is not None:
            self._gauge(
                "last_run_timestamp_seconds",
                "When the newest run last wrote to the history.",
                name,
                run.time.timestamp(),
            )
            self._gauge("last_run_failed", "Whether the newest run failed.", name, run.failed)
        self._gauge(
            "unhealed_error", "Whether its last error is unresolved.", name, error is not None and not error.healed
        )

    def _gauge(self, family: str, text: str, name: Sequence[str], value: float | None) -> None:
        if value is not None:
            found = self._known.setdefault(
                family, GaugeMetricFamily(f"tranrepl_{family}", text, labels=_SUBSCRIPTION[: len(name)])
            )
            found.add_sample(found.name, dict(zip(_SUBSCRIPTION, name, strict=False)), float(value))

    def _counter(self, family: str, text: str, name: Sequence[str], value: float) -> None:
        found = self._known.setdefault(family, CounterMetricFamily(f"tranrepl_{family}", text, labels=_SUBSCRIPTION))
        found.add_sample(f"{found.name}_total", dict(zip(_SUBSCRIPTION, name, strict=True)), value)

    def _state(
        self, family: str, text: str, labels: Sequence[str], name: Sequence[str], states: dict[str, bool]
    ) -> None:
        made = StateSetMetricFamily(f"tranrepl_{family}", text, labels=labels)
        found = self._known.setdefault(family, made)
        for state, holds in states.items():
            found.add_sample(found.name, {**dict(zip(labels, name, strict=True)), found.name: state}, float(holds))
