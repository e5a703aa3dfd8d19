"""One backlog, drained by both systems one after the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from benchmarks.benchmark_site import BenchmarkSite, Servers
from benchmarks.memory import Role, peak_memory
from benchmarks.results import Measurement, Phase, TimedJob
from benchmarks.session import keep_warm
from benchmarks.workloads import Workload
from support.site import execute
from tranrepl.jobs.results import JobResult
from tranrepl.settings.publication import Apply

_BEFORE_STORE = ("read", "decode", "transform")
"""Phases of the log reader that lie within `read_to_store`."""


def measure(ends: BenchmarkSite, servers: Servers, workload: Workload, turn: int) -> list[Measurement]:
    """Build the backlog and drain it. In even turns built-in replication comes first: whoever comes second finds the
    disk's cache warm, and in the log, where both ends are one server, what the first has written."""
    workload.build(ends.publisher)
    marker = ends.end_backlog()
    store = Path(ends.site.publication.distributor.store)
    ends.vacuum([ends.publisher])
    servers.checkpoint()
    # First of all that reads the log: it is the first to pass over what the run before has read.
    probe_seconds = seconds_of(ends.probe_log)
    changes, slot_seconds = _decode_slot(ends)
    before = _bytes_in(store)
    keep_warm(ends.site.spark)
    read = timed(ends.site.run_log_reader, probe_seconds)
    stored = _bytes_in(store) - before
    reference, delivered = _drain_both(ends, servers, marker, built_in_first=turn % 2 == 0)
    ends.check_equal()
    # Of several Subscribers, each has every change.
    everywhere = changes * ends.scenario.subscribers
    measured: list[Measurement] = []
    name = workload.name
    for mode, delivery in delivered.items():
        measured += [
            Measurement(name, mode, Phase.LOG_READER, changes, read, slot_seconds, stored),
            Measurement(name, mode, Phase.DISTRIBUTION, everywhere, delivery, reference),
            Measurement(name, mode, Phase.WHOLE, everywhere, read.then(delivery), reference),
        ]
    return measured


def _drain_both(
    ends: BenchmarkSite, servers: Servers, marker: int, *, built_in_first: bool
) -> tuple[float, dict[Apply, TimedJob]]:
    """Return the seconds of built-in replication, and our deliveries by mode."""
    reference, delivered = 0.0, {}
    first, *others = ends.modes
    for mode in ([None, first] if built_in_first else [first, None]) + others:
        servers.checkpoint()
        if mode is None:
            reference = ends.built_in.drain(marker)
            ends.vacuum(ends.references)
        else:
            probe_seconds = seconds_of(partial(ends.probe_batches, mode))
            keep_warm(ends.site.spark)
            delivered[mode] = timed(partial(ends.deliver, mode), probe_seconds)
            ends.vacuum(ends.subscribers(mode))
    return reference, delivered


def seconds_of(look: Callable[[], object]) -> float:
    """Return the seconds that a job's probe takes, which comes before its Spark job is started."""
    started = time.perf_counter()
    look()
    return time.perf_counter() - started


def timed(job: Callable[[], JobResult], probe_seconds: float) -> TimedJob:
    """Run it. Raises what stopped it."""
    peaks: dict[Role, float] = {}
    with peak_memory(peaks):
        started = time.perf_counter()
        result = job()
        seconds = time.perf_counter() - started
    result.raise_error()
    phases = _phases(result.phases, max(seconds, result.seconds))
    return TimedJob(seconds, phases, {str(role): peak for role, peak in peaks.items()}, probe_seconds)


def _phases(told: Mapping[str, float], seconds: float) -> dict[str, float]:
    """Return a job's phases, and the rest of its time, which is mostly Spark's own."""
    phases = dict(told)
    if "read_to_store" in phases:
        phases["store"] = phases.pop("read_to_store") - sum(phases.get(name, 0.0) for name in _BEFORE_STORE)
    phases["other"] = max(0.0, seconds - sum(phases.values()))
    return {name: round(it, 3) for name, it in phases.items()}


def _decode_slot(ends: BenchmarkSite) -> tuple[int, float]:
    """Return the changes in the backlog, and the seconds in which the slot decodes them (the better of two)."""
    ((name,),) = execute(
        ends.publisher,
        "SELECT slot_name FROM pg_replication_slots "
        "WHERE database = current_database() AND slot_name NOT LIKE 'reference%'",
    )
    peek = (
        f"pg_logical_slot_peek_binary_changes('{name}', NULL, NULL, 'proto_version', '1', "
        f"'publication_names', '{name}')"
    )
    seconds = []
    for _ in range(2):
        started = time.perf_counter()
        execute(ends.publisher, f"SELECT count(*) FROM {peek}")
        seconds.append(time.perf_counter() - started)
    counted = execute(
        ends.publisher,
        f"SELECT count(*) FROM {peek} WHERE substr(data, 1, 1) IN ('I'::bytea, 'U'::bytea, 'D'::bytea)",
    )
    return int(counted[0][0]), min(seconds)


def _bytes_in(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
