"""Kinds of values in a publication's file, beside names."""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated

from croniter import croniter
from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from tranrepl.error_numbers import SKIPPABLE, is_skippable

CONTINUOUS = "continuous"
"""The schedule of continuous agents."""


@lru_cache
def _is_cron(value: str) -> bool:
    return bool(croniter.is_valid(value))


def _cron_expression(value: str) -> str:
    if not _is_cron(value):
        raise ValueError('allowed: a cron expression, as in "*/5 * * * *"')
    return value


def _schedule(value: str) -> str:
    if value != CONTINUOUS and not _is_cron(value):
        raise ValueError(f'allowed: a cron expression, as in "*/5 * * * *", or {CONTINUOUS}')
    return value


def _skippable(value: object) -> str:
    if isinstance(value, bool) or not is_skippable(str(value)):
        allowed = ", ".join(sorted(SKIPPABLE, key=int))
        raise ValueError(f"not a data error; allowed: {allowed}, and a database's own, as 23505 or P0001")
    return str(value)


WholeNumber = Annotated[int, Field(strict=True)]
"""Neither text nor yes and no are numbers."""
Hours = Annotated[WholeNumber, Field(le=876_000)]
Seconds = Annotated[WholeNumber, Field(ge=1, le=31_536_000)]
CronExpression = Annotated[str, AfterValidator(_cron_expression)]
Schedule = Annotated[str, AfterValidator(_schedule)]
"""A cron expression, or `continuous`."""
Interval = Annotated[float, Field(strict=True, gt=0, le=3600, allow_inf_nan=False)]
"""Seconds, also a part of one."""
SkippableError = Annotated[
    str,
    BeforeValidator(_skippable),
    WithJsonSchema({"type": ["integer", "string"], "examples": [2627, 20598, 23505, "P0001"]}),
]
