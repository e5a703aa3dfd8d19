"""Published tables as the log defines them: by Relation messages, and by messages of the event triggers.

A table's articles are those of the latest schema change before a message. Several messages of one table without a row
of it between them are one schema change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tranrepl.connections import Connection
from tranrepl.errors import ConfigurationError
from tranrepl.model.arrays import Bytes, Ints
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.schema_change import SchemaChange
from tranrepl.model.table_definition import TableDefinition
from tranrepl.postgres.session import connect
from tranrepl.publisher.changes import Buffer
from tranrepl.publisher.log_range import NeedsArticleId, SchemaReading
from tranrepl.publisher.messages import Message, MessageKind, due_definitions
from tranrepl.publisher.postgres.dialect import PostgresDialect
from tranrepl.publisher.postgres.lsn import lsn_of, position_of
from tranrepl.publisher.postgres.partition_changes import PublishedRelations, emptied_in_part, emptied_mismatch
from tranrepl.publisher.postgres.relations import Layout, Relation, RelationMismatch, fit, read_relation
from tranrepl.publisher.postgres.schema_messages import read_collation, read_schema_message
from tranrepl.schema.difference import NO_KEY, Change, Stop, difference, notes_of_what_stays
from tranrepl.schema.messages import (
    Altered,
    AlteredPartitions,
    AlteredTable,
    Rewrite,
    SchemaMessage,
    UnknownAlteration,
    UnpublishedTable,
)

_FOREVER = 1 << 62
_NOWHERE = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class SchemaMessages:
    """What is needed to read messages of schema changes, and of setup."""

    publication: str
    connection: Connection
    """The Publisher, which is asked for the names of collations."""
    reading: SchemaReading

    def collations(self, before: TableDefinition, now: TableDefinition) -> dict[int, str]:
        """Return the names of the collations of columns that are new or altered, where they are not their types'."""
        altered = [it for it in now.columns if before.by_ordinal.get(it.ordinal) != it]
        numbers = {it.collation_oid for it in altered if it.collation_oid is not None}
        if not numbers:
            return {}
        with connect(self.connection, "tranrepl log reader", autocommit=True) as session:
            names = {number: read_collation(session, number) for number in numbers}
        return {number: name for number, name in names.items() if name is not None}


class SchemaStop(Exception):  # noqa: N818 — it is no error of its own, it carries one
    """A schema change that is not followed: reading ends before its transaction."""

    def __init__(self, error: ConfigurationError) -> None:
        super().__init__(error.message)
        self.error = error


class NeedsDefinitions(NeedsArticleId):
    """Setup's message is next: what follows is read by other definitions."""

    def __init__(self, digest: str) -> None:
        super().__init__(digest)
        self.digest = digest


@dataclass(frozen=True, slots=True)
class FoundChange:
    """A schema change, at the last message of it."""

    index: int
    change: SchemaChange


@dataclass(frozen=True, slots=True)
class FoundDefinition:
    """An article's definition from a message on, and its notices; None where the article ends."""

    index: int
    article: RegisteredArticle | None
    notices: list[str]


@dataclass(slots=True)
class BatchTables:
    """What one batch of messages says of tables; it ends at the first problem."""

    end: int
    layouts: list[tuple[int, Layout]]
    """With the message from which each holds."""
    changes: list[FoundChange] = field(default_factory=list)
    definitions: list[FoundDefinition] = field(default_factory=list)
    truncated: list[tuple[int, int]] = field(default_factory=list)
    """Message and table of each one truncated as a whole; of a partitioned table, one of its partitions."""
    problem: RelationMismatch | SchemaStop | NeedsArticleId | None = None

    def cut(self, end: int) -> None:
        """Leave off what is said from message `end` on."""
        self.end = end
        self.changes = [it for it in self.changes if it.index < end]
        self.definitions = [it for it in self.definitions if it.index < end]
        self.truncated = [it for it in self.truncated if it[0] < end]


@dataclass(slots=True)
class _Latest:
    """The latest message of a table in a batch."""

    index: int
    commit_lsn: int
    rewrite: Rewrite
    tag: str
    ends_command: bool
    change: int | None
    """Which of the batch's changes it is; None where it is none."""


@dataclass(slots=True)
class LoggedTables:
    """State between batches: the articles in force, their relations and layouts, and which numbers are used."""

    articles: PublishedRelations
    schema: SchemaMessages | None = None
    _relations: dict[int, Relation] = field(default_factory=dict)
    _layouts: dict[int, Layout] = field(default_factory=dict)
    _used: int = 0
    _begun: bool = False

    def read(
        self, buffer: Buffer, kinds: Bytes, starts: Ints, end: int, open_lsn: int, messages: Sequence[Message]
    ) -> BatchTables:
        """Read what is said of tables before message `end`, also by these messages."""
        found = {it.index: it for it in messages if self._reads(it.kind)}
        begins_with = () if self.schema is None or self._begun else self.schema.reading.begins_with
        self._begun = True
        return _BatchReading(self, buffer, kinds, starts, open_lsn, found).read(end, begins_with)

    def _reads(self, kind: MessageKind) -> bool:
        if self.schema is None:
            return False
        return kind is MessageKind.DEFINITION or (kind is MessageKind.SCHEMA and self.schema.reading.follows)

    def next_article_id(self) -> int:
        """Take a number for a new definition. Raises NeedsArticleId."""
        if self.schema is None or self._used == len(self.schema.reading.article_ids):
            raise NeedsArticleId
        self._used += 1
        return self.schema.reading.article_ids[self._used - 1]


@dataclass(slots=True)
class _BatchReading:
    tables: LoggedTables
    buffer: Buffer
    kinds: Bytes
    starts: Ints
    open_lsn: int
    messages: Mapping[int, Message]
    """Messages of schema changes and of setup, by their indexes."""
    batch: BatchTables = field(init=False)
    _latest: dict[int, _Latest] = field(default_factory=dict)

    def read(self, end: int, begins_with: Sequence[SchemaChange]) -> BatchTables:
        self.batch = BatchTables(end, [(-1, layout) for layout in self.tables._layouts.values()])
        self.batch.changes += [FoundChange(0, it) for it in begins_with]
        relations = np.flatnonzero(np.isin(self.kinds[:end], np.frombuffer(b"RT", dtype=np.uint8)))
        for index in sorted([*relations.tolist(), *self.messages]):
            self._read_one(index)
            if self.batch.problem is not None:
                return self.batch
        self._refuse_without_key()
        return self.batch

    def _read_one(self, index: int) -> None:
        try:
            match chr(self.kinds[index]):
                case "R":
                    self._relation(index)
                case "T":
                    self._truncate(index)
                case _ if self.messages[index].kind is MessageKind.DEFINITION:
                    self._definitions(index)
                case _:
                    self._message(index)
        except (SchemaStop, NeedsArticleId) as stop:
            self.batch.end, self.batch.problem = index, stop

    def _relation(self, index: int) -> None:
        relation, commit_lsn = read_relation(self._bytes(index)), self._commit_lsn(index)
        article = self.tables.articles.article(relation.object_id)
        if article is None:
            layout: Layout | RelationMismatch | None = self.tables.articles.lost_partition(relation, commit_lsn)
        else:
            self.tables._relations[relation.object_id] = relation
            layout = fit(article, relation, commit_lsn)
        if isinstance(layout, RelationMismatch):
            self.batch.end, self.batch.problem = index, layout
        elif layout is not None:
            self._use(index, layout)

    def _truncate(self, index: int) -> None:
        count = int(self.buffer.uint32(self.starts[index : index + 1] + 1)[0])
        named = self.buffer.uint32(self.starts[index] + 6 + 4 * np.arange(count)).tolist()
        commit_lsn = self._commit_lsn(index)
        found = self.tables.articles.truncated(named, commit_lsn)
        for article, emptied in found.in_part:
            change = self._emptied(article, emptied)
            if change is None or change.new_article_id is None:
                self.batch.end, self.batch.problem = index, emptied_mismatch(article, emptied)
                return
            changed = article.model_copy(update={"article_id": change.new_article_id})
            self.tables.articles.replace(changed)
            self.batch.changes.append(FoundChange(index, change))
            self.batch.definitions.append(FoundDefinition(index, changed, []))
            self._refit(index, changed, commit_lsn)
        self.batch.truncated += [(index, it) for it in found.tables]

    def _definitions(self, index: int) -> None:
        """End before setup's message, where it means something: raise NeedsDefinitions."""
        schema = self.tables.schema
        if schema is None:
            return
        try:
            digest = due_definitions(self.messages[index].text, schema.publication, schema.reading)
        except ValueError as error:
            raise SchemaStop(
                ConfigurationError(
                    "the Publisher's log holds a message of setup that this version of tranrepl does not read. "
                    "Everything committed before that is stored; nothing after it is read",
                    remedy="run the log reader with the version that ran `tranrepl setup FILE`",
                )
            ) from error
        if digest is not None:
            raise NeedsDefinitions(digest)

    def _emptied(self, article: RegisteredArticle, emptied: Sequence[int]) -> SchemaChange | None:
        """Return the change of a TRUNCATE of some partitions; None where it leaves open which rows there are."""
        schema = self.tables.schema
        follows = schema is not None and schema.reading.follows
        if not follows or emptied_in_part(article, emptied, article.article_id) is None:
            return None
        return emptied_in_part(article, emptied, self.tables.next_article_id())

    def _message(self, index: int) -> None:
        schema = self.tables.schema
        if schema is None:
            return
        commit_lsn = self._commit_lsn(index)
        try:
            altered = list(read_schema_message(self.messages[index].text, schema.publication, position_of(commit_lsn)))
        except (ValueError, KeyError, TypeError) as error:
            altered = [UnknownAlteration("", "22000", f"a message of another version: {error}")]
        for it in altered:
            self._altered(index, commit_lsn, it, schema)

    def _altered(self, index: int, commit_lsn: int, altered: SchemaMessage, schema: SchemaMessages) -> None:
        match altered:
            case UnknownAlteration():
                self._refuse_failed(altered, commit_lsn)
            case UnpublishedTable():
                self._end_article(index, altered, commit_lsn)
            case AlteredTable() | AlteredPartitions():
                self._change_article(index, altered, commit_lsn, schema)

    def _refuse_failed(self, failed: UnknownAlteration, commit_lsn: int) -> None:
        if self.tables.articles.find(lambda it: _is_news(it, commit_lsn)) is not None:
            raise SchemaStop(
                ConfigurationError(
                    f"a command ({failed.tag}) changed a definition at the Publisher, and its event trigger failed "
                    f"to say what: {failed.message} (SQLSTATE {failed.code}). Everything committed before that is "
                    "stored; nothing after it is read",
                    remedy="see what was changed, make the Subscribers' tables fit, and run `tranrepl setup FILE`",
                )
            )

    def _end_article(self, index: int, gone: UnpublishedTable, commit_lsn: int) -> None:
        article = self.tables.articles.find(lambda it: _is_table(it, gone))
        if article is None or not _is_news(article, commit_lsn):
            return
        note = f"the table was dropped, or taken out of the publication; {article.destination} stays as it is"
        change = SchemaChange(
            source=article.source, article_id=article.article_id, new_article_id=None, tag=gone.tag, notes=(note,)
        )
        self.batch.changes.append(FoundChange(index, change))
        self.batch.definitions.append(FoundDefinition(index, None, _notices(change.source, change.notes)))
        for object_id in self.tables.articles.of_article(article):
            self._use(index, Layout(article, object_id, 0, _NOWHERE, ignored_to=_FOREVER))
        self.tables.articles.remove(article)

    def _change_article(self, index: int, altered: Altered, commit_lsn: int, schema: SchemaMessages) -> None:
        article = self.tables.articles.article(altered.object_id)
        if article is None or not _is_news(article, commit_lsn):
            return
        before = article.source_definition
        if isinstance(altered, AlteredPartitions):
            altered = altered.of(before)
        latest = self._same_change(article, index, commit_lsn)
        if latest is None:
            self._refuse_without_key_of(article)
        elif latest.tag == altered.tag:
            altered = replace(altered, rewrite=altered.rewrite | latest.rewrite)
        altered = replace(altered, collations=schema.collations(before, altered.definition))
        found = difference(article, altered, PostgresDialect())
        if isinstance(found, Stop):
            raise SchemaStop(found.error(article, altered.tag))
        known = latest.change if latest is not None and self._may_be_one(latest.change, article, found) else None
        changed = self._numbered(found, known)
        place = self._place(index, article, changed, found, altered.tag, known)
        self._latest[altered.object_id] = _Latest(
            index, commit_lsn, altered.rewrite, altered.tag, altered.ends_command, place
        )
        self.tables.articles.replace(changed)
        notes = list(found.notes)
        if latest is None or latest.ends_command:
            notes += notes_of_what_stays(before, altered)
        notices = _notices(article.source, notes)
        self.batch.definitions.append(FoundDefinition(index, changed, notices))
        if found.is_new:
            self._refit(index, changed, commit_lsn)

    def _may_be_one(self, known: int | None, article: RegisteredArticle, found: Change) -> bool:
        """Return whether a change that follows at once may go with the one before: a name that the table gave up may be
        another one's by then."""
        if known is None:
            return True
        earlier = self.batch.changes[known]
        if earlier.change.source != article.source and known + 1 < len(self.batch.changes):
            return False
        return found.follows_at_once(earlier.change)

    def _numbered(self, found: Change, known: int | None) -> RegisteredArticle:
        if not found.is_new or known is not None:
            return found.article
        return found.article.model_copy(update={"article_id": self.tables.next_article_id()})

    def _place(
        self,
        index: int,
        article: RegisteredArticle,
        changed: RegisteredArticle,
        found: Change,
        tag: str,
        known: int | None,
    ) -> int | None:
        """Return which of the batch's changes it is, once it is one of them."""
        if known is not None:
            earlier = self.batch.changes[known]
            self.batch.changes[known] = replace(earlier, index=index, change=found.after(earlier.change))
            return known
        if not found.is_new:
            return None
        change = SchemaChange(
            source=article.source,
            article_id=article.article_id,
            new_article_id=changed.article_id,
            tag=tag,
            columns=found.columns,
            labels=found.labels,
            partitions=found.partitions,
            rows_unknown=found.rows_unknown,
            notes=found.notes,
        )
        self.batch.changes.append(FoundChange(index, change))
        return len(self.batch.changes) - 1

    def _same_change(self, article: RegisteredArticle, index: int, commit_lsn: int) -> _Latest | None:
        """Return the table's message before, where no row of it is between: the two are one change."""
        latest = self._latest.get(article.source_object_id)
        if latest is None or latest.commit_lsn != commit_lsn:
            return None
        between = np.arange(latest.index + 1, index)
        rows = between[np.isin(self.kinds[between], np.frombuffer(b"IUD", dtype=np.uint8))]
        tables = self.tables.articles.of_article(article)
        changed = np.isin(self.buffer.uint32(self.starts[rows] + 1), tables).any()
        truncated = (self.kinds[between] == ord("T")).any()
        return None if changed or truncated else latest

    def _refit(self, index: int, article: RegisteredArticle, commit_lsn: int) -> None:
        """Let rows that follow be read by the new definition, also where no Relation message of their table follows."""
        for object_id in self.tables.articles.of_article(article):
            relation = self.tables._relations.get(object_id)
            if relation is None:
                continue
            layout = fit(article, relation, commit_lsn)
            if isinstance(layout, RelationMismatch):
                # Another Relation message comes before its next row.
                layout = Layout(article, object_id, len(relation.columns), _NOWHERE, problem=layout.problem)
            self._use(index, layout)

    def _refuse_without_key(self) -> None:
        for object_id, latest in self._latest.items():
            article = self.tables.articles.article(object_id)
            if article is not None and not article.source_definition.key:
                self.batch.end, self.batch.problem = latest.index, SchemaStop(NO_KEY.error(article, latest.tag))

    def _refuse_without_key_of(self, article: RegisteredArticle) -> None:
        latest = self._latest.get(article.source_object_id)
        if latest is not None and not article.source_definition.key:
            raise SchemaStop(NO_KEY.error(article, latest.tag))

    def _use(self, index: int, layout: Layout) -> None:
        self.batch.layouts.append((index, layout))
        self.tables._layouts[layout.object_id] = layout

    def _commit_lsn(self, index: int) -> int:
        """Return the LSN of the transaction that a message is in."""
        begins = np.flatnonzero(self.kinds[:index] == ord("B"))
        return int(self.buffer.uint64(self.starts[begins[-1:]] + 1)[0]) if len(begins) else self.open_lsn

    def _bytes(self, index: int) -> bytes:
        return self.buffer.bytes[self.starts[index] : self.starts[index + 1]].tobytes()


def _is_news(article: RegisteredArticle, commit_lsn: int) -> bool:
    """Return whether a schema change that commits there is not in the article's definition already."""
    return commit_lsn >= lsn_of(article.source_definition.holds_from)


def _is_table(article: RegisteredArticle, gone: UnpublishedTable) -> bool:
    if gone.object_id is not None:
        return article.source_object_id == gone.object_id
    return article.source_definition.name == gone.name


def _notices(source: object, notes: Sequence[str]) -> list[str]:
    return [f"{source}: {note}" for note in notes]
