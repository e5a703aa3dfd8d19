"""Whether an error is healed, by what its agent has done since: one rule for all who list errors."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from tranrepl.distributor.database.watermarks import known_watermarks
from tranrepl.distributor.tables import (
    WITHOUT_SNAPSHOT,
    ArticleStatus,
    RunStatus,
    msarticle_subscriptions,
    msarticles,
    msdistribution_history,
    mslogreader_history,
    mspublications,
    msrepl_batches,
    msrepl_errors,
    mssubscriptions,
)
from tranrepl.errors import VALIDATION_FAILED
from tranrepl.jobs.validation_report import COMPARED_ARTICLES, PASSED

BY_HAND = "was skipped by an administrator"
"""The last words of the history's row of a transaction that somebody skipped."""
_ENDED_WELL = (RunStatus.SUCCEED, RunStatus.IDLE)


@dataclass(frozen=True, slots=True)
class _Since:
    """What a subscription's agents have done since its error."""

    validated: datetime | None = None
    """When the newest validation of all articles passed."""
    copied: datetime | None = None
    """When the newest run that heals a snapshot's error ended (`_heals_snapshot`)."""
    watermark: bytes | None = None
    has_undelivered: bool = False
    """Whether something is stored after the watermark."""


def healed(
    connection: sa.Connection, errors: Sequence[sa.Row[Any]], watermarks: Mapping[int, bytes] | None = None
) -> Sequence[bool]:
    """Return of each error, a row of `msrepl_errors` with `subscription_id`, `of_snapshot` and `ended_well`, whether it
    is healed. `watermarks`: known ones, by subscriptions' numbers, in place of those that their last runs recorded.
    """
    since = _since(connection, errors, watermarks or {})
    return [_is_healed(it, since.get(it.subscription_id, _Since())) for it in errors]


def _is_healed(error: sa.Row[Any], since: _Since) -> bool:
    """Return whether an error is over: of a transaction, once that is delivered or skipped; of a validation, once one
    of all articles has passed; of a snapshot, once one was taken; any other, once a run has ended well; and each, once
    a person has acknowledged it."""
    if error.acknowledged_at is not None:
        return True
    if error.of_snapshot:
        return since.copied is not None and since.copied > error.time
    if _is_of_validation(error):
        return since.validated is not None and since.validated > error.time
    if error.xact_seqno is not None and since.watermark is not None:
        if since.watermark >= bytes(error.xact_seqno):
            return True
        # A later run may have ended before it came to the transaction.
        if since.has_undelivered:
            return False
    return error.ended_well is not None and error.ended_well > error.time


def _is_of_validation(error: sa.Row[Any]) -> bool:
    return (error.error_code or "").startswith(VALIDATION_FAILED)


def _since(
    connection: sa.Connection, errors: Sequence[sa.Row[Any]], watermarks: Mapping[int, bytes]
) -> Mapping[int, _Since]:
    """Return it by subscriptions' numbers; a log reader has none of it."""
    agents = {it.subscription_id: it.publication_id for it in errors if it.subscription_id}
    validated = _newest_since(connection, [it for it in errors if _is_of_validation(it)], _compared_all())
    copied = _newest_since(connection, [it for it in errors if it.of_snapshot], _heals_snapshot())
    asked = agents.keys() - watermarks.keys()
    known = known_watermarks(connection, mssubscriptions.c.subscription_id.in_(asked)) if asked else {}
    given = {it: watermarks[it] if it in watermarks else known[it].xact_seqno for it in agents}
    ahead = [it for it in errors if it.xact_seqno is not None and it.xact_seqno > given.get(it.subscription_id, b"")]
    stored_to = _stored_to(connection, {it.publication_id for it in ahead})
    return {
        number: _Since(
            validated.get(number), copied.get(number), given[number], stored_to.get(publication, b"") > given[number]
        )
        for number, publication in agents.items()
    }


def _newest_since(
    connection: sa.Connection, errors: Sequence[sa.Row[Any]], chosen: sa.ColumnElement[bool]
) -> Mapping[int, datetime]:
    """Return when the newest of the chosen runs ended since the first of these errors, by subscription."""
    history = msdistribution_history.c
    numbers = {it.subscription_id for it in errors if it.subscription_id is not None}
    if not numbers:
        return {}
    query = sa.select(history.subscription_id, sa.func.max(history.time).label("time")).where(
        history.subscription_id.in_(numbers), history.time > min(it.time for it in errors), chosen
    )
    return {row.subscription_id: row.time for row in connection.execute(query.group_by(history.subscription_id))}


def _stored_to(connection: sa.Connection, publications: Collection[int]) -> Mapping[int, bytes]:
    """Return the last transaction that is stored of each publication."""
    if not publications:
        return {}
    batches = msrepl_batches.c
    newest = (
        sa.select(batches.last_xact_seqno)
        .where(batches.publication_id == mspublications.c.publication_id)
        .order_by(batches.last_xact_seqno.desc())
        .limit(1)
        .lateral("newest")
    )
    query = sa.select(mspublications.c.publication_id, newest.c.last_xact_seqno)
    query = query.select_from(mspublications.join(newest, sa.true()))
    chosen = query.where(mspublications.c.publication_id.in_(publications))
    return {number: bytes(seqno) for number, seqno in connection.execute(chosen)}


def _had_no_error(history: sa.Table) -> sa.ColumnElement[bool]:
    """Return what chooses the runs that had no error."""
    return sa.and_(history.c.error_id.is_(None), history.c.runstatus.in_(_ENDED_WELL))


def _compared_all() -> sa.ColumnElement[bool]:
    """Return what chooses validations of all articles in force that passed."""
    articles, history = msarticles.c, msdistribution_history
    mine = sa.and_(articles.publication_id == history.c.publication_id, articles.status == ArticleStatus.ACTIVE)
    count = sa.select(sa.cast(sa.func.count(), sa.Text)).where(mine).scalar_subquery()
    before, after = COMPARED_ARTICLES.split("{}")
    whole = history.c.comments.contains(sa.literal(before) + count + sa.literal(after))
    return sa.and_(_had_no_error(history), history.c.comments.startswith(PASSED), whole)


def ended_acknowledged(history: sa.Table) -> sa.ColumnElement[bool]:
    """Return whether a run's error was acknowledged."""
    errors = msrepl_errors.alias()
    return sa.exists().where(errors.c.id == history.c.error_id, errors.c.acknowledged_at.is_not(None))


def is_snapshot(history: sa.Table) -> sa.ColumnElement[bool]:
    """Return what chooses the runs of snapshots."""
    # A JSON value that is null is no NULL of SQL.
    return sa.func.coalesce(sa.func.json_typeof(history.c.snapshot) == "array", sa.false())


def _heals_snapshot() -> sa.ColumnElement[bool]:
    """Return what chooses the runs that heal a snapshot's error: snapshots that had none, and where nothing waits for
    one any more, any run that had none."""
    history = msdistribution_history
    return sa.and_(_had_no_error(history), sa.or_(is_snapshot(history), ~_waits(history.c.subscription_id)))


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
    waiting = sa.or_(subscription.status.in_(WITHOUT_SNAPSHOT), sa.and_(states.status.in_(WITHOUT_SNAPSHOT), in_force))
    return sa.exists().select_from(joined).where(subscription.subscription_id == subscription_id, waiting)


def ended_well() -> sa.ColumnElement[datetime | None]:
    """Return when the newest run without an error ended, of the agent that a row of `msrepl_errors` is of."""
    errors, reader, delivery = msrepl_errors.c, mslogreader_history, msdistribution_history
    return sa.case(
        (errors.subscription.is_(None), _newest_good(reader, reader.c.publication_id == errors.publication_id)),
        else_=_newest_good(delivery, delivery.c.subscription_id == mssubscriptions.c.subscription_id),
    )


def _newest_good(history: sa.Table, mine: sa.ColumnElement[bool]) -> sa.ScalarSelect[datetime]:
    newest = sa.select(history.c.time).where(mine, _had_no_error(history)).order_by(history.c.time.desc()).limit(1)
    return newest.correlate(msrepl_errors, mssubscriptions).scalar_subquery()


def skipped_by_hand() -> sa.ColumnElement[bool]:
    """Return whether an administrator has skipped the transaction of a row of `msrepl_errors` since."""
    errors, history = msrepl_errors.c, msdistribution_history.c
    run = sa.exists().where(
        history.subscription_id == mssubscriptions.c.subscription_id,
        history.time >= errors.time,
        history.xact_seqno == errors.xact_seqno,
        history.comments.endswith(BY_HAND),
    )
    return run.correlate(msrepl_errors, mssubscriptions)


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
