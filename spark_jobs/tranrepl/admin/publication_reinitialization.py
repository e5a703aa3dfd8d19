"""`tranrepl reinitialize FILE`: reinitialization of a whole publication, which may be interrupted and done again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from tranrepl.admin.check import Checked, CheckPurpose
from tranrepl.admin.reinitialization import Rows, begin_after_registration, forget_log
from tranrepl.admin.setup import set_up
from tranrepl.jobs.results import JobResult
from tranrepl.log_reader.slot_handover import keeping_the_log
from tranrepl.settings.publication import SyncType
from tranrepl.topology import Topology

PURPOSE_OF: Mapping[Rows, CheckPurpose] = {
    Rows.SNAPSHOT: CheckPurpose.REINITIALIZATION,
    Rows.KEPT: CheckPurpose.LOG_READER_REINITIALIZATION,
}
"""The check that a reinitialization needs before it, by where the rows come from."""


def reinitialize_publication(
    topology: Topology,
    checked: Checked,
    rows: Rows,
    take_snapshot: Callable[[str], JobResult],
    say: Callable[[str], None],
) -> dict[str, JobResult]:
    """Make slot, registration and watermarks new, whatever state they are in; the results of snapshots, by
    subscription. `checked` is for `PURPOSE_OF[rows]`, without a blocking problem."""
    with _kept_log(topology):
        forget_log(topology, rows, say)
        set_up(topology, checked.tables, say)
        begun = _begun(topology, rows, say)
    results: dict[str, JobResult] = {}
    for it in topology.publication.subscriptions:
        if it.name not in begun:
            results[it.name] = take_snapshot(it.name)
    return results


@contextmanager
def _kept_log(topology: Topology) -> Iterator[None]:
    """Keep a continuous log reader away from the log."""
    with topology.distributor() as database:
        record = database.publications.find(topology.publication.publication) if database.is_current() else None
        if record is None:
            yield
            return
        with keeping_the_log(database, record.publication_id):
            yield


def _begun(topology: Topology, rows: Rows, say: Callable[[str], None]) -> set[str]:
    """Let each subscription begin that takes no snapshot; return their names."""
    begun: set[str] = set()
    for it in topology.publication.subscriptions:
        if rows is Rows.KEPT or it.sync_type is not SyncType.AUTOMATIC:
            start = begin_after_registration(topology, it.name)
            say(f"subscription {it.name} begins after 0x{start.hex()}, with the rows that it has")
            begun.add(it.name)
    return begun
