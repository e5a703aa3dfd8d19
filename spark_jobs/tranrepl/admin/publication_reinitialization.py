"""`tranrepl reinitialize FILE`: reinitialization of a whole publication, which may be interrupted and done again."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tranrepl.admin.check import Checked, CheckPurpose
from tranrepl.admin.reinitialization import Rows, begin_after_registration, forget_log
from tranrepl.admin.setup import set_up
from tranrepl.jobs.results import JobResult
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
    forget_log(topology, rows, say)
    set_up(topology, checked.tables, say)
    results: dict[str, JobResult] = {}
    for it in topology.publication.subscriptions:
        if rows is Rows.SNAPSHOT and it.sync_type is SyncType.AUTOMATIC:
            results[it.name] = take_snapshot(it.name)
        else:
            start = begin_after_registration(topology, it.name)
            say(f"subscription {it.name} begins after 0x{start.hex()}, with the rows that it has")
    return results
