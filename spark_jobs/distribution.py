"""spark-submit entry: the distribution job of one subscription."""

import sys

from tranrepl.jobs.requests import DistributionRequest
from tranrepl.spark.entry_point import Run, main


def job() -> Run[DistributionRequest]:
    """Return the distribution job, which is imported while the session starts."""
    from tranrepl.distribution.job import run

    return run


if __name__ == "__main__":
    sys.exit(main(DistributionRequest, job))
