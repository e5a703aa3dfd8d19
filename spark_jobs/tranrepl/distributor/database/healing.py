"""Whether an error still stands, by what its agent has done since: one rule for all who list errors."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from tranrepl.distributor.tables import (
    ArticleStatus,
    RunStatus,
    SubscriptionStatus,
    msarticle_subscriptions,
    msarticles,
    msdistribution_history,
    msrepl_errors,
    mssubscriptions,
)
from tranrepl.errors import VALIDATION_FAILED
from tranrepl.jobs.validation_report import COMPARED_ARTICLES, PASSED

ENDED_WELL = (RunStatus.SUCCEED, RunStatus.IDLE)
_WITHOUT_SNAPSHOT = (SubscriptionStatus.SUBSCRIBED, SubscriptionStatus.INITIATED)


@dataclass(frozen=True, slots=True)
class Aftermath:
    """Where an agent stands. A log reader has no more than the first of it."""

    ended_well: datetime | None
    """When its newest run that had no error ended."""
    validated: datetime | None = None
    """When the newest validation of all articles passed; None where none did since the error, or where it is of none
    that a validation reported."""
    copied: datetime | None = None
    """When the newest run that heals a snapshot's error ended (`heals_snapshot`); None where none did since the error,
    or where it is of no snapshot."""
    watermark: bytes | None = None
    has_undelivered: bool = False
    """Whether something is stored after the watermark."""


def is_healed(
    time: datetime,
    number: str | None,
    xact_seqno: bytes | None,
    since: Aftermath,
    *,
    of_snapshot: bool,
    acknowledged: bool,
) -> bool:
    """Return whether an error is over: of a transaction, once that is delivered or skipped; of a validation, once one
    of all articles has passed; of a snapshot, once one was taken; any other, once a run has ended well; and each, once
    a person has acknowledged it."""
    if acknowledged:
        return True
    if of_snapshot:
        return since.copied is not None and since.copied > time
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


def ended_acknowledged(history: sa.Table) -> sa.ColumnElement[bool]:
    """Return whether a run's error was acknowledged."""
    errors = msrepl_errors.alias()
    return sa.exists().where(errors.c.id == history.c.error_id, errors.c.acknowledged_at.is_not(None))


def is_snapshot(history: sa.Table) -> sa.ColumnElement[bool]:
    """Return what chooses the runs of snapshots."""
    # A JSON value that is null is no NULL of SQL.
    return sa.func.coalesce(sa.func.json_typeof(history.c.snapshot) == "array", sa.false())


def heals_snapshot(history: sa.Table) -> sa.ColumnElement[bool]:
    """Return what chooses the runs that heal a snapshot's error: snapshots that had none, and where nothing waits for
    one any more, any run that had none."""
    return sa.and_(ended_well(history), sa.or_(is_snapshot(history), ~_waits(history.c.subscription_id)))


def _waits(subscription_id: sa.ColumnElement[int]) -> sa.ColumnElement[bool]:
    """Return whether a subscription, or an article of it in force, waits for a snapshot."""
    states, articles, subscription = msarticle_subscriptions.c, msarticles.c, mssubscriptions.c
    name = articles.source_owner + "." + articles.source_object
    joined = sa.join(
        mssubscriptions, msarticle_subscriptions, states.subscription_id == subscription.subscription_id, isouter=True
    )
    in_force = sa.exists().where(
        articles.publication_id == subscription.publication_id,
        articles.status == ArticleStatus.ACTIVE,
        sa.func.replace(name, '"', "") == sa.func.replace(states.article, '"', ""),
    )
    waiting = sa.or_(
        subscription.status.in_(_WITHOUT_SNAPSHOT), sa.and_(states.status.in_(_WITHOUT_SNAPSHOT), in_force)
    )
    return sa.exists().select_from(joined).where(subscription.subscription_id == subscription_id, waiting)


def stopped_snapshot() -> sa.ColumnElement[bool]:
    """Return whether a row of `msrepl_errors` is of a snapshot: the run that it stopped says so."""
    errors, history, subscription = msrepl_errors.c, msdistribution_history.c, mssubscriptions.c
    number = sa.select(subscription.subscription_id).where(
        subscription.publication_id == errors.publication_id, subscription.subscription == errors.subscription
    )
    run = (
        sa.select(is_snapshot(msdistribution_history))
        .where(
            history.subscription_id == number.correlate(msrepl_errors).scalar_subquery(),
            # Its run's row is written right after it: an index leads there.
            history.time >= errors.time,
            history.error_id == errors.id,
            ~errors.skipped,
        )
        .order_by(history.time)
        .limit(1)
    )
    return sa.func.coalesce(run.correlate(msrepl_errors).scalar_subquery(), sa.false())
