"""spark-submit entry: the distribution job of one subscription."""

import sys

from tranrepl.distribution.job import run
from tranrepl.jobs import DistributionRequest
from tranrepl.spark_job import main

if __name__ == "__main__":
    sys.exit(main(DistributionRequest, run))
