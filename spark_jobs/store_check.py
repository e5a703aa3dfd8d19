"""spark-submit entry: whether Spark can write the command store of a publication."""

import sys

from tranrepl.jobs.requests import StoreCheckRequest
from tranrepl.spark.entry_point import Run, main


def job() -> Run[StoreCheckRequest]:
    """Return the job that tries the store, which is imported while the session starts."""
    from tranrepl.admin.store_check import run

    return run


if __name__ == "__main__":
    sys.exit(main(StoreCheckRequest, job))
