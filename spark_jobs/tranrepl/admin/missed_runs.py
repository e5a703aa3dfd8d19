"""Runs that should have been, and were not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

from croniter import croniter

from tranrepl.distributor.database.overview import AgentRun
from tranrepl.distributor.tables import RunStatus
from tranrepl.settings.publication import Publication

GOING_ON = (RunStatus.START, RunStatus.IN_PROGRESS)
_BETWEEN_RUNS = timedelta(minutes=10)
"""The next run begins continuous agents within a minute or so."""
_AFTER_RUN = timedelta(minutes=15)
"""A continuous delivery waits ten minutes at most, after its run's end, for the log reader."""

_STARTS = 2000


def silence_told_from(publication: Publication, last: AgentRun) -> datetime | None:
    """Return from when on it is told that an agent has said nothing since; None where no schedule lets it run.

    A continuous agent says something when it has work, and at a run's end.
    """
    if publication.is_continuous:
        goes_on = last.status in GOING_ON
        return last.time + (timedelta(seconds=publication.run_for) + _AFTER_RUN if goes_on else _BETWEEN_RUNS)
    schedule = publication.cron
    return None if schedule is None else missed_at(schedule, last.time, publication.missed_runs_threshold)


def longest_pause(publication: Publication) -> timedelta | None:
    """Return the longest time from one run's start to the next one's, as far as the schedule's next two thousand say;
    None where no schedule lets it run."""
    if publication.is_continuous:
        return _BETWEEN_RUNS
    if publication.cron is None:
        return None
    times = croniter(publication.cron, datetime(2024, 1, 1, tzinfo=UTC), ret_type=datetime)
    starts: list[datetime] = [times.get_next() for _ in range(_STARTS)]
    return max(later - earlier for earlier, later in pairwise(starts))


def missed_at(schedule: str, last: datetime, runs: int) -> datetime:
    """Return from when on so many runs are missed, in whole intervals of a cron expression, since an agent last said
    something."""
    times = croniter(schedule, last, ret_type=datetime)
    found: datetime = last
    for _ in range(runs + 1):
        found = times.get_next()
    return found
