"""Definitions of articles that a snapshot is for: those of the Publisher's tables, of what is registered, and of the
Subscriber's tables must be one before rows are copied."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa

from tranrepl.distribution.opening import OpenDistribution
from tranrepl.errors import ConfigurationError, ErrorDetails, ReplicationError
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.catalogue import TableDescription
from tranrepl.model.command_rows import ROW_LAYOUT
from tranrepl.model.commands import FIRST_XACT_SEQNO, Operation
from tranrepl.model.schema_change import SchemaChange, chain_of_changes
from tranrepl.model.table_definition import Generation, TableDefinition, UniqueConstraint
from tranrepl.publisher.publisher import Publisher
from tranrepl.publisher.snapshot import UnregisteredError
from tranrepl.settings.publication import Partitions
from tranrepl.subscriber.applier_options import ApplierOptions
from tranrepl.subscriber.batching.steps import SchemaStep
from tranrepl.subscriber.registry import dialect_of
from tranrepl.subscriber.snapshot import SnapshotArticle
from tranrepl.subscriber.subscription import SubscriptionPosition


def require_in_force(opened: OpenDistribution, articles: Iterable[RegisteredArticle]) -> None:
    """Raise TransientError where the log reader has not come to a definition that setup wrote into the log, or has come
    to it since the articles were looked up."""
    # Pending definitions first: the log reader forgets them in the transaction that registers them.
    pending = opened.database.pending_definitions.of(opened.record)
    in_force = set(opened.database.articles.ids_in_force(opened.record))
    tables = {of.source_object_id for it in pending for of in it.articles}
    for it in articles:
        source = str(it.source)
        if it.source_object_id in tables:
            raise UnregisteredError(f"article {source}: its definition in the file is not registered yet", source)
        if it.article_id not in in_force:
            raise UnregisteredError(f"article {source}: another definition was registered meanwhile", source)


def require_registered(publisher: Publisher, articles: Iterable[SnapshotArticle]) -> None:
    """Raise TransientError where a table has columns that are to travel, partitions that Subscribers are to have, or
    labels of its columns' types that are not registered: the log reader has not read yet that they were added or
    renamed, and the commands after the snapshot would be of that definition."""
    followed = list(articles)
    tables = publisher.describe([it.article.source for it in followed])
    for it in followed:
        table = tables.get(it.article.source)
        if table is not None:
            _require_columns(publisher, it, table)
            _require_partitions(publisher, it, table)
            _require_definition(publisher, it, table)
    require_labels(publisher, [it.article for it in followed])


def require_labels(publisher: Publisher, articles: Iterable[RegisteredArticle]) -> None:
    """Raise TransientError where the labels of a column's type are others than those that are registered: rows would
    have labels that the Subscriber's types only get by a schema change."""
    if publisher.schema_changes.why_not_captured() is not None:
        return
    followed = [it for it in articles if it.source_definition.has_labels]
    tables = publisher.describe([it.source for it in followed]) if followed else {}
    for it in followed:
        if it.source in tables:
            _require_labels(publisher, it, tables[it.source])


def _require_columns(publisher: Publisher, it: SnapshotArticle, table: TableDescription) -> None:
    known = {column.ordinal for column in it.article.columns}
    added = [column.name for column in table.publishable() if column.ordinal not in known]
    if added and it.settings.columns is None:
        raise _not_registered(publisher, it.name, f"column {', '.join(added)}")


def _require_definition(publisher: Publisher, it: SnapshotArticle, table: TableDescription) -> None:
    """Raise TransientError where the log reader will register another definition for what the table is already. Its
    change comes before the snapshot, and so is not delivered: none that follows would begin with the table's."""
    known, now = it.article.source_definition, table.definition
    if known is None or now is None or publisher.schema_changes.why_not_captured() is not None:
        return
    columns = known.by_ordinal
    nullable = [
        of.name for of in now.columns if of.ordinal in columns and columns[of.ordinal].not_null and not of.not_null
    ]
    if _unnamed(now) - _unnamed(known):
        raise _not_registered(publisher, it.name, "a unique index")
    if nullable:
        raise _not_registered(publisher, it.name, f"that column {', '.join(nullable)} takes NULL")
    if _generated(now) != _generated(known):
        raise _not_registered(publisher, it.name, "a generated column")
    if _partitions(now) != _partitions(known):
        raise _not_registered(publisher, it.name, "a partition")


def _unnamed(table: TableDefinition) -> set[UniqueConstraint]:
    return {it.model_copy(update={"name": ""}) for it in table.unique}


def _generated(table: TableDefinition) -> set[tuple[int, str]]:
    return {(it.ordinal, it.name) for it in table.columns if it.generation is not Generation.NONE}


def _partitions(table: TableDefinition) -> set[tuple[int, str]]:
    partitions = () if table.division is None else table.division.partitions
    return {(it.object_id, str(it.table)) for it in partitions}


def _require_partitions(publisher: Publisher, it: SnapshotArticle, table: TableDescription) -> None:
    if it.settings.partitions is Partitions.NONE:
        return
    known, now = it.article.source_definition.division, None if table.definition is None else table.definition.division
    if known is None or now is None:
        return
    there = {(partition.object_id, partition.attached) for partition in known.partitions}
    added = [str(of.table) for of in now.partitions if (of.object_id, of.attached) not in there]
    if added:
        raise _not_registered(publisher, it.name, f"partition {', '.join(added)}")


def _require_labels(publisher: Publisher, article: RegisteredArticle, table: TableDescription) -> None:
    known, now = article.source_definition, table.definition
    if known is None or now is None:
        return
    registered = {of.oid: of.labels for column in known.columns for of in column.types or ()}
    renamed = sorted(
        {
            of.name
            for column in now.columns
            for of in column.types or ()
            if of.labels is not None and registered.get(of.oid, of.labels) != of.labels
        }
    )
    if renamed:
        raise _not_registered(publisher, str(article.source), f"a label of type {', '.join(renamed)}")
    lists = {it.ordinal: it.labels for it in known.columns if it.labels is not None}
    changed = [it.name for it in now.columns if lists.get(it.ordinal, it.labels) != it.labels]
    if changed:
        raise _not_registered(publisher, str(article.source), f"a label of column {', '.join(changed)}")


def _not_registered(publisher: Publisher, article: str, what: str) -> UnregisteredError:
    return UnregisteredError(f"article {article}: {publisher.where}: {what} is not registered yet", article)


@dataclass(frozen=True, slots=True)
class TableBehind:
    """An article whose table at the Subscriber has an earlier definition."""

    article: RegisteredArticle
    changes: tuple[SchemaChange, ...]
    """Those that lead from there to the article's."""
    definitions: tuple[RegisteredArticle, ...]
    """Those that they lead through: the one that the table has is the first."""

    @property
    def applied(self) -> RegisteredArticle:
        return self.definitions[0]


def tables_behind(opened: OpenDistribution, articles: Sequence[RegisteredArticle]) -> list[TableBehind]:
    """Return those of the articles whose tables are to be altered. Raises ConfigurationError where the changes are not
    stored any more."""
    recorded = opened.subscriber.definitions()
    by_id = opened.database.articles.by_id(opened.record, opened.subscription.subscription)
    # By the table, which may have another name by now; else by its name.
    tables = {by_id[number].source_object_id: by_id[number] for number in recorded.values() if number in by_id}
    named = {name: by_id[number] for name, number in recorded.items() if number in by_id}
    applied = {it.article_id: tables.get(it.source_object_id, named.get(str(it.source), it)) for it in articles}
    behind = [it for it in articles if applied[it.article_id].article_id != it.article_id]
    if not behind:
        return []
    stored = [it.change for it in opened.database.schema_changes.after(opened.record, FIRST_XACT_SEQNO)]
    return [_behind(opened, it, applied[it.article_id], stored, by_id) for it in behind]


def _behind(
    opened: OpenDistribution,
    article: RegisteredArticle,
    applied: RegisteredArticle,
    stored: Sequence[SchemaChange],
    by_id: Mapping[int, RegisteredArticle],
) -> TableBehind:
    changes = chain_of_changes(stored, applied.article_id, article.article_id)
    if changes is None:
        raise ConfigurationError(
            f"article {article.source}: {opened.subscriber.where}: its table has an earlier definition, and the "
            "schema changes since are not stored any more",
            remedy=f"alter table {article.destination} there as the Publisher's is, or drop it; then run "
            "`tranrepl setup FILE`",
            article=str(article.source),
        )
    passed = [by_id[it.new_article_id] for it in changes if it.new_article_id is not None]
    return TableBehind(article, tuple(changes), (applied, *passed))


def bring_to_definitions(
    opened: OpenDistribution,
    behind: Sequence[TableBehind],
    position: SubscriptionPosition,
    *,
    shared_tables: frozenset[str] = frozenset(),
) -> list[str]:
    """Alter tables that have earlier definitions, by the schema changes that lead to those in force; return what
    was done. Nothing of these articles is delivered by then; their rows are copied afterwards, or stay. Rows of others
    stay in the `shared_tables`, by article.

    Raises FencedError where the subscription is not at `position` any more.
    """
    if not behind:
        return []
    by_id = opened.database.articles.by_id(opened.record, opened.subscription.subscription)
    done: list[str] = []
    dialect = dialect_of(opened.connection)
    options = ApplierOptions(rows_are_copied=True, shared_tables=shared_tables)
    with dialect.applier(opened.connection, opened.key, by_id, options) as applier:
        for it in behind:
            # A transaction for each: nothing is to be undone because another article's table cannot be altered.
            # Streams that have gone on from there are of no account: the snapshot is of what they have applied, too.
            applier.begin(position.watermark, finishing=position.unfinished)
            try:
                applier.apply([*_steps(it, position.watermark)])
            except ReplicationError as error:
                # The transaction that the steps carry is not the change's.
                error.add(ErrorDetails(xact_seqno=None, command_id=None))
                raise
            applier.commit(position.watermark)
            done += applier.take_schema_changes()
    return done


def _steps(behind: TableBehind, watermark: bytes) -> Iterator[SchemaStep]:
    """Yield the steps from one definition to another. They carry the watermark as their transaction: what was applied
    before them is all that the watermark says."""
    for change, (old, new) in zip(behind.changes, pairwise(behind.definitions), strict=True):
        row = {
            "xact_seqno": watermark,
            "command_id": 0,
            "article_id": change.article_id,
            "operation": int(Operation.SCHEMA),
            "after": change.model_dump_json(),
        }
        yield SchemaStep(pa.Table.from_pylist([row], ROW_LAYOUT), change, old, new)
