"""The difference between an article's definition and its table after a command, on terms of no database.

Columns are compared by their ordinals, which no later column gets: so a rename is known from a drop and an addition.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pydantic import BaseModel

from tranrepl.errors import ConfigurationError
from tranrepl.model.article import PublishedColumn, RegisteredArticle
from tranrepl.model.schema_change import (
    ColumnAction,
    ColumnChange,
    LabelAction,
    LabelChange,
    PartitionChange,
    SchemaChange,
)
from tranrepl.model.source_sql import is_type
from tranrepl.model.table_definition import DefinedColumn, DefinedType, TableDefinition, UniqueConstraint
from tranrepl.schema.columns import ColumnDifference
from tranrepl.schema.dialect import PublisherDialect
from tranrepl.schema.known_definition import definition_after
from tranrepl.schema.labels import LabelDifference
from tranrepl.schema.messages import AlteredTable, Rewrite, Subject
from tranrepl.schema.partitions import PartitionDifference

NEW_KEY = "its primary key is another one"
_WITH_TYPE = (ColumnAction.ADD, ColumnAction.RETYPE)


@dataclass(frozen=True, slots=True)
class Change:
    """The Subscribers follow."""

    article: RegisteredArticle
    """Its definition from here on, `article_id` as before."""
    columns: tuple[ColumnChange, ...] = ()
    labels: tuple[LabelChange, ...] = ()
    partitions: tuple[PartitionChange, ...] = ()
    notes: tuple[str, ...] = ()
    """What was changed and is left alone at the Subscribers, in words."""
    is_new: bool = False
    """Commands from here on are of another definition than those before."""

    @property
    def rows_unknown(self) -> str | None:
        return None

    def follows_at_once(self, earlier: SchemaChange) -> bool:
        """Return whether it may be one change with an earlier one, without a row between them: rows of a partition go
        by the names that the columns have by then, and a column that is added has the type of before: that is renamed
        first."""
        if (earlier.partitions and self.columns) or (earlier.columns and self.partitions):
            return False
        renamed = any(it.action is not LabelAction.ADD for it in self.labels)
        return not (renamed and any(it.action in _WITH_TYPE for it in earlier.columns))

    def after(self, earlier: SchemaChange) -> SchemaChange:
        """Return an earlier change and this one as one."""
        return earlier.model_copy(
            update={
                "columns": (*earlier.columns, *self.columns),
                "labels": (*earlier.labels, *self.labels),
                "partitions": (*earlier.partitions, *self.partitions),
                "rows_unknown": earlier.rows_unknown or self.rows_unknown,
                "notes": tuple(dict.fromkeys([*earlier.notes, *self.notes])),
            }
        )


@dataclass(frozen=True, slots=True)
class Reinitialize(Change):
    """The Subscribers follow, and the article is reinitialized or stopped, as `on_unknown_rows` says: the log does not
    have the rows that the table has now."""

    reason: str = ""

    @property
    def rows_unknown(self) -> str | None:
        return self.reason


@dataclass(frozen=True, slots=True)
class Stop:
    """Reading ends before the command's transaction."""

    reason: str
    way_on: str
    """What to do before `tranrepl setup FILE`."""

    def error(self, article: RegisteredArticle, tag: str) -> ConfigurationError:
        return ConfigurationError(
            f"table {article.source} was altered ({tag}): {self.reason}. Everything committed before that is stored; "
            "nothing after it is read",
            remedy=f"{self.way_on}; then `tranrepl setup FILE`",
            article=str(article.source),
        )


NO_KEY = Stop("it has no primary key any more (error 14088)", "add one, or take the article out of the file")
_DEFERRABLE = Stop(
    "its primary key or a unique constraint is DEFERRABLE: within a transaction, two rows may hold one value",
    "replace the constraint by one that is NOT DEFERRABLE",
)
_OUTDATED = Stop(
    "the transaction, at REPEATABLE READ or SERIALIZABLE, began before the table's last change was committed, and so "
    "could not write how the table is now",
    "give the Subscribers' tables the columns that the table has now, by their names of now",
)


def difference(before: RegisteredArticle, now: AlteredTable, dialect: PublisherDialect) -> Change | Reinitialize | Stop:
    """Return what becomes of an article, of which the log has this message. Its definition is known."""
    defined = before.source_definition
    if defined is None or now.is_outdated(defined):
        return _OUTDATED
    after = definition_after(defined, now)
    divided = PartitionDifference(before, defined.division, after.division)
    after = after.model_copy(update={"division": divided.now})
    found = _Difference(
        before,
        defined,
        after,
        now,
        ColumnDifference(before, defined, after, now),
        LabelDifference(before, defined, after),
        divided,
    )
    return next(found.stops(dialect), None) or found.change(dialect)


def notes_of_what_stays(before: TableDefinition, now: AlteredTable) -> list[str]:
    """Return what is said of a command that changed nothing that its message has, as of a check or an index; nothing
    of a partitioned table, whose partitions' settings our own event trigger changes."""
    after = now.definition
    # setup describes a table before it makes its replica identity full.
    unlike = ("holds_from", "altered_by")
    like_now: dict[str, object] = {name: getattr(after, name) for name in unlike}
    if after.replica_identity == "full":
        like_now["replica_identity"] = after.replica_identity
    of_table = now.subject in (Subject.TABLE, Subject.INDEX)
    if not of_table or after.division is not None or before.model_copy(update=like_now) != after:
        return []
    return ["what it changed stays at the Publisher (a check, a foreign key, an index, or a setting of the table)"]


@dataclass(frozen=True, slots=True)
class _Difference:
    """An article, its table before and after one command, and the differences of their parts."""

    article: RegisteredArticle
    before: TableDefinition
    now: TableDefinition
    altered: AlteredTable
    columns: ColumnDifference
    labels: LabelDifference
    partitions: PartitionDifference

    def stops(self, dialect: PublisherDialect) -> Iterator[Stop]:
        """Yield why the change is not followed."""
        if self.now.deferrable:
            yield _DEFERRABLE
        yield from self._key_stops()
        yield from self._filter_stops(dialect)
        yield from self._label_stops(dialect)
        yield from self._type_stops()

    def change(self, dialect: PublisherDialect) -> Change | Reinitialize:
        """Return what the Subscribers do."""
        columns, labels = self.columns.changes(), tuple(self.labels.changes(self.altered.subject))
        partitions = self.partitions.changes()
        reason = self._why_unknown(dialect)
        changed = self._changed_article(dialect)
        if reason is not None:
            changed = changed.model_copy(update={"begins_after": self.now.holds_from})
        is_new = bool(columns or labels or partitions or reason) or not changed.same_definition(self.article)
        if not is_new:
            changed = self.article.model_copy(update={"source_definition": self.now})
        else:
            changed = _without_earlier(changed, self._file_after())
        changed = changed.model_copy(update={"source_file": self.partitions.file(changed.source_file)})
        notes = (*self.columns.notes(), *self._table_notes(), *self.partitions.notes())
        if reason is None:
            return Change(changed, columns, labels, partitions, notes, is_new)
        return Reinitialize(changed, columns, labels, partitions, notes, is_new, reason)

    def _why_unknown(self, dialect: PublisherDialect) -> str | None:
        return (
            self.columns.why_unknown(dialect)
            or (NEW_KEY if self._has_new_key else None)
            or self.partitions.why_unknown()
            or self.labels.why_unknown()
        )

    @property
    def _key(self) -> tuple[int, ...]:
        return self.now.key or _key(self.article)

    @property
    def _has_new_key(self) -> bool:
        return self._key != _key(self.article)

    def _key_stops(self) -> Iterator[Stop]:
        dropped = [it.name for it in self._dropped_columns if it.key_ordinal is not None]
        if dropped:
            yield Stop(
                f"column {', '.join(dropped)} of its primary key was dropped",
                "give the table another primary key, where it has none yet",
            )
        published = {it.ordinal for it in self.article.columns}
        left_out = [it for it in self.now.key if it not in published and not self.columns.gains_columns]
        if left_out:
            column = self.now.by_ordinal[left_out[0]].name
            yield Stop(
                f"column {column} of its new primary key is not among the article's columns",
                f"add {column} to `columns` of the article, and to the Subscriber's table",
            )

    @property
    def _dropped_columns(self) -> list[PublishedColumn]:
        return [it for it in self.article.columns if it.ordinal not in self.now.by_ordinal]

    def _filter_stops(self, dialect: PublisherDialect) -> Iterator[Stop]:
        if self.article.filter is None:
            return
        read = set(dialect.filter_columns(self.article.filter, self.article.source.table))
        dropped = [it.name for it in self._dropped_columns if it.name in read]
        if dropped:
            yield Stop(
                f"column {', '.join(dropped)} was dropped, which its row filter reads: {self.article.filter}",
                "give the article another `filter`, or none, and make the Subscriber's table fit",
            )

    def _label_stops(self, dialect: PublisherDialect) -> Iterator[Stop]:
        filtered = self.labels.filtered(dialect)
        if filtered is not None:
            yield Stop(
                f"a label of type {filtered} was renamed, whose values its row filter reads: {self.article.filter}",
                "write the article's `filter` with the labels of now, where it names them",
            )
        dividing = self.labels.dividing()
        if dividing is not None:
            yield Stop(
                f"a label of type {dividing} was renamed, whose values limits of its partitions name",
                f"rename it at the Subscribers too (ALTER TYPE {dividing} RENAME VALUE ...)",
            )

    def _type_stops(self) -> Iterator[Stop]:
        """Yield stops where values of a published column may be written otherwise than before, or others be refused,
        though its type is the same: what it is made of was altered; and where a type has no name that is read."""
        seen = not self.altered.subject.is_type or self.before.columns != _as_far_as_known(self.before, self.now)
        pairs = [
            (self.before.by_ordinal.get(it.ordinal), self.now.by_ordinal.get(it.ordinal)) for it in self.article.columns
        ]
        altered = [
            new.name
            for old, new in pairs
            if old is not None and new is not None and _is_altered_inside(old, new, seen=seen)
        ]
        if altered:
            yield Stop(
                f"the type of column {', '.join(altered)}, or one that it is made of, was altered",
                "alter the type at the Subscribers too",
            )
        unread = next((it for it in self.columns.published() if not is_type(it.type_name)), None)
        if unread is not None:
            yield Stop(
                f"column {unread.name} is of type {unread.type_name}, which is not read",
                f"give column {unread.name} another type, or leave it out of the article's columns",
            )

    def _table_notes(self) -> Iterator[str]:
        before, now = self.before, self.now
        if now.name != before.name:
            yield f"the table is {now.name} now; the Subscribers' stays {self.article.destination}"
        if now.replica_identity != before.replica_identity and now.replica_identity != "full":
            yield f"its replica identity is {now.replica_identity} now: old rows in the log lack values"
        if self._has_new_key:
            yield "its primary key is another one: the Subscribers' tables that have its old one get it"
        for it in _new_unique(before, now):
            if not it.primary:
                yield f"unique index {it.name} is not made at the Subscribers"

    def _changed_article(self, dialect: PublisherDialect) -> RegisteredArticle:
        article, now = self.article, self.now
        unique = {ordinal for it in now.unique for ordinal in it.columns}
        # What an expression or a condition reads is not known.
        unseen = any(0 in it.columns or it.partial for it in _new_unique(self.before, now))
        known = {it.ordinal: it for it in article.columns}
        columns = tuple(
            _published(it, known.get(it.ordinal), self._key, unique=it.ordinal in unique or unseen)
            for it in self.columns.published()
        )
        row_filter = article.filter
        if row_filter is not None and (self.columns.renamed or now.name.table != article.source.table):
            row_filter = dialect.renamed_filter(row_filter, article.source, now.name, self.columns.renamed)
        # Not a copy: an article remembers where the columns of its key are.
        return RegisteredArticle.model_validate(
            {
                **_fields(article),
                "source": now.name,
                "columns": columns,
                "filter": row_filter,
                "source_definition": now,
            }
        )

    def _file_after(self) -> Mapping[str, object]:
        """Return what is known of the table's file: nothing where it is another one, but for its partitions, and
        nothing of changed columns."""
        file = self.article.source_file
        if file is None:
            return {"source_file": None}
        if self.altered.rewrite is not Rewrite.NONE:
            return {"source_file": None if file.partitions is None else file.of([])}
        return {"source_file": file.of([it for it in file.columns if it in self.columns.untouched])}


def _fields(model: BaseModel) -> dict[str, object]:
    """Return the fields without what was derived from them, which a copy keeps."""
    return {name: getattr(model, name) for name in type(model).model_fields}


def _key(article: RegisteredArticle) -> tuple[int, ...]:
    return tuple(article.columns[at].ordinal for at in article.key_positions)


def _as_far_as_known(before: TableDefinition, now: TableDefinition) -> tuple[DefinedColumn, ...]:
    """Return the columns of now, but without types that were not known before: it is no change that they are known."""
    unknown = {it.ordinal for it in before.columns if it.types is None}
    return tuple(it.model_copy(update={"types": None}) if it.ordinal in unknown else it for it in now.columns)


def _is_altered_inside(old: DefinedColumn, new: DefinedColumn, *, seen: bool) -> bool:
    if old.type_oid != new.type_oid:
        return False
    if old.types is None or new.types is None:
        return not seen and new.is_of_users_type
    return _forms(old.types) != _forms(new.types)


def _forms(types: Sequence[DefinedType]) -> dict[int, str | None]:
    """Return the forms of the types, by their numbers; labels of enumerated types follow, whatever form it has."""
    return {it.oid: it.form if it.labels is None else None for it in types}


def _new_unique(before: TableDefinition, now: TableDefinition) -> list[UniqueConstraint]:
    known = [it.model_copy(update={"name": ""}) for it in before.unique]
    return [it for it in now.unique if it.model_copy(update={"name": ""}) not in known]


def _published(
    now: DefinedColumn, known: PublishedColumn | None, key: Sequence[int], *, unique: bool
) -> PublishedColumn:
    return PublishedColumn(
        name=now.name,
        ordinal=now.ordinal,
        type_oid=now.type_oid,
        type_modifier=now.type_modifier,
        type_name=now.type_name,
        key_ordinal=key.index(now.ordinal) + 1 if now.ordinal in key else None,
        # Until a change is found, as it was: the log may still hold them.
        earlier_types=known.earlier_types if known else (),
        earlier_names=known.earlier_names if known else (),
        unique=unique or (known is not None and known.unique),
        lob=known is not None and known.lob,
    )


def _without_earlier(article: RegisteredArticle, file: Mapping[str, object]) -> RegisteredArticle:
    """Return the article as what follows in the log is written: no column has an earlier name or type there."""
    columns = [it.model_copy(update={"earlier_types": (), "earlier_names": ()}) for it in article.columns]
    return article.model_copy(update={"columns": tuple(columns), **file})
