"""spark-submit entry: the validation job of one subscription."""

import sys

from tranrepl.jobs.requests import ValidationRequest
from tranrepl.spark.entry_point import Run, main


def job() -> Run[ValidationRequest]:
    """Return the validation's job, which is imported while the session starts."""
    from tranrepl.validation.job import run

    return run


if __name__ == "__main__":
    sys.exit(main(ValidationRequest, job))
