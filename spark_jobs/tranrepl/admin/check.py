"""`tranrepl check`: everything that would keep a publication from running, found before anything is changed."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence, Set as AbstractSet
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import Enum, auto
from functools import cache, partial

from tranrepl import garbage_collection
from tranrepl.admin.articles_of_file import registered_articles, with_tables
from tranrepl.admin.early_warnings import longest_pause
from tranrepl.admin.missing_tables import delivered_articles, missing_table_warnings
from tranrepl.admin.recorded_definitions import waiting_warnings
from tranrepl.admin.sequences import sequence_warnings
from tranrepl.admin.settings_check import clashes, large_objects, not_propagated
from tranrepl.admin.unread_alterations import UnreadAlteration, missing_table, unread_alterations
from tranrepl.distributor.database import DistributionDatabase, PublicationRecord
from tranrepl.distributor.rights import right_problems
from tranrepl.distributor.stale_articles import waits_for_snapshot
from tranrepl.distributor.store_mark import store_loss_warnings, store_mark_problems
from tranrepl.distributor.tables import WITHOUT_SNAPSHOT, SubscriptionStatus
from tranrepl.error_numbers import PERMISSION_DENIED
from tranrepl.errors import (
    ConfigurationError,
    CustomProcedureError,
    JobRightError,
    MissingRightError,
    MustBeReinitializedError,
    NotReplicatedError,
    ReplicationError,
)
from tranrepl.log_reader.compared_tables import not_replicated
from tranrepl.log_reader.continuity import find_break
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.catalogue import TableDescription
from tranrepl.model.commands import Method
from tranrepl.model.names import TableName
from tranrepl.printable import counted
from tranrepl.publisher.publisher import Publisher
from tranrepl.schema.redefinition import why_unknown
from tranrepl.settings.publication import Article, Publication, Subscription, SyncType
from tranrepl.settings.registered_names import asked_edit, by_file_source, edits, with_current_names
from tranrepl.settings.registration import PublishedTables, registered_article, tables_at
from tranrepl.spark.installation import mixed_pyspark_warning, require_fitting_spark, require_java
from tranrepl.subscriber.base.subscriber import Subscriber
from tranrepl.subscriber.procedure_names import PREFIXES
from tranrepl.subscriber.replication_tables import REVISION
from tranrepl.subscriber.shared_tables import Claim, sharing_problems
from tranrepl.subscriber.snapshot import SnapshotArticle
from tranrepl.topology import Topology

_APPLICATION = "tranrepl check"
_NOT_OF_SETUP = (CustomProcedureError, JobRightError)


class CheckPurpose(Enum):
    """What the check is made for."""

    SETUP = auto()
    """The publication continues from where its log is registered."""
    REINITIALIZATION = auto()
    """The publication is reinitialized: errors that say so are no problem, and all articles get a snapshot."""
    LOG_READER_REINITIALIZATION = auto()
    """The publication is reinitialized, and the Subscribers keep their rows."""


@dataclass(slots=True)
class Checked:
    """Problems, what is allowed but may surprise, and the published tables as the Publisher describes them."""

    topology: Topology
    """The publication with an article for each table that its patterns mean and that can be published."""
    problems: list[ReplicationError] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    tables: list[tuple[Article, TableDescription]] = field(default_factory=list)
    by_pattern: AbstractSet[TableName] = frozenset()
    """Tables that only a pattern names and that are not published yet."""
    purpose: CheckPurpose = CheckPurpose.SETUP
    unread: Mapping[TableName, UnreadAlteration] = field(default_factory=dict)
    """Tables that were altered after what the log reader has read."""
    publisher_system: str | None = None
    """System identifier of the server whose log is registered; None before it is."""
    _record: PublicationRecord | None = None
    _record_is_read: bool = False

    def record(self, database: DistributionDatabase) -> PublicationRecord | None:
        """Return the registered publication, as the check found it first; None also where the schema is an earlier
        version's, which setup brings up to date."""
        if not self._record_is_read:
            self._record = database.publications.find(self.publication.publication) if database.is_current() else None
            self._record_is_read = True
        return self._record

    @property
    def blocking(self) -> list[ReplicationError]:
        """Problems that setup cannot work with."""
        return [it for it in self.problems if not isinstance(it, (*_NOT_OF_SETUP, NotReplicatedError))]

    @property
    def in_scripts(self) -> list[ReplicationError]:
        """Problems that scripts cannot be written with: somebody else, with more rights, may run them."""
        return [it for it in self.problems if not isinstance(it, MissingRightError)]

    @property
    def needing_attention(self) -> list[ReplicationError]:
        """Custom procedures, which setup leaves alone, and rights of the jobs: a delivery fails without them."""
        return [it for it in self.problems if isinstance(it, _NOT_OF_SETUP)]

    @property
    def publication(self) -> Publication:
        return self.topology.publication

    def leave_out(self, tables: Mapping[TableName, ReplicationError]) -> None:
        """Leave tables out that only a pattern names; what keeps them from being published is one warning."""
        if tables:
            articles = [it for it in self.publication.articles if it.source not in tables]
            self.topology = _with_articles(self.topology, articles)
            each = [f"{it.message} ({it.report.remedy})" for it in tables.values()]
            self.warnings.append(f"{counted(len(each), 'table')} of patterns cannot be published: {'; '.join(each)}")

    def collect(self, problems: Callable[[], Iterator[ReplicationError]]) -> None:
        """Take every problem; one that is raised ends this part of the check only, and is none where it denies what a
        missing right is reported for already."""
        found: list[ReplicationError] = []
        try:
            found.extend(problems())
        except ReplicationError as error:
            lacking = any(isinstance(it, MissingRightError) for it in found)
            found += [] if lacking and error.report.number == str(PERMISSION_DENIED) else [error]
        reinitialized = self.purpose is not CheckPurpose.SETUP
        known = {str(it) for it in self.problems}
        for it in found:
            # What several articles lack is one problem.
            if str(it) not in known and not (reinitialized and isinstance(it, MustBeReinitializedError)):
                self.problems.append(it)
                known.add(str(it))


def in_numbers(errors: int, warnings: int) -> str:
    """Return how many problems and warnings a check found: `no errors, 2 warnings`."""
    return ", ".join(
        f"{number or 'no'} {what}{'' if number == 1 else 's'}"
        for number, what in ((errors, "error"), (warnings, "warning"))
    )


def _with_articles(topology: Topology, articles: Sequence[Article]) -> Topology:
    return replace(topology, publication=topology.publication.model_copy(update={"articles": list(articles)}))


@garbage_collection.paused()
def check(topology: Topology, purpose: CheckPurpose = CheckPurpose.SETUP) -> Checked:
    """Look at all that the publication needs, and change nothing."""
    checked = Checked(topology, purpose=purpose)
    with topology.distributor() as database, ExitStack() as opened:
        registered = registered_articles(topology, database)
        checked.warnings.extend(asked_edit(*it) for it in edits(topology.publication, registered).items())
        publisher = cache(lambda: opened.enter_context(topology.publisher(_APPLICATION)))
        checked.collect(partial(_installed, require_java))
        checked.collect(partial(_installed, require_fitting_spark))
        checked.warnings.extend(filter(None, [mixed_pyspark_warning(), *topology.unused_options()]))
        checked.collect(partial(_store, checked, topology, database))
        checked.collect(lambda: _publisher(checked, database, publisher, registered))
        followed = checked.topology.with_current_names(registered)
        checked.warnings.extend([*not_propagated(followed.publication), *large_objects(checked.tables)])
        checked.collect(lambda: clashes(followed))
        checked.collect(lambda: _distributor(database))
        for subscription in followed.publication.subscriptions:
            checked.collect(partial(_subscriber, checked, followed, database, publisher, subscription.name))
    # What concerns an article at several Subscribers is one warning.
    checked.warnings[:] = dict.fromkeys(checked.warnings)
    return checked


def check_publisher(topology: Topology) -> Checked:
    """Look at the Publisher and its tables only."""
    checked = Checked(topology)

    def problems() -> Iterator[ReplicationError]:
        with topology.distributor() as database:
            registered = registered_articles(topology, database)
            yield from _position_problems(topology)
            with topology.publisher(_APPLICATION) as publisher:
                yield from _tables(checked, database, publisher, registered)

    checked.collect(problems)
    return checked


def _installed(require: Callable[[], object]) -> Iterator[ReplicationError]:
    require()
    yield from ()


def _position_problems(topology: Topology) -> Iterator[ConfigurationError]:
    """Yield an error for each `subscription_lsn` that is no position of this kind of Publisher."""
    for subscription in topology.publication.subscriptions:
        if subscription.subscription_lsn is not None:
            try:
                topology.positions.parse(subscription.subscription_lsn)
            except ValueError as error:
                yield ConfigurationError(
                    f"subscription {subscription.name}: subscription_lsn: {subscription.subscription_lsn!r}",
                    remedy=str(error),
                )


def _publisher(
    checked: Checked,
    database: DistributionDatabase,
    open_publisher: Callable[[], Publisher],
    registered: Sequence[RegisteredArticle],
) -> Iterator[ReplicationError]:
    yield from _position_problems(checked.topology)
    try:
        publisher = open_publisher()
        yield from _tables(checked, database, publisher, registered)
    except ReplicationError:
        # What its patterns mean is not known.
        checked.topology = _with_articles(
            checked.topology, [it for it in checked.publication.articles if not it.pattern]
        )
        raise
    if checked.publication.replicate_ddl:
        checked.warnings.extend(publisher.schema_changes.warnings())
    # Setup acts on all of them.
    if checked.tables and len(checked.tables) == len(checked.publication.articles):
        followed = checked.topology.with_current_names(registered).publication
        yield from publisher.right_problems(checked.tables, _read_by_snapshots(followed))


def _name_tables(
    checked: Checked, publisher: Publisher, registered: Sequence[RegisteredArticle]
) -> Iterator[ConfigurationError]:
    """Put the tables that patterns mean into the place of the patterns."""
    file = checked.publication
    named = with_tables(file, publisher, registered)
    checked.topology = replace(checked.topology, publication=named)
    sources = [it.source for it in named.articles]
    empty = [str(it.source) for it in file.articles if it.pattern is not None and not any(map(it.matches, sources))]
    if not sources:
        yield ConfigurationError(
            f"{publisher.where}: no table matches {', '.join(empty)}",
            remedy="spell the schema as the catalogue does, and create the tables first",
        )
    else:
        checked.warnings.extend(f"{publisher.where}: no table matches {it}" for it in empty)
    meant = {it.source for it in named.articles} - {it.source for it in file.articles}
    checked.by_pattern = meant - set(by_file_source(registered))


def _tables(
    checked: Checked, database: DistributionDatabase, publisher: Publisher, registered: Sequence[RegisteredArticle]
) -> Iterator[ReplicationError]:
    yield from _name_tables(checked, publisher, registered)
    publication = with_current_names(checked.publication, registered)
    kept_for = timedelta(hours=publication.distributor.max_distretention)
    checked.warnings.extend(publisher.warnings(longest_pause(publication)))
    refused = list(publisher.problems(kept_for))
    yield from refused
    if not any(isinstance(it, MustBeReinitializedError) for it in refused):
        yield from _continuity(checked, database, publisher)
    tables = publisher.describe([article.source for article in publication.articles])
    ended: dict[str | None, NotReplicatedError] = {}
    if checked.purpose is CheckPurpose.SETUP:
        with suppress(ReplicationError):
            record = checked.record(database)
            if record is not None:
                checked.unread = unread_alterations(publication, publisher, database, record, tables, registered)
                found = not_replicated(publisher, database, record, publication, registered)
                ended = {it.report.article: it for it in found}
    left_out: dict[TableName, ReplicationError] = {}
    for article in publication.articles:
        table, unread = tables.get(article.source), checked.unread.get(article.source)
        if unread is not None and unread.is_renamed:
            yield unread.refusal
            continue
        if table is None:
            ended.pop(str(article.source), None)
            yield missing_table(publication, publisher, article, registered)
            continue
        problems = list(publisher.article_problems(article, table))
        if problems and article.source in checked.by_pattern:
            left_out[article.source] = problems[0]
            continue
        yield from [unread.refusal] if problems and unread is not None and unread.gone else problems
        if not problems:
            checked.tables.append((article, table))
    checked.leave_out(left_out)
    checked.warnings.extend(publisher.value_warnings(checked.tables))
    if not checked.publication.articles:
        yield from left_out.values()
    yield from ended.values()


def _read_by_snapshots(publication: Publication) -> list[TableName]:
    """Return the published tables from which a snapshot reads; the log needs no right on a table."""
    automatic = any(it.sync_type is SyncType.AUTOMATIC for it in publication.subscriptions)
    return [it.source for it in publication.articles] if automatic else []


def _store(checked: Checked, topology: Topology, database: DistributionDatabase) -> Iterator[ReplicationError]:
    store = topology.store()
    checked.warnings.extend(store.warnings())
    yield from store.problems()
    yield from store_mark_problems(database, store)
    with suppress(ReplicationError):
        # What keeps the database or the store from answering is reported elsewhere.
        checked.warnings.extend(store_loss_warnings(database, checked.record(database), store))


def _distributor(database: DistributionDatabase) -> Iterator[ReplicationError]:
    schema = database.schema()
    with database.session() as session:
        lacking = list(right_problems(session, database.where, schema))
    yield from lacking
    if not lacking:
        database.is_current()  # raises where a newer version made it


def _continuity(checked: Checked, database: DistributionDatabase, publisher: Publisher) -> Iterator[ReplicationError]:
    """Yield an error where what is registered does not lie on the Publisher's log. A server that does not answer is
    another problem, which its own part of the check yields."""
    with suppress(ReplicationError):
        record = checked.record(database)
        if record is not None and record.registered_to is not None and record.publisher_system is not None:
            checked.publisher_system = record.publisher_system
            problem = find_break(publisher, database, record)
            yield from () if problem is None else (problem,)


def _subscriber(
    checked: Checked,
    topology: Topology,
    database: DistributionDatabase,
    open_publisher: Callable[[], Publisher],
    name: str,
) -> Iterator[ReplicationError]:
    able, settings = topology.dialect(name).capabilities, topology.publication.subscription(name)
    tables = tables_at(checked.tables, name)
    if settings.subscription_streams > 1 and not able.streams:
        yield ConfigurationError(
            f"subscription {name}: subscription_streams: {settings.subscription_streams}: {able.title} "
            "takes one connection that writes",
            remedy="allowed there: subscription_streams: 1",
        )
    with ExitStack() as stack:
        subscriber = stack.enter_context(topology.subscriber(name, checked.publisher_system, _APPLICATION))
        yield from subscriber.subscription_problems(settings)
        asking = [str(it.source) for it, _ in tables if not able.procedures and _asks_for_procedures(it)]
        if asking:
            yield ConfigurationError(
                f"subscription {name}: {able.title} takes statements only; these articles call procedures: "
                f"{', '.join(asking)}",
                remedy="write `ins_cmd: SQL`, `upd_cmd: SQL` and `del_cmd: SQL` into each of these articles (NONE is "
                "allowed too); they are for all Subscribers",
            )
        lacking = list(subscriber.right_problems(tables))
        yield from lacking
        stack.enter_context(subscriber.reading_together(tables))
        checked.warnings.extend(subscriber.warnings(tables))
        if topology.publication.replicate_ddl:
            checked.warnings.extend(subscriber.schema_change_warnings([article for article, _ in tables]))
        waiting: dict[TableName, str] = {}
        with suppress(ReplicationError):
            # Missing rights are reported together, elsewhere.
            waiting |= waiting_warnings(database, checked.record(database), subscriber)
        waiting |= {source: it.warning for source, it in checked.unread.items()}
        checked.warnings.extend(waiting[it.source] for it, _ in tables if it.source in waiting)
        claims: list[Claim] = []
        delivered, missing = _delivered(checked, topology.publication, database, subscriber, name)
        checked.warnings.extend(missing.values())
        compared = [it for it in tables if it[0].source not in waiting]
        yield from _articles(checked, subscriber, compared, delivered)
        if not lacking:
            made_by = subscriber.tables_version()
            if made_by is not None:
                made_by.require_not_newer(subscriber.where)
            are_current = made_by is not None and made_by.revision == REVISION
            checked.warnings.extend(
                sequence_warnings(tables, open_publisher, subscriber, settings, tables_are_current=are_current)
            )
            claims = subscriber.claims() if are_current else []
    copied = _copied(checked, topology, database, name, missing)
    yield from sharing_problems(f"Subscriber {name}", tables, copied, claims, schemas=able.schemas)
    yield from _in_the_way(checked, topology, name, copied)


def _asks_for_procedures(article: Article) -> bool:
    return any(article.propagation(it).method is Method.PROCEDURE for it in PREFIXES)


def _articles(
    checked: Checked, subscriber: Subscriber, tables: PublishedTables, delivered: Mapping[TableName, RegisteredArticle]
) -> Iterator[ReplicationError]:
    """Look at the articles' tables and procedures at a Subscriber."""
    for article, table in tables:
        problems = list(subscriber.article_problems(article, table, delivered.get(article.source)))
        yield from problems
        if not problems:
            checked.warnings.extend(subscriber.article_warnings(article, table))
            yield from subscriber.custom_problems(registered_article(article, table), table)


def _delivered(
    checked: Checked, publication: Publication, database: DistributionDatabase, subscriber: Subscriber, name: str
) -> tuple[Mapping[TableName, RegisteredArticle], Mapping[TableName, str]]:
    """Return the articles whose rows the Subscriber is to have, and what to say of those whose tables it has lost."""
    with suppress(ReplicationError):
        record = checked.record(database) if checked.purpose is CheckPurpose.SETUP else None
        delivered = delivered_articles(database, record, name)
        tables = tables_at(checked.tables, name)
        return delivered, missing_table_warnings(publication, database, record, name, subscriber, tables)
    return {}, {}


def _copied(
    checked: Checked, topology: Topology, database: DistributionDatabase, name: str, missing: Container[TableName]
) -> list[SnapshotArticle]:
    """Return the articles of which a snapshot will be taken."""
    wanted = _to_be_initialized(
        checked, topology.publication, database, topology.publication.subscription(name), missing
    )
    return [
        SnapshotArticle(registered_article(article, table), article, table, large=False)
        for article, table in tables_at(checked.tables, name)
        if article.source in wanted
    ]


def _in_the_way(
    checked: Checked, topology: Topology, name: str, copied: Sequence[SnapshotArticle]
) -> Iterator[ReplicationError]:
    """Yield an error for each table with rows at the Subscriber that a snapshot would meet and must not touch."""
    if copied:
        key = topology.subscription_key(name, checked.publisher_system)
        connection = topology.subscriber_connection(name)
        with topology.dialect(name).snapshot(connection, key, _APPLICATION) as target:
            yield from target.problems(copied)


def _to_be_initialized(
    checked: Checked,
    publication: Publication,
    database: DistributionDatabase,
    subscription: Subscription,
    missing: Container[TableName],
) -> frozenset[TableName]:
    """Return the articles of which a snapshot will be taken, by source, as far as the distribution database can say."""
    keeps_rows = checked.purpose is CheckPurpose.LOG_READER_REINITIALIZATION
    if keeps_rows or subscription.sync_type is not SyncType.AUTOMATIC:
        return frozenset()
    if checked.purpose is CheckPurpose.REINITIALIZATION:
        return frozenset(it.source for it in publication.articles)
    with suppress(ReplicationError):
        return _waiting(checked, publication, database, subscription, missing)
    return frozenset()


def _waiting(
    checked: Checked,
    publication: Publication,
    database: DistributionDatabase,
    subscription: Subscription,
    missing: Container[TableName],
) -> frozenset[TableName]:
    everything = frozenset(it.source for it in publication.articles)
    if database.is_earlier():
        # What waits there is known when setup has migrated it; a snapshot looks again.
        return frozenset()
    record = checked.record(database)
    found = database.subscriptions.find(record, subscription.name) if record else None
    if record is None or found is None or found.status in WITHOUT_SNAPSHOT:
        return everything
    if found.status is SubscriptionStatus.INACTIVE:
        return frozenset()
    known = {it.source: it for it in database.articles.registered(record, subscription.name)}
    states = database.snapshots.article_states(found).items()
    waiting = {source for source, state in states if state.status in WITHOUT_SNAPSHOT}
    unknown = {
        article.source
        for article, table in tables_at(checked.tables, subscription.name)
        if article.source in known
        and article.source not in checked.unread
        and (
            article.source in missing
            or why_unknown(
                before := known[article.source],
                registered_article(article, table, before),
                follows=publication.replicate_ddl,
            )
        )
        and waits_for_snapshot(publication, article.source, subscription)
    }
    stopped = {
        it
        for it in database.articles.ended(publication, record)
        if not waits_for_snapshot(publication, it, subscription)
    }
    new = everything - known.keys() - stopped
    return frozenset(it for it in everything if it in new or str(it) in waiting or it in unknown)
