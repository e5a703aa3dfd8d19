"""spark-submit entry: the log reader job of a publication."""

import sys

from tranrepl.jobs.requests import LogReaderRequest
from tranrepl.spark.entry_point import Run, main


def job() -> Run[LogReaderRequest]:
    """Return the log reader's job, which is imported while the session starts."""
    from tranrepl.log_reader.job import run

    return run


if __name__ == "__main__":
    sys.exit(main(LogReaderRequest, job))
