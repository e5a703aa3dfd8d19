"""Runs that should have been, and were not."""

from __future__ import annotations

from datetime import datetime

from croniter import croniter


def missed_at(schedule: str, last: datetime, runs: int) -> datetime:
    """Return from when on so many runs are missed, in whole intervals of a cron expression, since an agent last said
    something."""
    times = croniter(schedule, last, ret_type=datetime)
    found: datetime = last
    for _ in range(runs + 1):
        found = times.get_next()
    return found
