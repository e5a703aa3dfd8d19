"""`tranrepl reinitialize`: reinitialize a publication, or a subscription of it.

Source: `sp_reinitsubscription`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum, auto

from tranrepl.admin.check import Checked, CheckPurpose
from tranrepl.admin.replication_tables import set_up_distribution_tables
from tranrepl.admin.run import LOG_READER
from tranrepl.admin.setup import set_up
from tranrepl.distribution.opening import open_distribution
from tranrepl.distributor.database import DistributionDatabase, PublicationRecord
from tranrepl.distributor.tables import SubscriptionStatus
from tranrepl.errors import ConfigurationError
from tranrepl.jobs.results import JobResult
from tranrepl.log_reader.log_handover import keeping_log_handed_over, with_log_handover
from tranrepl.log_reader.opening import open_log_reader
from tranrepl.model.commands import FIRST_XACT_SEQNO
from tranrepl.model.position import FIRST_POSITION
from tranrepl.publisher.publisher import Publisher
from tranrepl.settings.publication import Publication, SyncType
from tranrepl.subscriber.snapshot import fence_after
from tranrepl.topology import Topology


class Rows(Enum):
    """Where the Subscribers' rows come from when a publication is reinitialized."""

    SNAPSHOT = auto()
    """From the Publisher, where a subscription takes snapshots."""
    KEPT = auto()
    """The Subscribers keep their rows: they equal the Publisher's, or are corrected afterwards."""


def forget_log(topology: Topology, rows: Rows, say: Callable[[str], None]) -> None:
    """Forget what is registered of the Publisher's log, stored commands among it, and keep it no longer: the next setup
    makes both new. It can be done again at any point, and in any state of theirs.

    Until `begin_after_registration`, or a snapshot, nothing is delivered. Raises TransientError where
    another session reads the log.
    """
    publication = topology.publication
    with topology.distributor() as database, topology.publisher("tranrepl reinitialize") as publisher:
        _require_unread(topology, database, publisher)
        set_up_distribution_tables(database, say)
        record = database.publications.find(publication.publication)
        log = publisher.identity()
        if record is not None and record.publisher_system not in (None, log.system):
            say(publisher.abandoned(record.publisher_system, record.log_name, whole=False))
        if record is not None:
            _fence_off(topology, record)
            database.publications.forget_log(record, _statuses_until_begun(publication, rows))
            say(f"forgot stored commands and registration of publication {publication.publication}")
        for done in publisher.forget_log():
            say(done)


def _require_unread(topology: Topology, database: DistributionDatabase, publisher: Publisher) -> None:
    """Raise TransientError where another session reads the log, and does not hand it over."""
    record = database.publications.find(topology.publication.publication) if database.is_current() else None
    if record is None:
        publisher.require_unread()
    else:
        with_log_handover(database, record.publication_id, publisher.require_unread)


def _statuses_until_begun(publication: Publication, rows: Rows) -> dict[str, SubscriptionStatus]:
    """Return what each subscription, by name, is until it has its new beginning."""
    return {
        it.name: SubscriptionStatus.SUBSCRIBED
        if rows is Rows.SNAPSHOT and it.sync_type is SyncType.AUTOMATIC
        else SubscriptionStatus.INACTIVE
        for it in publication.subscriptions
    }


def _fence_off(topology: Topology, record: PublicationRecord) -> None:
    """End deliveries that are on their way: the new beginning may have a watermark under another key."""
    if record.publisher_system is None:
        return
    for it in topology.publication.subscriptions:
        with topology.subscriber(it.name, record.publisher_system, "tranrepl reinitialize") as subscriber:
            if subscriber.find_watermark() is not None:
                watermark = subscriber.position().watermark
                subscriber.move_watermark(watermark, fence_after(watermark))
                # So may its tables have; setup says so again.
                subscriber.release_tables([])


def begin_after_registration(topology: Topology, name: str) -> bytes:
    """Let a subscription begin where the log is registered from, and be active: it has all that was committed before.
    Returns its watermark."""
    with open_distribution(topology, name) as opened:
        position = opened.subscriber.position()
        start = topology.positions.watermark(opened.record.read_from or FIRST_POSITION)
        opened.subscriber.move_watermark(position.watermark, start)
        done = "an administrator let it begin with the first registered commands"
        opened.database.history.record_administration(opened.record, opened.subscription, start, done)
        opened.database.subscriptions.set_status(opened.subscription, SubscriptionStatus.ACTIVE)
    return start


def reinitialize(topology: Topology, name: str) -> bytes:
    """Let a subscription begin after the last transaction that is stored, and be active. Returns its watermark.

    Raises ConfigurationError where the Publisher's log still holds changes: whether the rows that were loaded have
    them is not known.
    """
    with open_log_reader(topology) as reader:
        articles = reader.database.articles.registered(reader.record)
        if reader.publisher.probe(articles, reader.start, reader.publisher.end_of_log()).found_change:
            raise ConfigurationError(
                f"publication {topology.publication.publication}: the log holds changes that are not read yet",
                remedy="let nobody write at the Publisher; then run `tranrepl log-reader FILE`, load the Publisher's "
                "rows into the Subscriber, and reinitialize again",
            )
    with open_distribution(topology, name) as opened:
        watermark = opened.subscriber.position().watermark
        start = opened.record.registered_xact_seqno or FIRST_XACT_SEQNO
        opened.subscriber.move_watermark(watermark, start)
        opened.database.snapshots.forget(opened.subscription)
        opened.database.subscriptions.set_status(opened.subscription, SubscriptionStatus.ACTIVE)
    return start


PURPOSE_OF: Mapping[Rows, CheckPurpose] = {
    Rows.SNAPSHOT: CheckPurpose.REINITIALIZATION,
    Rows.KEPT: CheckPurpose.LOG_READER_REINITIALIZATION,
}
"""The check that a reinitialization needs before it, by where the rows come from."""


def reinitialize_publication(
    topology: Topology,
    checked: Checked,
    rows: Rows,
    read_log: Callable[[], JobResult],
    take_snapshot: Callable[[str], JobResult],
    say: Callable[[str], None],
) -> dict[str, JobResult]:
    """Make slot, registration and watermarks new, in any state of theirs; the results of snapshots, by subscription,
    and of the log reader where they need it. `checked` is for `PURPOSE_OF[rows]`, without a blocking problem."""
    with _kept_log(topology):
        forget_log(topology, rows, say)
        set_up(checked.topology, checked.tables, say)
        begun = _begun(topology, rows, say)
    results: dict[str, JobResult] = {}
    waiting = [it.name for it in topology.publication.subscriptions if it.name not in begun]
    if waiting and _has_pending_definitions(topology):
        # A snapshot waits for them, and setup has just written them into the log.
        results[LOG_READER] = read_log()
        if results[LOG_READER].error is not None:
            return results
    return results | {name: take_snapshot(name) for name in waiting}


def _has_pending_definitions(topology: Topology) -> bool:
    with topology.distributor() as database:
        record = database.publications.get(topology.publication.publication)
        return bool(database.pending_definitions.of(record))


@contextmanager
def _kept_log(topology: Topology) -> Iterator[None]:
    """Keep a continuous log reader away from the log."""
    with topology.distributor() as database:
        record = database.publications.find(topology.publication.publication) if database.is_current() else None
        if record is None:
            yield
            return
        with keeping_log_handed_over(database, record.publication_id):
            yield


def _begun(topology: Topology, rows: Rows, say: Callable[[str], None]) -> set[str]:
    """Let each subscription begin that takes no snapshot; return their names."""
    begun: set[str] = set()
    for it in topology.publication.subscriptions:
        if rows is Rows.KEPT or it.sync_type is not SyncType.AUTOMATIC:
            start = begin_after_registration(topology, it.name)
            say(f"subscription {it.name} begins after 0x{start.hex()}, with the rows that it has")
            begun.add(it.name)
    return begun
