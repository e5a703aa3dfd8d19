"""Whether a job has anything to do, asked before Spark is started for it."""

from __future__ import annotations

from collections.abc import Mapping

from tranrepl.connections import Connection
from tranrepl.jobs.requests import DistributionRequest, LogReaderRequest, SnapshotRequest, ValidationRequest
from tranrepl.jobs.results import JobResult

JobRequest = LogReaderRequest | DistributionRequest | SnapshotRequest | ValidationRequest


def _is_continuous(request: JobRequest) -> bool:
    """Return whether the job waits for what there will be to do."""
    return isinstance(request, LogReaderRequest | DistributionRequest) and request.continuous_until is not None


def idle_result(request: JobRequest, connections: Mapping[str, Connection]) -> JobResult | None:
    """Return the finished result where there is nothing to do, else None. Raises the errors of `tranrepl.errors`."""
    if isinstance(request, ValidationRequest) or _is_continuous(request):
        return None
    # Imported here: parsing a DAG file loads no database driver.
    from tranrepl.topology import Topology

    topology = Topology(request.publication, connections)
    if isinstance(request, LogReaderRequest):
        from tranrepl.log_reader.agent import idle_result as log_reader_idle

        return log_reader_idle(request, topology)
    if isinstance(request, SnapshotRequest):
        from tranrepl.snapshot.agent import idle_result as snapshot_idle

        return snapshot_idle(request, topology)
    from tranrepl.distribution.agent import idle_result as distribution_idle

    return distribution_idle(request, topology)
