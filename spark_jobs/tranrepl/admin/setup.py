"""`tranrepl setup`: make what is missing at Publisher, Distributor and Subscribers. Idempotent.

Subscribers come first and the Publisher last, so that a failure leaves nothing behind that holds the Publisher's log.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial

from tranrepl import garbage_collection
from tranrepl.admin.articles_of_file import registered_articles
from tranrepl.admin.missing_tables import reinitialize_or_stop_missing
from tranrepl.admin.old_commands import refuse_old_commands
from tranrepl.admin.recorded_definitions import articles_as_applied, record_definitions
from tranrepl.admin.replication_tables import Say, set_up_distribution_tables, set_up_subscriber_tables
from tranrepl.distributor.database import DistributionDatabase, PublicationRecord, SubscriptionRecord, UnknownRows
from tranrepl.distributor.replica_identities import remember_identities
from tranrepl.distributor.stale_articles import reinitialize_or_stop, reinitialize_or_stop_at
from tranrepl.distributor.store_mark import mark_store
from tranrepl.distributor.tables import SubscriptionStatus
from tranrepl.errors import ConfigurationError
from tranrepl.failpoint import Failpoint, reach
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.catalogue import TableDescription
from tranrepl.model.commands import FIRST_XACT_SEQNO
from tranrepl.model.names import TableName
from tranrepl.model.pending_definitions import PendingDefinitions
from tranrepl.model.position import FIRST_POSITION, Position, Positions
from tranrepl.printable import named
from tranrepl.publisher.publisher import Publisher
from tranrepl.schema.redefinition import is_altered, why_unknown
from tranrepl.settings.publication import Article, Publication, Subscription, SyncType
from tranrepl.settings.registration import file_names, registered_article, tables_at
from tranrepl.subscriber.base.subscriber import Subscriber
from tranrepl.subscriber.foreign_keys import NO_FOREIGN_KEYS, published_foreign_keys
from tranrepl.topology import Topology

Tables = Sequence[tuple[Article, TableDescription]]
_APPLICATION = "tranrepl setup"
_ENDED = UnknownRows("its table was dropped, or taken out of the publication, and is published again")
_COPIED_BEHIND = UnknownRows("its definition changed before its snapshot began")


@garbage_collection.paused()
def set_up(topology: Topology, tables: Tables, say: Say, *, new_secret: bool = False) -> None:
    """Set up a checked publication; `tables` are its articles as `check` found them. `say` reports each thing done.
    `new_secret`: messages in the Publisher's log are signed with another one from now on.

    Articles that are new are registered here. Where the definition of another one changes, setup writes a message into
    the Publisher's log, and the log reader registers the new definition there. Raises ConfigurationError.
    """
    named = {it.destination_table: file_names(it) for it in topology.publication.articles}
    with topology.distributor() as database, ExitStack() as sessions:
        topology = topology.with_current_names(registered_articles(topology, database))
        publication = topology.publication
        with topology.publisher(_APPLICATION) as publisher:
            set_up_distribution_tables(database, say)
            for done in mark_store(database, topology.store()):
                say(done)
            log = publisher.identity()
            record = database.publications.set_up(
                publication, publisher.database, publisher.name, log.system, log.timeline
            )
            _register_destinations(database, record, publication, tables)
            known = {article.source: article for article in database.articles.registered(record)}
            wanted = [registered_article(article, table, known.get(article.source)) for article, table in tables]
            wanted = [it.model_copy(update={"file_names": named[it.destination]}) for it in wanted]
            if record.registered_to is not None:
                # Where commands were read before, the log must be kept: it would begin past what was not read.
                publisher.require_kept()
            dropped = _dropped(topology, database, record)
            refuse_old_commands(topology, database, record, wanted)
            again = _published_again(publication, publisher, database, record, known.values())
            again |= _replaced(known, wanted)
            in_force = [_in_force(it, None if it.source in again else known.get(it.source)) for it in wanted]
            others = [it for it in wanted if it.source in known and it.source not in again]
            changed = _changed(_to_come(database, record, known.values()), others, publication)
            subscribers: dict[str, Subscriber] = {}
            for subscription in publication.subscriptions:
                opened = topology.subscriber(subscription.name, record.publisher_system, _APPLICATION)
                subscribers[subscription.name] = sessions.enter_context(opened)
                # The procedures of a definition that changes come to a subscription with it.
                is_new = database.subscriptions.find(record, subscription.name) is None
                unchanged = [it for it in in_force if is_new or it.source not in changed]
                articles = [it.at(subscription.name) for it in unchanged]
                _set_up_subscriber(
                    publication, database, record, subscription, subscribers[subscription.name], tables, articles, say
                )
            # Before they are published again: a crash in between does not lose what was missed.
            for source in sorted(again & {it.source for it in wanted}):
                for done in reinitialize_or_stop(database, record, publication, source, _ENDED):
                    say(done)
            # An article that goes is not read any more before its table is not published any more, and one that comes
            # is published before it is read: nothing is read in part.
            database.pending_definitions.keep(record, {it.source_object_id for it in others})
            database.articles.set_up(record, _staying(known.values(), wanted))
            _remember_identities(database, record, publisher, tables, known)
            captured = publication.replicate_ddl
            made = publisher.schema_changes.set_up(captured=captured, new_secret=new_secret)
            for done in [*made, *publisher.set_up(tables)]:
                say(done)
            _start_watermark(database, record, publisher)
            # The tables were described before.
            begins_after = publisher.end_of_log()
            record = database.publications.get(publication.publication)
            for subscription in publication.subscriptions:
                _let_wait(database, record, subscription, wanted, known.keys() | again, say)
            _say_ended(known.keys() - {it.source for it in wanted}, say)
            beginning = {"begins_after": begins_after}
            in_force = [it.model_copy(update=beginning) if it.source in again else it for it in in_force]
            database.articles.set_up(record, in_force)
            others = [it.model_copy(update=beginning) for it in others]
            _redefine(database, record, publisher, publication, others, changed, say)
        for gone in dropped:
            database.subscriptions.set_status(gone, SubscriptionStatus.INACTIVE)
            say(f"deactivated subscription {gone.subscription}, which the file no longer names")
        for subscription in publication.subscriptions:
            subscriber = subscribers[subscription.name]
            _set_up_subscription(topology, database, record, subscription, subscriber, say)
            record_definitions(database, record, subscriber)


def _register_destinations(
    database: DistributionDatabase, record: PublicationRecord, publication: Publication, tables: Tables
) -> None:
    """Register the destinations of subscriptions that are new: no definition changes for the others."""
    joining = {it.name for it in publication.subscriptions if database.subscriptions.find(record, it.name) is None}
    elsewhere = {
        table.object_id: {name: it for name, it in article.destinations.items() if name in joining}
        for article, table in tables
    }
    if joining:
        database.articles.join(record, joining, elsewhere)


def _start_watermark(database: DistributionDatabase, record: PublicationRecord, publisher: Publisher) -> None:
    """Register from where the log is read, unless it is: then a log reader may be reading it now."""
    if record.registered_to is None:
        begin = publisher.kept_from()
        database.publications.start_watermark(record, begin, publisher.proof(begin, None))


def _replaced(
    known: Mapping[TableName, RegisteredArticle], wanted: Iterable[RegisteredArticle]
) -> frozenset[TableName]:
    """Return the articles whose names other tables have now."""
    return frozenset(
        it.source for it in wanted if it.source in known and known[it.source].source_object_id != it.source_object_id
    )


def _in_force(wanted: RegisteredArticle, known: RegisteredArticle | None) -> RegisteredArticle:
    """Return the article as setup registers it: as it is, but for the names in its file, where it is known."""
    return wanted if known is None else known.model_copy(update={"file_names": wanted.file_names})


def _to_come(
    database: DistributionDatabase, record: PublicationRecord, known: Iterable[RegisteredArticle]
) -> Mapping[int, RegisteredArticle]:
    """Return the articles, by their tables, as they are once the log reader has read what setup wrote into the log."""
    pending = database.pending_definitions.of(record)
    in_force = {it.source_object_id: it for it in known}
    return in_force | {of.source_object_id: of for it in pending if it.in_log for of in it.articles}


def _changed(
    before: Mapping[int, RegisteredArticle], wanted: Iterable[RegisteredArticle], publication: Publication
) -> frozenset[TableName]:
    """Return the articles whose definition is another one than before, by their tables."""
    follows = publication.replicate_ddl
    return frozenset(it.source for it in wanted if _is_changed(before[it.source_object_id], it, follows=follows))


def _is_changed(known: RegisteredArticle, wanted: RegisteredArticle, *, follows: bool) -> bool:
    return (
        not wanted.same_definition(known)
        or is_altered(known.source_definition, wanted.source_definition)
        or why_unknown(known, wanted, follows=follows) is not None
    )


def _redefine(
    database: DistributionDatabase,
    record: PublicationRecord,
    publisher: Publisher,
    publication: Publication,
    wanted: Sequence[RegisteredArticle],
    changed: Container[TableName],
    say: Say,
) -> None:
    """Write a message into the log from which on articles have other definitions, where some have. Where the log reader
    has stopped, they may be what it needs: then they hold for all articles, from where it stopped."""
    has_stopped = database.history.log_reader_has_failed(record)
    others = [it for it in wanted if it.source in changed]
    if not others and not has_stopped:
        return
    definitions = PendingDefinitions.of(wanted if has_stopped else others, at_once=has_stopped)
    database.pending_definitions.add(record, definitions)
    reach(Failpoint.DEFINITIONS_PENDING)
    if has_stopped:
        for done in _reinitialize_copied_behind(database, record, publication, [it.source for it in others]):
            say(done)
    try:
        publisher.write_definitions(definitions.digest)
    except ConfigurationError:
        database.pending_definitions.remove(record, definitions)
        raise
    reach(Failpoint.DEFINITIONS_WRITTEN)
    database.pending_definitions.written(record, definitions)
    if others:
        articles = named([it.source for it in others], "article")
        say(f"the Publisher's log has the new definition of {articles}, which holds from there on")


def _reinitialize_copied_behind(
    database: DistributionDatabase, record: PublicationRecord, publication: Publication, sources: Sequence[TableName]
) -> Iterator[str]:
    """Reinitialize or stop the articles where a snapshot began behind what the log reader has read: a definition that
    holds from there is before what the Subscriber gets. A snapshot that begins from now on waits for the definition."""
    read = record.registered_xact_seqno or FIRST_XACT_SEQNO
    for subscription in database.subscriptions.living(record):
        states = database.snapshots.article_states(subscription)
        for source in sources:
            state = states.get(str(source))
            if state is None or state.xact_seqno is None:
                continue
            if state.status is SubscriptionStatus.INITIATED or state.xact_seqno > read:
                yield reinitialize_or_stop_at(database, subscription, publication, source, _COPIED_BEHIND)


def _published_again(
    publication: Publication,
    publisher: Publisher,
    database: DistributionDatabase,
    record: PublicationRecord,
    known: Iterable[RegisteredArticle],
) -> frozenset[TableName]:
    """Return the articles whose tables were not published, or not all of their changes, since they were set up; forget
    the snapshots of those that have ended."""
    if record.registered_to is None:
        return frozenset()
    ended = database.articles.ended(publication, record)
    for subscription in database.subscriptions.living(record) if ended else ():
        delivered = database.history.last_known_watermark(record, subscription)
        if delivered is not None:
            database.snapshots.forget_articles(subscription, [str(it) for it in ended], delivered)
    return frozenset([*ended, *(it.source for it in publisher.unpublished(list(known)))])


def _remember_identities(
    database: DistributionDatabase,
    record: PublicationRecord,
    publisher: Publisher,
    tables: Tables,
    known: Container[TableName],
) -> None:
    """Record the settings of tables that teardown will restore, before any is changed."""
    identities = publisher.old_row_settings([table.object_id for _, table in tables])
    new = [table.object_id for article, table in tables if article.source not in known]
    remember_identities(database, record, identities, new)


def _staying(known: Iterable[RegisteredArticle], wanted: Sequence[RegisteredArticle]) -> list[RegisteredArticle]:
    sources = {it.source for it in wanted}
    return [it for it in known if it.source in sources]


def _let_wait(
    database: DistributionDatabase,
    record: PublicationRecord,
    subscription: Subscription,
    articles: Sequence[RegisteredArticle],
    known: Container[TableName],
    say: Say,
) -> None:
    """Mark articles that join an existing subscription as waiting for a snapshot, before any command of theirs is
    stored."""
    found = database.subscriptions.find(record, subscription.name)
    if found is None:
        return
    wanted = {str(it.source) for it in articles}
    states = database.snapshots.article_states(found).items()
    initiated = [it for it, state in states if state.status is SubscriptionStatus.INITIATED]
    waiting = [it for it in initiated if it not in wanted]
    joining: list[str] = []
    if subscription.sync_type is SyncType.AUTOMATIC:
        joining = [str(it.source) for it in articles if it.source not in known]
    database.snapshots.subscribe(found, [*waiting, *joining], whole=False)
    if joining:
        say(f"subscription {subscription.name}: the next run takes a snapshot of {named(joining, 'article')}")


def _say_ended(ended: Iterable[TableName], say: Say) -> None:
    for source in sorted(ended):
        say(f"article {source} has ended: the file no longer names it")


def _set_up_subscription(
    topology: Topology,
    database: DistributionDatabase,
    record: PublicationRecord,
    subscription: Subscription,
    subscriber: Subscriber,
    say: Say,
) -> None:
    if database.subscriptions.find(record, subscription.name) is not None:
        return
    begun = record.read_from or FIRST_POSITION
    if subscription.subscription_lsn is not None:
        begun = topology.positions.parse(subscription.subscription_lsn)
        _start_at(topology.positions, record, subscription, subscriber, begun)
    automatic = subscription.sync_type is SyncType.AUTOMATIC
    status = SubscriptionStatus.SUBSCRIBED if automatic else SubscriptionStatus.ACTIVE
    subscriber_db = topology.subscriber_connection(subscription.name).database or ""
    added = database.subscriptions.set_up(record, subscription.name, subscriber_db, status)
    if automatic:
        return
    for article in database.articles.registered(record):
        if article.begins_after > begun:
            database.snapshots.stop_article(
                added,
                str(article.source),
                UnknownRows("it was reinitialized, and its stored commands begin after that"),
            )
            place = f"article {article.source} of subscription {subscription.name}"
            say(f"{place} is stopped until its rows are validated or copied")


def _start_at(
    positions: Positions,
    record: PublicationRecord,
    subscription: Subscription,
    subscriber: Subscriber,
    position: Position,
) -> None:
    """Set the Subscriber's watermark to that of a position: the Subscriber has what was committed before. Raises
    ConfigurationError where commands after it are not kept."""
    watermark, read_from = positions.watermark(position), record.read_from or FIRST_POSITION
    removed = record.removed_xact_seqno
    if position < read_from or (removed is not None and watermark < removed):
        first = positions.text(read_from) if removed is None else f"0x{removed.hex()}, the last removed one"
        raise ConfigurationError(
            f"subscription {subscription.name}: subscription_lsn {subscription.subscription_lsn}: commands from there "
            f"on are not stored; the stored ones begin after {first}",
            remedy="load the rows again, after the publication was set up, or use sync_type: automatic",
        )
    if subscriber.watermark() == FIRST_XACT_SEQNO:
        subscriber.move_watermark(FIRST_XACT_SEQNO, watermark)


def _set_up_subscriber(
    publication: Publication,
    database: DistributionDatabase,
    record: PublicationRecord,
    subscription: Subscription,
    subscriber: Subscriber,
    tables: Tables,
    articles: Sequence[RegisteredArticle],
    say: Say,
) -> None:
    tables = tables_at(tables, subscription.name)
    set_up_subscriber_tables(subscriber, say)
    missing = partial(
        reinitialize_or_stop_missing, database, record, publication, subscription.name, subscriber, tables
    )
    _set_up_destinations(subscriber, subscription, tables, missing, say)
    for done in subscriber.set_up_procedures(articles_as_applied(database, record, subscriber, articles)):
        say(done)
    created = subscriber.set_up_watermark()
    for done in created:
        say(done)
    subscriber.set_up_streams(subscription.subscription_streams)
    known = database.subscriptions.find(record, subscription.name)
    if created and known is not None and known.status is SubscriptionStatus.ACTIVE:
        # What it has of this Publisher is not known there: it was another one's, or it is another database.
        database.subscriptions.set_status(known, SubscriptionStatus.INACTIVE)
        say(
            f"deactivated subscription {known.subscription}: its Subscriber had no watermark of this Publisher; "
            f"`tranrepl reinitialize FILE -s {known.subscription}` reinitializes it"
        )


def _set_up_destinations(
    subscriber: Subscriber, subscription: Subscription, tables: Tables, missing: Callable[[], Iterator[str]], say: Say
) -> None:
    keys = published_foreign_keys(tables) if subscription.foreign_keys else NO_FOREIGN_KEYS
    destinations = [article.destination_table for article, _ in tables]
    with subscriber.reading_together(tables):
        for done in missing():
            say(done)
        new = [name for name in destinations if not subscriber.has_destination(name)]
        for article, table in tables:
            wanted = table.without_sequences() if subscription.sequences is False else table
            for done in subscriber.set_up_destination(article, wanted, keys.columns_of(article.destination_table)):
                say(done)
        subscriber.make_durable()
    if new:
        say(f"created {named(new, 'table')} at {subscriber.where}")
    for done in [*keys.left_out, *subscriber.set_up_foreign_keys(keys.wanted, new)]:
        say(done)


def _dropped(
    topology: Topology,
    database: DistributionDatabase,
    record: PublicationRecord,
) -> list[SubscriptionRecord]:
    """Return the active subscriptions that the file does not name. Raises ConfigurationError where one seems to be
    renamed."""
    known = {it.subscription: it for it in database.subscriptions.living(record)}
    wanted = {
        it.name: topology.subscriber_connection(it.name).database or "" for it in topology.publication.subscriptions
    }
    dropped = [it for name, it in known.items() if name not in wanted]
    for name, subscriber_db in wanted.items():
        renamed = [it.subscription for it in dropped if name not in known and it.subscriber_db == subscriber_db]
        if renamed:
            raise ConfigurationError(
                f"subscription {name} is new, {renamed[0]} is no longer in the file, and the Subscriber database of "
                f"both is named {subscriber_db}: if only the name changed, everything stored would be delivered again",
                remedy=f"keep the name {renamed[0]}; or, where {name} is another Subscriber, run setup once with other "
                "subscriptions only, then add it",
            )
    return dropped
