"""Up to where a run delivers, or until when its agents are continuous."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from airflow.sdk import BaseOperator, Context

from tranrepl.settings.publication import Publication

RUN_BOUND = (
    "{% if dag_run.run_type in ('scheduled', 'backfill') and data_interval_end is defined %}"
    "{{ data_interval_end.isoformat() }}{% endif %}"
)
"""The end of the run's data interval. A manual run delivers everything there is, also where it was given a logical
date, from which Airflow infers an interval."""

RUN_END = "{{{{ (dag_run.start_date + macros.timedelta(seconds={seconds})).isoformat() }}}}"
"""When a run of continuous agents is over: the same for all its tasks, also for one that is tried again."""


def run_end(publication: Publication) -> str:
    """Return the template of until when the publication's agents are continuous in a run; empty where they are not."""
    return RUN_END.format(seconds=publication.run_for) if publication.is_continuous else ""


class RunIsOverOperator(BaseOperator):
    """Waits for the end of a run of continuous agents."""

    template_fields: Sequence[str] = ("continuous_until",)

    def __init__(self, *, continuous_until: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.continuous_until = continuous_until

    def execute(self, context: Context) -> None:  # noqa: ARG002 - Airflow's signature
        """Wait until then, which mostly is over when this begins."""
        left = (datetime.fromisoformat(self.continuous_until) - datetime.now(UTC)).total_seconds()
        if left > 0:
            self.log.info("The log reader has ended before the run: waiting %.0f s for its end", left)
            time.sleep(left)
