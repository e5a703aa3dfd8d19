"""Early warnings: what will stop replication if nobody acts, each reported once while it lasts.

Source: SQL Server, `sp_replmonitorchangepublicationthreshold`, messages 14160 and 14161, and 20554 of an agent that is
suspect.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from itertools import pairwise

from croniter import croniter

from tranrepl.distributor.command_store import StoreSpace
from tranrepl.distributor.database.overview import NewestRun, PublicationOverview, SubscriptionOverview
from tranrepl.distributor.tables import RunStatus, SubscriptionStatus
from tranrepl.errors import VALIDATION_FAILED, ReplicationError
from tranrepl.printable import counted, duration, size
from tranrepl.publisher.publisher import RetainedLog
from tranrepl.settings.publication import Publication
from tranrepl.topology import Topology

log = logging.getLogger(__name__)

_APPLICATION = "tranrepl early warnings"
_MEGABYTE = 1_000_000


class WarningKind(StrEnum):
    """The kind of a warning."""

    LATENCY = "latency"
    EXPIRATION = "expiration"
    RETAINED_LOG = "retained log"
    LOG_IN_DANGER = "log in danger"
    OPEN_TRANSACTION = "open transaction"
    CATALOG_XMIN = "catalog_xmin"
    NO_RUN = "no run"
    AGENT_SUSPECT = "agent suspect"
    ROWS_DIFFER = "rows differ"
    STORE_NEARLY_FULL = "store nearly full"

    @property
    def number(self) -> str:
        """SQL Server's message; empty where it has none."""
        return _NUMBERS.get(self, "")


_NUMBERS = {
    WarningKind.EXPIRATION: "14160",
    WarningKind.LATENCY: "14161",
    WarningKind.AGENT_SUSPECT: "20554",
    WarningKind.ROWS_DIFFER: VALIDATION_FAILED,
}
_OF_PUBLISHER = (
    WarningKind.RETAINED_LOG,
    WarningKind.LOG_IN_DANGER,
    WarningKind.OPEN_TRANSACTION,
    WarningKind.CATALOG_XMIN,
)


@dataclass(frozen=True, slots=True)
class EarlyWarning:
    """One thing that will hurt. `subscription` is empty where it concerns none of them alone."""

    kind: WarningKind
    subscription: str
    text: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Known:
    """What warnings follow from."""

    overview: PublicationOverview
    retained: RetainedLog | None
    """None where nothing is kept, or where the Publisher is away."""
    space: StoreSpace | None
    """None where the store's disk is not ours to ask."""


def new_early_warnings(topology: Topology) -> list[EarlyWarning]:
    """Return the warnings that hold now and were not reported yet; they count as reported. Queries the distribution
    database, the Publisher and the store's disk. What was reported of a Publisher stays so while that is away.

    Raises ConfigurationError where the publication is not set up, TransientError where the database is away.
    """
    publication = topology.publication
    with topology.distributor() as database:
        record = database.publications.get(publication.publication)
        (overview,) = database.overview.of([publication.publication], timedelta(days=1), 1)
        unknown: tuple[WarningKind, ...] = ()
        try:
            with topology.publisher(_APPLICATION) as publisher:
                retained = publisher.health(record.registered_to).retained
        except ReplicationError as error:
            log.warning("The Publisher's log was not checked for early warnings: %s", error.message)
            retained, unknown = None, _OF_PUBLISHER
        known = Known(overview, retained, record.store.space())
        current = current_warnings(publication, known, datetime.now(UTC))
        new = database.warnings.take_new(record, {(it.subscription, it.kind.value) for it in current}, unknown)
    return [it for it in current if (it.subscription, it.kind.value) in new]


def current_warnings(publication: Publication, known: Known, now: datetime) -> list[EarlyWarning]:
    """Return all warnings that hold now, reported or not."""
    found = [] if known.retained is None else list(_of_log(publication, known.retained))
    found += _of_store(publication, known.space)
    silent = _of_agent(publication, "", known.overview.last_run, now)
    if silent is not None:
        found.append(silent)
    for subscription in known.overview.subscriptions:
        if subscription.status is not SubscriptionStatus.ACTIVE:
            continue
        found += _of_subscription(publication, subscription)
        # Where the log reader does not run, no delivery does.
        late = None if silent else _of_agent(publication, subscription.subscription, subscription.last_run, now)
        if late is not None:
            found.append(late)
    return found


def _of_log(publication: Publication, retained: RetainedLog) -> Iterator[EarlyWarning]:
    kept = retained.size
    threshold = publication.retained_log_threshold
    if threshold is not None and kept is not None and kept > threshold * _MEGABYTE:
        yield EarlyWarning(
            WarningKind.RETAINED_LOG,
            "",
            f"the Publisher retains {size(kept)} of log (retained_log_threshold: {threshold})",
            "`tranrepl status FILE` shows what holds it: a run that fails, a long transaction, a paused DAG",
        )
    for danger in retained.dangers:
        yield EarlyWarning(WarningKind.LOG_IN_DANGER, "", danger.text, danger.remedy)
    open_for = retained.oldest_transaction
    longest = publication.open_transaction_threshold
    if open_for is not None and open_for.seconds >= longest:
        what = "the log since then" if kept is None else f"{size(kept)} of log"
        yield EarlyWarning(
            WarningKind.OPEN_TRANSACTION,
            "",
            f"a transaction has been open at the Publisher for {open_for.seconds:,.0f} s "
            f"(open_transaction_threshold: {longest}): {open_for.who}; until it ends, the slot's "
            f"restart_lsn does not pass its beginning, and the Publisher retains {what}",
            "end it at the Publisher: let its session commit or roll back, COMMIT PREPARED or ROLLBACK PREPARED",
        )
    age, oldest = retained.catalog_xmin_age, publication.catalog_xmin_threshold
    if age is not None and age > oldest:
        yield EarlyWarning(
            WarningKind.CATALOG_XMIN,
            "",
            f"the slot's catalog_xmin is {age:,} transactions old (catalog_xmin_threshold: {oldest}): since then "
            "VACUUM removes no dead rows of the Publisher's catalogue, and transaction numbers run out in the end",
            "read the log with `tranrepl run FILE`, and end transactions that have been open for long; "
            "`tranrepl status FILE` names the oldest",
        )


def _of_store(publication: Publication, space: StoreSpace | None) -> Iterator[EarlyWarning]:
    threshold = publication.distributor.store_free_threshold
    if space is not None and space.free_percent < threshold:
        yield EarlyWarning(
            WarningKind.STORE_NEARLY_FULL,
            "",
            f"the disk of the store {publication.distributor.store} is nearly full: {space.free_percent:.1f} %, "
            f"{size(space.free_bytes)}, are free (store_free_threshold: {threshold})",
            "`tranrepl cleanup FILE` removes what every Subscriber has, and `tranrepl status FILE` shows which ones "
            "are behind; or give the disk more room",
        )


def _of_agent(
    publication: Publication, subscription: str, last: NewestRun | None, now: datetime
) -> EarlyWarning | None:
    """Return the warning of an agent that has not run, or that has begun and says nothing; None where all is well, or
    where it never ran."""
    warns_from = None if last is None else warns_of_silence_from(publication, last)
    if last is None or warns_from is None or now < warns_from:
        return None
    agent = f"the delivery to subscription {subscription}" if subscription else "the log reader"
    silent = f"{(now - last.time).total_seconds() / 60:,.0f} minutes"
    limit = _limit(publication)
    if last.status in GOING_ON:
        return EarlyWarning(
            WarningKind.AGENT_SUSPECT,
            subscription,
            f"{agent} has not logged a progress message in {silent} {limit}. This might indicate an unresponsive agent "
            "or high system activity",
            "look in Airflow for the task and its log: it may wait for a lock, or have been killed",
        )
    return EarlyWarning(
        WarningKind.NO_RUN,
        subscription,
        f"{agent} has not run for {silent} {limit}",
        "look in Airflow whether the DAG is paused, waits for a pool or for a run that does not end, or its file is "
        "broken",
    )


def _limit(publication: Publication) -> str:
    if publication.is_continuous:
        return f"(schedule: {publication.schedule}; run_for: {publication.run_for:g})"
    return f"(schedule: {publication.schedule}; missed_runs_threshold: {publication.missed_runs_threshold})"


def _of_subscription(publication: Publication, known: SubscriptionOverview) -> Iterator[EarlyWarning]:
    differing = known.rows_differ
    if differing is not None:
        yield EarlyWarning(
            WarningKind.ROWS_DIFFER,
            known.subscription,
            f"a validation found rows that differ from the Publisher's, at {differing.time:%Y-%m-%d %H:%M} UTC",
            f"`tranrepl validate FILE -s {known.subscription} --repair` corrects them",
        )
    latency = known.latency_seconds
    if latency is None:
        return
    if known.is_slow(publication):
        yield EarlyWarning(
            WarningKind.LATENCY,
            known.subscription,
            f"its first undelivered command has waited for {duration(latency)} "
            f"(latency_threshold: {publication.latency_threshold}); "
            f"{counted(known.backlog.commands, 'undelivered command')}",
            "`tranrepl status FILE` shows whether deliveries run, and how long they take",
        )
    if known.expires_soon(publication):
        yield EarlyWarning(
            WarningKind.EXPIRATION,
            known.subscription,
            f"its first undelivered command has waited for {latency / 3600:,.0f} hours; after "
            f"{publication.distributor.max_distretention:g} (max_distretention) clean-up deactivates the subscription, "
            "which must then be reinitialized",
            "let it deliver with `tranrepl run FILE`, or raise max_distretention",
        )


GOING_ON = (RunStatus.START, RunStatus.IN_PROGRESS)
_BETWEEN_RUNS = timedelta(minutes=10)
"""The next run begins continuous agents within a minute or so."""
_AFTER_RUN = timedelta(minutes=15)
"""A continuous delivery waits ten minutes at most, after its run's end, for the log reader."""

_STARTS = 2000


def warns_of_silence_from(publication: Publication, last: NewestRun) -> datetime | None:
    """Return from when on a warning says that an agent has reported nothing; None where no schedule lets it run.

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


# Fifty deliveries ask at each look of a page, and most have said nothing new since the look before.
@lru_cache(maxsize=4096)
def missed_at(schedule: str, last: datetime, runs: int) -> datetime:
    """Return from when on so many runs are missed, in whole intervals of a cron expression, since an agent last said
    something."""
    times = croniter(schedule, last, ret_type=datetime)
    found: datetime = last
    for _ in range(runs + 1):
        found = times.get_next()
    return found
