"""spark-submit entry: the log reader job of a publication."""

import sys

from tranrepl.jobs import LogReaderRequest
from tranrepl.log_reader.job import run
from tranrepl.spark_job import main

if __name__ == "__main__":
    sys.exit(main(LogReaderRequest, run))
