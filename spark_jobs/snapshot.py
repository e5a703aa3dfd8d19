"""spark-submit entry: the initial snapshot of one subscription."""

import sys

from tranrepl.jobs.requests import SnapshotRequest
from tranrepl.spark.entry_point import Run, main


def job() -> Run[SnapshotRequest]:
    """Return the snapshot's job, which is imported while the session starts."""
    from tranrepl.snapshot.job import run

    return run


if __name__ == "__main__":
    sys.exit(main(SnapshotRequest, job))
