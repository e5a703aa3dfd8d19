"""State of a publication's log reader and subscriptions, as `tranrepl status` reports it. None is unknown."""

from __future__ import annotations

from datetime import datetime
from typing import Self, TypeVar

from pydantic import BaseModel

from tranrepl.distributor.database import RecordedError
from tranrepl.distributor.database.overview import WRONG_STATES, NewestRun, SubscriptionState
from tranrepl.errors import ErrorReport
from tranrepl.model.latency import Leg, Quantiles
from tranrepl.remedies import Place, named, step_lines

Part = TypeVar("Part", bound=BaseModel)


class LastRun(BaseModel):
    """The newest history row."""

    status: str
    time: datetime
    comments: str
    acknowledged: bool
    """A person has acknowledged its error."""

    @property
    def failed(self) -> bool:
        return self.status in ("fail", "retry") and not self.acknowledged

    @classmethod
    def of(cls, run: NewestRun | None) -> Self | None:
        """Return the run as a report has it; None for none."""
        if run is None:
            return None
        return cls(
            status=run.status.name.lower(),
            time=run.time,
            comments=run.comments,
            acknowledged=run.acknowledged,
        )


class LastError(ErrorReport):
    """A row of `msrepl_errors`."""

    time: datetime
    healed: bool = False
    """Whether a later run ended well, the Subscriber is past the transaction, or a person has acknowledged it."""
    skipped: bool = False
    """Whether its command was left out (`skip_errors`), or an administrator has skipped its transaction."""
    acknowledged_at: datetime | None = None
    acknowledged_by: str | None = None
    next_steps: tuple[str, ...] = ()
    """What can be done about it, as lines of a shell; empty where it is healed, or its text says all."""

    @classmethod
    def of(cls, error: RecordedError | None, place: Place) -> Self | None:
        """Return the error as a report has it, with the ways on where it is unresolved; None for none. The
        failing command is not in it: it has the values of a row."""
        if error is None:
            return None
        return cls(
            **error.report.model_dump(exclude={"command"}),
            time=error.time,
            healed=error.healed,
            skipped=error.skipped or error.skipped_by_hand,
            acknowledged_at=error.acknowledged_at,
            acknowledged_by=error.acknowledged_by,
            next_steps=tuple(step_lines(error.report, place)) if error.unresolved else (),
        )


class RetainedLogStatus(BaseModel):
    """What the Publisher keeps of its log."""

    wal_status: str
    """The server's own word: PostgreSQL's reserved, extended, unreserved or lost; MariaDB's time."""
    bytes: int | None
    """Bytes of log; PostgreSQL's from the slot's restart_lsn on. None where none is kept any more."""
    bytes_left: int | None
    """Bytes that may be written before log that is needed may be lost; None where nothing bounds them."""
    catalog_xmin_age: int | None = None
    """Age of a PostgreSQL slot's catalog_xmin, in transactions."""
    oldest_transaction: str | None = None
    """Whose transaction has been open at the Publisher for longest, in words: the log since its beginning is kept. None
    where there is none, or where our role does not see since when."""
    oldest_transaction_seconds: float | None = None


class LogReaderStatus(BaseModel):
    slot_name: str | None = None
    """The publication's name at the Publisher; PostgreSQL's slot has it."""
    log: str | None = None
    """What keeps the log, as the Publisher calls it; None where that gives no answer."""
    slot: str | None = None
    """How the log is kept: the state of the slot. None where it is not, or the Publisher gives no answer."""
    retained: RetainedLogStatus | None = None
    unread_log_bytes: int | None = None
    publisher_problem: str | None = None
    """Why the Publisher could not be asked: it is away, or refuses us."""
    problem: str | None = None
    """Why the log cannot be read on, and the way out; None where it can."""
    dangers: list[str] = []
    """Why log that is to be read next may soon be lost, each with what to do."""
    waits_for: str | None = None
    """A standby that must have the log before it is read further."""
    schema_changes_stop: str | None = None
    """Why schema changes stop the publication; None where they are replicated, or the Publisher gives no answer."""
    registered_xact_seqno: str | None = None
    last_run: LastRun | None = None
    last_error: LastError | None = None


class SkippedCommands(BaseModel):
    """What `skip_errors` left out."""

    commands: int
    within_hours: int
    """The time looked back at: `history_retention`, after which clean-up removes the rows."""
    last: LastError | None


class MeasuredLatency(BaseModel):
    """How long the commands took that were delivered within the last minutes."""

    within_minutes: int
    commands: int
    legs: dict[Leg, Quantiles]
    clock_difference: float | None
    """Seconds by which the Publisher's clock was ahead of the distribution database's; the legs are without it. None
    where it was not measured."""


class SubscriptionStatus(BaseModel):
    subscription: str
    state: SubscriptionState | None = None
    """None where the distribution database gives no answer."""
    subscriber_problem: str | None = None
    """Why the Subscriber could not be asked: it is away, refuses us, or is not set up."""
    problem: str | None = None
    """Why the distribution database says nothing of this subscription alone."""
    watermark: str | None = None
    """The Subscriber's; where that gave no answer, as the last run recorded it."""
    undelivered_transactions: int | None = None
    """Stored after the watermark. What a snapshot on its way has in it, and no delivery will apply, is among them."""
    undelivered_commands: int | None = None
    undelivered_at_most: bool = False
    """The store cannot be read from here: what the watermark is inside of counts as a whole."""
    estimated_seconds: int | None = None
    """Seconds to deliver them, at the rate of the last runs; None where none was measured, or the last run failed."""
    waiting_articles: list[str] = []
    """Articles that wait for their snapshot, or whose snapshot is on its way."""
    stopped_articles: dict[str, str] = {}
    """Articles whose rows are not known, and why: nothing is delivered before that is settled."""
    latency_seconds: float | None = None
    """Age of the first undelivered command; None where nothing is undelivered."""
    last_latency_seconds: float | None = None
    """What the last delivery took, from commit to commit."""
    latency: MeasuredLatency | None = None
    """None where nothing was delivered within the last minutes."""
    last_error: LastError | None = None
    skipped: SkippedCommands | None = None
    delivered_commands: dict[str, int] = {}
    """Commands of each article since the subscription was created."""
    last_run: LastRun | None = None


class PublicationStatus(BaseModel):
    publication: str
    distributor_problem: str | None = None
    """Why the distribution database could not be asked: it is away, or refuses us."""
    log_reader: LogReaderStatus
    subscriptions: list[SubscriptionStatus]
    wrong: list[str] = []
    """What somebody should look at, in words; empty where all is well."""


def what_is_wrong(status: PublicationStatus) -> list[str]:
    """Return what of a publication should not be as it is. What waits by itself, as for a snapshot, is well."""
    found = ["distribution database"] if status.distributor_problem else []
    found += _wrong_with_log_reader(status.log_reader)
    for subscription in status.subscriptions:
        found += [f"subscription {subscription.subscription}: {it}" for it in _wrong_with_subscription(subscription)]
    return found


def _wrong_with_log_reader(reader: LogReaderStatus) -> list[str]:
    found = {
        "Publisher": reader.publisher_problem is not None,
        "the log cannot be read on": reader.problem is not None,
        "the log reader's last run failed": reader.last_run is not None and reader.last_run.failed,
        "the log reader's last error is not resolved": _stands(reader.last_error),
    }
    return [what for what, holds in found.items() if holds]


def _wrong_with_subscription(subscription: SubscriptionStatus) -> list[str]:
    found = {
        "Subscriber": subscription.subscriber_problem is not None,
        "not in the distribution database": subscription.problem is not None,
        "its last run failed": subscription.last_run is not None and subscription.last_run.failed,
        "its last error is not resolved": _stands(subscription.last_error),
        f"state {subscription.state}": subscription.state in WRONG_STATES,
        "articles are stopped": bool(subscription.stopped_articles),
    }
    return [what for what, holds in found.items() if holds]


def _stands(error: LastError | None) -> bool:
    return error is not None and not error.healed


def with_names(status: PublicationStatus, settings_file: str) -> PublicationStatus:
    """Return the status whose texts' commands name the settings file, and the subscription that they are about."""
    file = Place(settings_file)
    problem = status.distributor_problem
    return status.model_copy(
        update={
            "distributor_problem": None if problem is None else named(problem, file),
            "log_reader": _with_names(status.log_reader, file),
            "subscriptions": [_with_names(it, Place(settings_file, it.subscription)) for it in status.subscriptions],
        }
    )


def _with_names(part: Part, place: Place) -> Part:
    return type(part).model_validate(_in_texts(part.model_dump(), place))


def _in_texts(value: object, place: Place) -> object:
    if isinstance(value, str):
        return named(value, place)
    if isinstance(value, dict):
        return {name: _in_texts(it, place) for name, it in value.items()}
    if isinstance(value, list):
        return [_in_texts(it, place) for it in value]
    return value
