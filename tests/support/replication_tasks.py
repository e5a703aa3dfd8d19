"""Replication jobs as Airflow's tasks: operators of a publication, and what a job of theirs answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tranrepl.jobs.results import JobResult
from tranrepl.settings.publication import Publication
from tranrepl_airflow.operators import DistributionOperator, LogReaderOperator, ReplicationSparkOperator

PASSWORD = "p@ss /word!"  # noqa: S105
"""That of the publication's connections."""
QUOTED_PASSWORD = "p%40ss%20%2Fword%21"  # noqa: S105
PLUS_QUOTED_PASSWORD = "p%40ss+%2Fword%21"  # noqa: S105
DONE = JobResult(transactions=3, commands=7, commands_by_article={"purchasing.vendor": 7}, last_xact_seqno="0a")

Run = Callable[[ReplicationSparkOperator], Any]
"""Executes an operator where there is work to do."""


def log_reader(publication: Publication, **arguments: Any) -> LogReaderOperator:
    return LogReaderOperator(task_id="log_reader", publication=publication, **arguments)


def distribution(publication: Publication, **arguments: Any) -> DistributionOperator:
    settings = {"publication": publication, "subscription": "reporting"}
    return DistributionOperator(task_id="distribute", **{"committed_before": "", **settings, **arguments})
