"""Articles that the file or the Publisher's table defines otherwise than before, as setup finds them: what changes, and
where each subscription passes from the one definition to the other.

A subscription that has commands of the old definition still to receive passes with its delivery, behind the last of
them. One that has not, or gets a snapshot of the article, passes here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tranrepl.admin.recorded_definitions import record_definitions
from tranrepl.distribution.opening import open_distribution
from tranrepl.distributor.changed_definitions import ChangedDefinition, StoredDefinitions, store_definitions
from tranrepl.distributor.database import ArticleState, DistributionDatabase, PublicationRecord, UnknownRows
from tranrepl.distributor.stale_articles import why_unknown
from tranrepl.distributor.tables import SubscriptionStatus
from tranrepl.errors import ConfigurationError, ErrorDetails
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.commands import FIRST_XACT_SEQNO
from tranrepl.model.names import TableName
from tranrepl.model.schema_change import SETUP_TAG, ColumnAction
from tranrepl.publisher.publisher import SchemaChanges
from tranrepl.schema.columns import ColumnDifference
from tranrepl.schema.labels import LabelDifference
from tranrepl.schema.messages import AlteredTable, Subject
from tranrepl.settings.publication import Publication, Subscription
from tranrepl.snapshot.definitions import bring_to_definitions, tables_behind
from tranrepl.subscriber.base.subscriber import Subscriber
from tranrepl.topology import Topology

_WAITING = (SubscriptionStatus.SUBSCRIBED, SubscriptionStatus.INITIATED)
_APPLICATION = "tranrepl setup"


def changed_definitions(
    known: Mapping[TableName, RegisteredArticle], wanted: Sequence[RegisteredArticle]
) -> list[ChangedDefinition]:
    """Return what changes of the articles that are registered."""
    both = [(known[it.source], it) for it in wanted if it.source in known]
    return [ChangedDefinition(old, new) for old, new in both if not new.same_definition(old)]


@dataclass(frozen=True, slots=True)
class ChangedArticles:
    """The articles that one setup changes."""

    topology: Topology
    database: DistributionDatabase
    record: PublicationRecord
    changed: Sequence[ChangedDefinition]
    new_subscriptions: frozenset[str]
    """Subscriptions that begin with this setup, at the new definitions."""

    def refuse_renamed_columns(self, loaded_anew: Mapping[str, frozenset[TableName]]) -> None:
        """Raise ConfigurationError where a column has another name in commands that are still to be delivered than in
        those that follow: the table can have one of them. `loaded_anew` are, by subscription, the articles that get a
        snapshot there."""
        renamed = [it for it in self.changed if _renamed_columns(it)]
        for subscription in self.topology.publication.subscriptions if renamed else ():
            anew = loaded_anew.get(subscription.name, frozenset())
            for it in self._behind(subscription, [it for it in renamed if it.old.source not in anew]):
                columns = ", ".join(f"{before} to {now}" for before, now in _renamed_columns(it))
                raise ConfigurationError(
                    f"article {it.old.source}: column {columns} was renamed, but subscription {subscription.name} has "
                    "commands not delivered yet, which were made before",
                    remedy="give the Subscriber's table the old name again, and deliver with `tranrepl run FILE`, even "
                    "where its log reader fails; then rename it, and run `tranrepl setup FILE`",
                    article=str(it.old.source),
                )

    @property
    def sources(self) -> frozenset[TableName]:
        return frozenset(it.old.source for it in self.changed)

    def without(self, articles: Sequence[RegisteredArticle]) -> list[RegisteredArticle]:
        """Return those of the articles that stay as they are registered, or are new."""
        return [it for it in articles if it.source not in self.sources]

    def store(self, wanted: Sequence[RegisteredArticle]) -> StoredDefinitions | None:
        """Let the wanted definitions be in force behind all commands that are stored; None where none changes."""
        if not self.changed:
            return None
        by_source = {it.source: it for it in wanted}
        changed = [replace(it, new=by_source[it.new.source]) for it in self.changed]
        return store_definitions(self.database, self.record.publication, changed, self._why_needed)

    def pass_at(self, subscriber: Subscriber, subscription: Subscription, stored: StoredDefinitions) -> Iterator[str]:
        """Let a subscription pass to the new definitions where no command of the old ones is to come; yield what was
        done, and what waits for it."""
        behind = {it.old.source for it in self._behind(subscription, stored.changed, stored.xact_seqno)}
        standing = self._standing(subscriber)
        nothing_known = not subscriber.definitions()
        new = subscription.name in self.new_subscriptions
        followed = [] if new else [it for it in stored.changed if it.alters_tables]
        now = [
            it
            for it in stored.changed
            if it.old.source not in behind
            and it not in followed
            and standing.get(it.old.source, it.old.article_id) == it.old.article_id
        ]
        yield from subscriber.set_up_procedures([it.new for it in now])
        subscriber.record_definitions([it.new for it in now])
        if nothing_known:
            # Else the next record would be of the new ones.
            later = [it for it in stored.changed if it.old.source in behind or it in followed]
            subscriber.record_definitions([it.old for it in later])
        for it in stored.changed:
            if it.old.source in behind:
                yield (
                    f"article {it.old.source} of subscription {subscription.name}: its new definition holds there when "
                    "what was stored before is delivered"
                )
            elif it in followed:
                yield (
                    f"article {it.old.source} of subscription {subscription.name}: its table is altered as the "
                    "Publisher's was, by the next snapshot or delivery"
                )

    def _standing(self, subscriber: Subscriber) -> dict[TableName, int]:
        """Return the recorded definition of each changed article's table, by the article's source."""
        by_id = self.database.articles.by_id(self.record)
        recorded = [by_id[it] for it in subscriber.definitions().values() if it in by_id]
        tables = {it.source_object_id: it.article_id for it in recorded}
        return {
            it.old.source: tables[it.old.source_object_id] for it in self.changed if it.old.source_object_id in tables
        }

    def _behind(
        self, subscription: Subscription, changed: Sequence[ChangedDefinition], before: bytes | None = None
    ) -> Sequence[ChangedDefinition]:
        """Return those of the changed articles of whose old definition the subscription may have commands to receive:
        such of transactions before `before`, if it is given."""
        found = self.database.subscriptions.find(self.record, subscription.name)
        new = subscription.name in self.new_subscriptions
        if found is None or new or found.status is not SubscriptionStatus.ACTIVE:
            return []
        states = self.database.snapshots.article_states(found)
        delivered = [it for it in changed if not _waits(states, it.old.source)]
        if not delivered:
            return []
        with self.topology.subscriber(subscription.name, self.record.publisher_system, _APPLICATION) as subscriber:
            watermark = subscriber.find_watermark()
        batches = [] if watermark is None else self.database.batches.after(self.record, watermark)
        ends = [it.last_xact_seqno for it in batches if before is None or it.first_xact_seqno < before]
        last = max(ends, default=FIRST_XACT_SEQNO)
        return [it for it in delivered if last > _began(states, it.old.source)]

    def pass_unfinished(self, subscriber: Subscriber, subscription: Subscription) -> Iterator[str]:
        """Let a subscription pass to definitions that an earlier setup stored before it was killed, and that no
        delivery will apply: a snapshot has begun further on in the log. Yield what was done."""
        found = self.database.subscriptions.find(self.record, subscription.name)
        watermark = subscriber.find_watermark()
        if found is None or watermark is None:
            return
        states = self.database.snapshots.article_states(found)
        by_id = self.database.articles.by_id(self.record)
        standing = set(subscriber.definitions().values())
        passed: dict[int, RegisteredArticle] = {}
        altered: dict[int, RegisteredArticle] = {}
        for stored in self.database.schema_changes.after(self.record, FIRST_XACT_SEQNO):
            change = stored.change
            if change.tag != SETUP_TAG or change.new_article_id is None or change.article_id not in standing:
                continue
            if stored.xact_seqno > max(watermark, _began(states, change.source)):
                continue
            alters = change.changes_destination or change.rows_unknown is not None
            if alters and (found.status is not SubscriptionStatus.ACTIVE or _waits(states, change.source)):
                # The snapshot alters the table.
                continue
            standing.add(change.new_article_id)
            new = by_id[change.new_article_id]
            if alters or new.source_object_id in altered:
                passed.pop(new.source_object_id, None)
                altered[new.source_object_id] = new
            else:
                passed[new.source_object_id] = new
        yield from subscriber.set_up_procedures(list(passed.values()))
        subscriber.record_definitions(list(passed.values()))
        yield from self._alter(subscription, list(altered.values()))

    def _alter(self, subscription: Subscription, articles: Sequence[RegisteredArticle]) -> Iterator[str]:
        """Alter tables whose rows stay, to these definitions; yield what was done."""
        if not articles:
            return
        try:
            with open_distribution(self.topology, subscription.name) as opened:
                position, behind = opened.subscriber.position(), tables_behind(opened, articles)
                yield from bring_to_definitions(opened, behind, position, rows_are_copied=False)
        except ConfigurationError as error:
            error.add(ErrorDetails(remedy=f"{error.report.remedy}; then `tranrepl setup FILE`"))
            raise

    def _why_needed(self) -> str | None:
        for subscription in self.topology.publication.subscriptions:
            if self._behind(subscription, self.changed):
                return f"subscription {subscription.name} has commands not delivered yet"
        return None


def changed_articles(
    topology: Topology,
    database: DistributionDatabase,
    record: PublicationRecord,
    changed: Sequence[ChangedDefinition],
) -> ChangedArticles:
    """Return what a setup changes that has set up no subscription yet."""
    names = {it.name for it in topology.publication.subscriptions}
    new = frozenset(it for it in names if database.subscriptions.find(record, it) is None)
    return ChangedArticles(topology, database, record, changed, new)


def _waits(states: Mapping[str, ArticleState], article: TableName) -> bool:
    """Return whether an article waits for a snapshot."""
    state = states.get(str(article))
    return state is not None and state.status in _WAITING


def _began(states: Mapping[str, ArticleState], article: TableName) -> bytes:
    """Return the last transaction that an article's snapshot has in it."""
    state = states.get(str(article))
    return FIRST_XACT_SEQNO if state is None or state.xact_seqno is None else state.xact_seqno


def _renamed_columns(changed: ChangedDefinition) -> list[tuple[str, str]]:
    """Return the columns that both definitions have under different names, with both."""
    names = {it.ordinal: it.name for it in changed.new.columns}
    if changed.old.source_object_id != changed.new.source_object_id:
        return []
    found = [(it.name, names.get(it.ordinal, it.name)) for it in changed.old.columns]
    return [(before, now) for before, now in found if before != now]


def pass_to_definitions(
    articles: ChangedArticles, subscription: Subscription, stored: StoredDefinitions | None
) -> Iterator[str]:
    """Let a subscription pass to changed definitions as it can, and record which ones its tables stand at; yield what
    was done."""
    database, record = articles.database, articles.record
    with articles.topology.subscriber(subscription.name, record.publisher_system, _APPLICATION) as subscriber:
        if stored is not None:
            yield from articles.pass_at(subscriber, subscription, stored)
        yield from articles.pass_unfinished(subscriber, subscription)
        record_definitions(database, record, subscriber)


_NEW_KEY = UnknownRows("its primary key is another one")
_NOT_COPIED = "its rows are to be copied"


def unknown_rows(
    publication: Publication, known: RegisteredArticle | None, article: RegisteredArticle
) -> UnknownRows | None:
    """Return why it is open which rows the Subscribers have of an article that was registered as `known`, and that
    setup registers otherwise; None where it is not."""
    if known is None:
        return None
    found = why_unknown(article, known)
    if found is None and known.definition is not None and article.definition is not None:
        renamed = LabelDifference(known, known.definition, article.definition).why_unknown()
        found = None if renamed is None else UnknownRows(renamed)
    return _NEW_KEY if found is None and publication.replicate_ddl and _has_new_key(article, known) else found


def with_alterations(
    publication: Publication,
    changed: Iterable[ChangedDefinition],
    unknown: Mapping[TableName, UnknownRows],
    waiting: Mapping[str, str],
    names: SchemaChanges,
) -> list[ChangedDefinition]:
    """Return the changed articles with what is done to the Subscribers' tables: nothing, where the publication
    replicates no schema changes.

    `unknown` are those whose rows become unknown, `waiting` (by source) why others are to be copied or compared.
    """
    if not publication.replicate_ddl:
        return list(changed)
    return [_with_alterations(it, unknown, waiting, names) for it in changed]


def without_rows(
    database: DistributionDatabase, record: PublicationRecord, known: Iterable[TableName]
) -> dict[str, str]:
    """Return by source the known articles whose rows some subscription waits for, or does not know, with the reason."""
    found: dict[str, str] = {}
    for subscription in database.subscriptions.living(record):
        if subscription.status is not SubscriptionStatus.ACTIVE:
            found |= {str(it): _NOT_COPIED for it in known}
        states = database.snapshots.article_states(subscription).items()
        inactive = [(source, it) for source, it in states if it.status is not SubscriptionStatus.ACTIVE]
        found |= {source: it.reason or _NOT_COPIED for source, it in inactive}
    return found


def _with_alterations(
    it: ChangedDefinition,
    unknown: Mapping[TableName, UnknownRows],
    waiting: Mapping[str, str],
    names: SchemaChanges,
) -> ChangedDefinition:
    old, new = it.old, it.new
    if old.definition is None or new.definition is None or old.destination != new.destination:
        return it
    if old.source_object_id != new.source_object_id:
        return it
    numbers = {it.collation_oid for it in new.definition.columns if it.collation_oid is not None}
    collations = {number: name for number in numbers if (name := names.collation(number)) is not None}
    found = AlteredTable(new.source_object_id, SETUP_TAG, new.definition, Subject.OTHER, collations=collations)
    columns = ColumnDifference(old, old.definition, new.definition, found).changes()
    if not _has_new_key(new, old) and not any(part.action is ColumnAction.RETYPE for part in columns):
        return it
    reason = unknown[old.source].reason if old.source in unknown else waiting.get(str(old.source))
    return replace(it, columns=columns, rows_unknown=reason)


def _has_new_key(article: RegisteredArticle, known: RegisteredArticle) -> bool:
    return known.source_object_id == article.source_object_id and _key(article) != _key(known)


def _key(article: RegisteredArticle) -> list[int]:
    return [article.columns[at].ordinal for at in article.key_positions]
