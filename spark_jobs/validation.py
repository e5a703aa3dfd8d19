"""spark-submit entry: the validation job of one subscription."""

import sys

from tranrepl.jobs import ValidationRequest
from tranrepl.spark_job import main
from tranrepl.validation.job import run

if __name__ == "__main__":
    sys.exit(main(ValidationRequest, run))
