"""What a distribution job opens before it delivers."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass

from tranrepl.connections import Connection
from tranrepl.distribution.recording import TracerArrivals
from tranrepl.distributor.database import (
    ArticleState,
    DistributionDatabase,
    PublicationRecord,
    StoredSchemaChange,
    SubscriptionRecord,
    UnknownRows,
)
from tranrepl.distributor.stale_articles import reinitialize_or_stop_at
from tranrepl.distributor.stored_commands import holds_transaction
from tranrepl.distributor.tables import WITHOUT_SNAPSHOT, SubscriptionStatus
from tranrepl.errors import (
    MUST_BE_REINITIALIZED,
    SNAPSHOT_NOT_AVAILABLE,
    ConfigurationError,
    MustBeReinitializedError,
    ReplicationError,
)
from tranrepl.jobs.results import JobResult
from tranrepl.model.article import RegisteredArticle, newest_definitions
from tranrepl.model.commands import FIRST_XACT_SEQNO
from tranrepl.model.names import TableName
from tranrepl.model.schema_change import SchemaChange
from tranrepl.remedies import REINITIALIZE, reinitialize_subscription
from tranrepl.schema.redefinition import DESTINATION_CHANGED
from tranrepl.settings.publication import Publication, SyncType
from tranrepl.settings.registered_names import with_current_names
from tranrepl.subscriber.base.subscriber import Subscriber
from tranrepl.subscriber.registry import dialect_of
from tranrepl.subscriber.snapshot import at_same_position, is_before
from tranrepl.subscriber.subscription import SubscriptionKey
from tranrepl.topology import Topology


@dataclass(frozen=True, slots=True)
class OpenDistribution:
    database: DistributionDatabase
    record: PublicationRecord
    subscription: SubscriptionRecord
    connection: Connection
    """The Subscriber's."""
    distributor: Connection
    key: SubscriptionKey
    subscriber: Subscriber
    takes_snapshots: bool

    def tracers(self) -> TracerArrivals:
        """Return the tracer tokens on their way to the subscription."""
        pending = self.database.tracer_tokens.pending(self.record, self.subscription)
        return TracerArrivals(self.distributor, self.subscription.subscription_id, pending)

    def record_arrivals(self, watermark: bytes) -> None:
        """Record the tracer tokens up to the watermark that nobody has recorded: as one that a killed job left."""
        self.database.tracer_tokens.record_arrivals(self.record, self.subscription, watermark)

    def refuse_incomplete(self, watermark: bytes) -> None:
        """Raise ConfigurationError 21074 where commands after the watermark, or an article's rows, may be gone, and
        21075 where the subscription waits for its snapshot."""
        if self.subscription.status in WITHOUT_SNAPSHOT:
            raise _without_snapshot(f"subscription {self.subscription.subscription}")
        removed, began = self.record.removed_xact_seqno, self.subscription.subscription_seqno
        if self.subscription.status is SubscriptionStatus.INACTIVE:
            why = "is inactive"
        elif began is not None and is_before(watermark, began):
            why = f"has watermark 0x{watermark.hex()}, before the snapshot that it began with"
        elif removed is not None and watermark < removed:
            why = f"has watermark 0x{watermark.hex()}, and clean-up has removed what follows"
        else:
            self._refuse_unknown(watermark)
            self._refuse_forgotten_snapshots()
            return
        raise ConfigurationError(
            f"subscription {self.subscription.subscription} of publication {self.record.publication} {why}: it must "
            "be reinitialized",
            remedy=reinitialize_subscription(self.subscription.subscription),
            number=MUST_BE_REINITIALIZED,
        )

    def _refuse_unknown(self, watermark: bytes) -> None:
        """Raise an error where the Subscriber is ahead of the distribution database.

        That was restored from a backup then, its Publisher with it: what is read has positions that the watermark has
        passed. A watermark that no run has recorded is one of the stored transactions, at which a job was killed.
        """
        recorded = self.database.history.last_known_watermark(self.record, self.subscription)
        known = (recorded, FIRST_XACT_SEQNO, self.subscription.subscription_seqno, self.record.removed_xact_seqno)
        if recorded is None or any(it is not None and at_same_position(watermark, it) for it in known):
            return
        if not holds_transaction(self.record, self.database.batches.around(self.record, watermark), watermark):
            name = self.subscription.subscription
            raise MustBeReinitializedError(
                f"subscription {name} of publication {self.record.publication} has watermark 0x{watermark.hex()}, a "
                f"transaction that {self.database.where} does not know; the last one that it knows of is "
                f"0x{recorded.hex()}: the Publisher and the distribution database were restored from a backup, and the "
                "Subscriber is ahead, or another distribution database delivers to it",
                remedy=REINITIALIZE,
                number=MUST_BE_REINITIALIZED,
            )

    def _refuse_forgotten_snapshots(self) -> None:
        """Raise an error where the Subscriber was restored from a backup of before an article's snapshot.

        It lacks the article's rows, and would not get the commands that the snapshot had in it. The distribution
        database is asked first: a snapshot that ends meanwhile is at the Subscriber before it is there.
        """
        states = self.database.snapshots.article_states(self.subscription).items()
        began = {it: state.xact_seqno or b"" for it, state in states if state.status is SubscriptionStatus.ACTIVE}
        known = self.subscriber.initialized_articles() if began else {}
        forgotten = {it for it, seqno in began.items() if known.get(it, b"") < seqno}
        names = self.database.articles.names(self.record) if forgotten else {}
        for article, earlier in names.items():
            if article in forgotten and all(known.get(it, b"") < began[article] for it in earlier):
                name = self.subscription.subscription
                raise ConfigurationError(
                    f"article {article} of subscription {name}: its Subscriber does not know the snapshot that the "
                    "article began with, perhaps because of a restore from an older backup: it must be reinitialized",
                    remedy=f"`tranrepl setup FILE`, then `tranrepl reinitialize FILE -s {name} --article "
                    f"{shlex.quote(article)}`",
                    number=MUST_BE_REINITIALIZED,
                    article=article,
                )

    def left_out(self, *, deliver_stopped: bool = False) -> dict[str, bytes | None]:
        """Return by article (source) the transaction up to which its commands are in the snapshot that its table began
        with; None: all that is registered by now will be.

        It is asked for after the batches to be delivered are known: a snapshot that begins later shows all of them.
        Raises ConfigurationError 21075 where a snapshot is on its way: where it begins is not known; 21074 where an
        article is stopped, unless `deliver_stopped`.
        """
        states = self.database.snapshots.article_states(self.subscription)
        stopped = self._stopped_and_published(states)
        for article, state in states.items():
            if state.status is SubscriptionStatus.INITIATED:
                raise _without_snapshot(f"article {article} of subscription {self.subscription.subscription}")
            if article in stopped and not deliver_stopped:
                raise self._stopped(article, state.reason or "the log lacks its rows")
        began = {it: state.xact_seqno for it, state in states.items() if state.xact_seqno is not None}
        left = (SubscriptionStatus.SUBSCRIBED, SubscriptionStatus.INACTIVE)
        waiting = {it: None for it, state in states.items() if state.status in left and it not in stopped}
        return began | waiting

    def stopped_articles(self) -> list[str]:
        """Return the articles of which nobody knows whether the Subscriber has the Publisher's rows."""
        return self._stopped_and_published(self.database.snapshots.article_states(self.subscription))

    def _stopped_and_published(self, states: Mapping[str, ArticleState]) -> list[str]:
        """Return the stopped articles; not those that have ended, of which nothing is delivered any more."""
        stopped = [article for article, state in states.items() if state.status is SubscriptionStatus.INACTIVE]
        published = {str(it.source) for it in self.database.articles.registered(self.record)} if stopped else set()
        return [it for it in stopped if it in published]

    def _stopped(self, article: str, reason: str) -> ConfigurationError:
        name = self.subscription.subscription
        one = f" --article {shlex.quote(article)}" if self.takes_snapshots else ""
        loaded = "copies them again" if self.takes_snapshots else "begins after them, where they were loaded by hand"
        registered = self.database.articles.registered(self.record)
        not_repaired = next((it.not_repaired for it in registered if str(it.source) == article), None)
        quoted = shlex.quote(article)
        if not_repaired is None:
            compared = (
                f"`tranrepl validate FILE -s {name} --article {quoted} --repair` compares its rows, corrects what "
                "differs and resumes its delivery; "
            )
        else:
            compared = (
                f"`tranrepl validate FILE -s {name} --article {quoted}` compares its rows, and resumes its delivery "
                f"where they are equal ({not_repaired}); "
            )
        if not dialect_of(self.connection).capabilities.comparison:
            compared = ""
        return ConfigurationError(
            f"article {article} of subscription {name} is stopped: {reason}",
            remedy=f"{compared}`tranrepl reinitialize FILE -s {name}{one}` {loaded}",
            number=MUST_BE_REINITIALIZED,
            article=article,
        )


def _without_snapshot(what: str) -> ConfigurationError:
    return ConfigurationError(
        f"the initial snapshot of {what} is not yet available",
        remedy="`tranrepl snapshot FILE` takes it, or completes an interrupted one; one in progress must end first",
        number=SNAPSHOT_NOT_AVAILABLE,
    )


@contextmanager
def open_distribution(
    topology: Topology, name: str, opened: DistributionDatabase | None = None
) -> Iterator[OpenDistribution]:
    """Connect to a subscription's Subscriber, and to the distribution database unless it is `opened`; what was
    connected to here is closed at the end."""
    publication = topology.publication
    settings = publication.subscription(name)
    with topology.distributor() if opened is None else nullcontext(opened) as database:
        record = database.publications.get(publication.publication)
        subscription = database.subscriptions.get(record, name)
        with topology.subscriber(name, record.publisher_system, "tranrepl distribution") as subscriber:
            made_by = subscriber.tables_version()
            if made_by is not None:
                made_by.require_current(subscriber.where)
            yield OpenDistribution(
                database,
                record,
                subscription,
                topology.subscriber_connection(name),
                topology.distributor_connection,
                topology.subscription_key(name, record.publisher_system),
                subscriber,
                settings.sync_type is SyncType.AUTOMATIC,
            )


@contextmanager
def recording_refusals(topology: Topology, name: str) -> Iterator[OpenDistribution]:
    """Open what a run needs, as `open_distribution` does; where that fails, a failed run is in the history."""
    clock = time.perf_counter()
    with ExitStack() as stack:
        try:
            opened = stack.enter_context(open_distribution(topology, name))
        except ReplicationError as error:
            _record(topology, name, JobResult(seconds=time.perf_counter() - clock, error=error.report))
            raise
        yield opened


def _record(topology: Topology, name: str, result: JobResult) -> None:
    # Where the distribution database cannot be opened either, there is no history.
    with suppress(ReplicationError), topology.distributor() as database:
        record = database.publications.get(topology.publication.publication)
        database.history.record_distribution(record, database.subscriptions.get(record, name), result)


def reinitialize_or_stop_articles(
    publication: Publication,
    opened: OpenDistribution,
    changes: Iterable[StoredSchemaChange],
    articles: Mapping[int, RegisteredArticle],
    left_out: Mapping[str, bytes | None],
    *,
    compared: bool,
) -> list[str]:
    """Let articles wait for a snapshot where the log does not have the rows that a change, which is to be delivered,
    leaves at this Subscriber, though it has those of others; or stop them, as `on_unknown_rows` and `sync_type` say.
    Return what was done, in words. `left_out` is what the articles' snapshots have in them: those changes are among
    it. `compared`: what is delivered is compared and corrected then, in the tables that the articles have."""
    done = dict[TableName, str]()
    newest = newest_definitions(articles.values())
    # Under the names of now: the table may have been renamed before the change or after it.
    followed = with_current_names(publication.at(opened.subscription.subscription), newest.values())
    for stored in changes:
        change, article = stored.change, articles[stored.change.article_id]
        source = newest[article.source_object_id].source
        last = left_out.get(str(source), b"")
        if source in done or last is None or stored.xact_seqno <= last:
            continue
        reason = _why_elsewhere(article, articles, change)
        if reason is None and not compared:
            reason = opened.subscriber.reload_reason(change, article)
        if reason is not None:
            unknown = UnknownRows(reason, None)
            done[source] = reinitialize_or_stop_at(opened.database, opened.subscription, followed, source, unknown)
    return list(done.values())


def _why_elsewhere(
    before: RegisteredArticle, articles: Mapping[int, RegisteredArticle], change: SchemaChange
) -> str | None:
    """Return why the rows are not known at a Subscriber whose table is another one from this change on."""
    now = articles.get(change.new_article_id or 0)
    moved = now is not None and now.destination != before.destination and change.rows_unknown is None
    return DESTINATION_CHANGED if moved else None
