"""Whether an error still stands, by what its agent has done since: one rule for all who list errors."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from tranrepl.distributor.tables import ArticleStatus, RunStatus, msarticles
from tranrepl.errors import VALIDATION_FAILED
from tranrepl.jobs.validation_report import COMPARED_ARTICLES, PASSED

ENDED_WELL = (RunStatus.SUCCEED, RunStatus.IDLE)


@dataclass(frozen=True, slots=True)
class Aftermath:
    """Where an agent stands. A log reader has no more than the first of it."""

    ended_well: datetime | None
    """When its newest run that had no error ended."""
    validated: datetime | None = None
    """When the newest validation of all articles passed; None where none did since the error, or where it is of none
    that a validation reported."""
    watermark: bytes | None = None
    has_undelivered: bool = False
    """Whether something is stored after the watermark."""


def is_healed(time: datetime, number: str | None, xact_seqno: bytes | None, since: Aftermath) -> bool:
    """Return whether an error is over: of a transaction, once that is delivered or skipped; of a validation, once one
    of all articles has passed; any other, once a run has ended well."""
    if (number or "").startswith(VALIDATION_FAILED):
        return since.validated is not None and since.validated > time
    if xact_seqno is not None and since.watermark is not None:
        if since.watermark >= xact_seqno:
            return True
        # A later run may have ended before it came to the transaction.
        if since.has_undelivered:
            return False
    return since.ended_well is not None and since.ended_well > time


def ended_well(history: sa.Table) -> sa.ColumnElement[bool]:
    """Return what chooses the runs that had no error."""
    return sa.and_(history.c.error_id.is_(None), history.c.runstatus.in_(ENDED_WELL))


def compared_all(history: sa.Table) -> sa.ColumnElement[bool]:
    """Return what chooses validations of all articles in force that passed."""
    articles = msarticles.c
    mine = sa.and_(articles.publication_id == history.c.publication_id, articles.status == ArticleStatus.ACTIVE)
    count = sa.select(sa.cast(sa.func.count(), sa.Text)).where(mine).scalar_subquery()
    before, after = COMPARED_ARTICLES.split("{}")
    whole = history.c.comments.contains(sa.literal(before) + count + sa.literal(after))
    return sa.and_(ended_well(history), history.c.comments.startswith(PASSED), whole)
