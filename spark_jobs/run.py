"""spark-submit entry: the jobs of one run of a publication, one after another or side by side."""

import sys

from tranrepl.jobs.requests import DistributionRequest, LogReaderRequest, SnapshotRequest
from tranrepl.spark.application_jobs import main
from tranrepl.spark.entry_point import Run


def log_reader() -> Run[LogReaderRequest]:
    """Return the log reader's job, which is imported while the session starts where it comes first."""
    from tranrepl.log_reader.job import run

    return run


def snapshot() -> Run[SnapshotRequest]:
    """Return the snapshot's job."""
    from tranrepl.snapshot.job import run

    return run


def distribution() -> Run[DistributionRequest]:
    """Return the distribution job."""
    from tranrepl.distribution.job import run

    return run


if __name__ == "__main__":
    sys.exit(main({LogReaderRequest: log_reader, SnapshotRequest: snapshot, DistributionRequest: distribution}))
