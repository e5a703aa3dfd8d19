"""spark-submit entry: the initial snapshot of one subscription."""

import sys

from tranrepl.jobs import SnapshotRequest
from tranrepl.snapshot.job import run
from tranrepl.spark_job import main

if __name__ == "__main__":
    sys.exit(main(SnapshotRequest, run))
