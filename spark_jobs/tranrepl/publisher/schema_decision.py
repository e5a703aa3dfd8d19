"""What becomes of an article whose table was defined anew: the table of decisions, on terms that any database has.

Columns are compared by their ordinals, which no later column gets: so a rename is known from a drop and an addition.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pydantic import BaseModel

from tranrepl.model.article import PublishedColumn, RegisteredArticle
from tranrepl.model.schema_change import ColumnChange, LabelChange, PartitionChange
from tranrepl.model.source_sql import is_type
from tranrepl.model.table_definition import (
    FIRST_OWN_TYPE,
    DefinedColumn,
    DefinedType,
    TableDefinition,
    UniqueConstraint,
)
from tranrepl.publisher.announcements import Rewrite, TableAnnouncement
from tranrepl.publisher.column_decision import ColumnDecisions
from tranrepl.publisher.definition_after import TYPE_TAGS, definition_after
from tranrepl.publisher.label_decision import label_changes, refuse_named_labels, renamed_labels
from tranrepl.publisher.partition_decision import PartitionDecisions
from tranrepl.publisher.schema_names import SchemaNames
from tranrepl.publisher.schema_stop import SchemaStop, schema_stop
from tranrepl.publisher.unseen_changes import with_unseen_changes
from tranrepl.publisher.unseen_partitions import with_unseen_partitions

_TABLE_TAGS = frozenset({"ALTER TABLE", "CREATE INDEX", "DROP INDEX"})


@dataclass(frozen=True, slots=True)
class Decision:
    """What becomes of an article: its definition from here on, `article_id` as before, and what the Subscribers do."""

    article: RegisteredArticle
    columns: tuple[ColumnChange, ...] = ()
    labels: tuple[LabelChange, ...] = ()
    partitions: tuple[PartitionChange, ...] = ()
    rows_unknown: str | None = None
    notes: tuple[str, ...] = ()
    is_new: bool = False
    """Commands from here on are of another definition than those before."""


def decide(
    article: RegisteredArticle, before: TableDefinition, announced: TableAnnouncement, names: SchemaNames
) -> Decision:
    """Return what becomes of an article whose table was as `before`. Raises SchemaStop."""
    announced = with_unseen_changes(article, before, with_unseen_partitions(before, announced))
    now = definition_after(before, announced)
    divided = PartitionDecisions(article, before.division, now.division)
    now = now.model_copy(update={"division": divided.now})
    decided = ColumnDecisions(article, before, now, announced, names)
    _refuse_dropped_key(article, now, announced)
    _refuse_dropped_filter(article, now, announced, names)
    refuse_named_labels(article, before, now, announced.tag, names)
    labels = tuple(label_changes(article, before, now, announced.tag))
    _refuse_altered_type(article, before, now, announced)
    _refuse_unread_type(article, decided.published(), announced)
    columns = decided.changes()
    key = now.key or _key(article)
    new_key = key != _key(article)
    unknown = decided.why_unknown() or ("its primary key is another one" if new_key else None) or divided.why_unknown()
    unknown = unknown or renamed_labels(article, before, now)
    partitions = divided.changes()
    notes = [*decided.notes(), *_table_notes(article, before, now, new_key=new_key), *divided.notes()]
    changed = _changed_article(article, before, now, decided, key, names)
    if unknown is not None:
        changed = changed.model_copy(update={"begins_after": now.holds_from})
    is_new = bool(columns or labels or partitions or unknown) or not changed.same_definition(article)
    if not is_new:
        changed = article.model_copy(update={"definition": now})
    else:
        changed = _without_earlier(changed, _file_after(article, decided, announced))
    changed = changed.model_copy(update={"file": divided.file(changed.file)})
    return Decision(changed, columns, labels, partitions, unknown, tuple(notes), is_new)


def renamed_since(
    article: RegisteredArticle, setup_found: TableDefinition, announced: TableAnnouncement
) -> Decision | None:
    """Return what becomes of an article that setup has looked at since this command, where a label has another name
    now than it had then: rows in between may have either. None where it goes on."""
    then, at = announced.definition, announced.definition.holds_from
    if announced.tag not in TYPE_TAGS or at <= article.begins_after:
        return None
    unknown = renamed_labels(article, then, setup_found)
    changed = article.model_copy(update={"begins_after": at})
    return None if unknown is None else Decision(changed, rows_unknown=unknown, is_new=True)


def lacks_key(article: RegisteredArticle, tag: str) -> SchemaStop:
    """Return the stop of an article whose table has no primary key any more."""
    return schema_stop(
        article,
        tag,
        "it has no primary key any more (error 14088)",
        "add one, or take the article out of the file",
    )


def _fields(model: BaseModel) -> dict[str, object]:
    """Return the fields without what was derived from them, which a copy keeps."""
    return {name: getattr(model, name) for name in type(model).model_fields}


def _key(article: RegisteredArticle) -> tuple[int, ...]:
    return tuple(article.columns[at].ordinal for at in article.key_positions)


def _refuse_dropped_key(article: RegisteredArticle, now: TableDefinition, announced: TableAnnouncement) -> None:
    dropped = [it.name for it in article.columns if it.key_ordinal is not None and it.ordinal not in now.by_ordinal]
    if dropped:
        raise schema_stop(
            article,
            announced.tag,
            f"column {', '.join(dropped)} of its primary key was dropped",
            "give the table another primary key, where it has none yet",
        )
    published = {it.ordinal for it in article.columns}
    gains = article.file_names is not None and article.file_names.columns is None
    left_out = [it for it in now.key if it not in published and not gains]
    if left_out:
        column = now.by_ordinal[left_out[0]].name
        raise schema_stop(
            article,
            announced.tag,
            f"column {column} of its new primary key is not among the article's columns",
            f"add {column} to `columns` of the article, and to the Subscriber's table",
        )


def _refuse_unread_type(
    article: RegisteredArticle, published: Sequence[DefinedColumn], announced: TableAnnouncement
) -> None:
    unread = next((it for it in published if not is_type(it.type_name)), None)
    if unread is not None:
        raise schema_stop(
            article,
            announced.tag,
            f"column {unread.name} is of type {unread.type_name}, which is not read",
            f"give column {unread.name} another type, or leave it out of the article's columns",
        )


def _refuse_dropped_filter(
    article: RegisteredArticle, now: TableDefinition, announced: TableAnnouncement, names: SchemaNames
) -> None:
    if article.filter is None:
        return
    read = set(names.filter_columns(article.filter, article.source.table))
    dropped = [it.name for it in article.columns if it.name in read and it.ordinal not in now.by_ordinal]
    if dropped:
        raise schema_stop(
            article,
            announced.tag,
            f"column {', '.join(dropped)} was dropped, which its row filter reads: {article.filter}",
            "give the article another `filter`, or none, and make the Subscriber's table fit",
        )


def _refuse_altered_type(
    article: RegisteredArticle, before: TableDefinition, now: TableDefinition, announced: TableAnnouncement
) -> None:
    """Raise SchemaStop where values of a published column may be written otherwise than before, or others be refused,
    though its type is the same: what it is made of was altered."""
    seen = announced.tag not in TYPE_TAGS or before.columns != _columns_as_far_as_known(before, now)
    columns = [(before.by_ordinal.get(it.ordinal), now.by_ordinal.get(it.ordinal)) for it in article.columns]
    altered = [
        new.name
        for old, new in columns
        if old is not None and new is not None and _is_altered_inside(old, new, seen=seen)
    ]
    if altered:
        raise schema_stop(
            article,
            announced.tag,
            f"the type of column {', '.join(altered)}, or one that it is made of, was altered",
            "alter the type at the Subscribers too",
        )


def _columns_as_far_as_known(before: TableDefinition, now: TableDefinition) -> tuple[DefinedColumn, ...]:
    """Return the columns of now, but without types that were not known before: it is no change that they are known."""
    unknown = {it.ordinal for it in before.columns if it.types is None}
    return tuple(it.model_copy(update={"types": None}) if it.ordinal in unknown else it for it in now.columns)


def _is_altered_inside(old: DefinedColumn, new: DefinedColumn, *, seen: bool) -> bool:
    if old.type_oid != new.type_oid:
        return False
    if old.types is None or new.types is None:
        return not seen and new.type_oid >= FIRST_OWN_TYPE
    return _forms(old.types) != _forms(new.types)


def _forms(types: Sequence[DefinedType]) -> dict[int, str | None]:
    """Return the forms of the types, by their numbers; labels of enumerated types follow, whatever form it has."""
    return {it.oid: it.form if it.labels is None else None for it in types}


def _table_notes(
    article: RegisteredArticle, before: TableDefinition, now: TableDefinition, *, new_key: bool
) -> Iterator[str]:
    if now.name != before.name:
        yield f"the table is {now.name} now; the Subscribers' stays {article.destination}"
    if now.replica_identity != before.replica_identity and now.replica_identity != "full":
        yield f"its replica identity is {now.replica_identity} now: old rows in the log lack values"
    if new_key:
        yield "its primary key is another one: the Subscribers' tables that have its old one get it"
    for it in _new_unique(before, now):
        if not it.primary:
            yield f"unique index {it.name} is not made at the Subscribers"


def notes_of_what_stays(before: TableDefinition, now: TableDefinition, tag: str) -> list[str]:
    """Return what is said of a command that changed nothing that is told of a table, as of a check or an index; nothing
    of a partitioned one, whose partitions' settings our own event trigger changes."""
    # setup describes a table before it makes its replica identity full.
    unlike = ("holds_from", "altered_by")
    like_now: dict[str, object] = {name: getattr(now, name) for name in unlike}
    if now.replica_identity == "full":
        like_now["replica_identity"] = now.replica_identity
    if tag not in _TABLE_TAGS or now.division is not None or before.model_copy(update=like_now) != now:
        return []
    return ["what it changed stays at the Publisher (a check, a foreign key, an index, or a setting of the table)"]


def _new_unique(before: TableDefinition, now: TableDefinition) -> list[UniqueConstraint]:
    known = [it.model_copy(update={"name": ""}) for it in before.unique]
    return [it for it in now.unique if it.model_copy(update={"name": ""}) not in known]


def _changed_article(
    article: RegisteredArticle,
    before: TableDefinition,
    now: TableDefinition,
    decided: ColumnDecisions,
    key: tuple[int, ...],
    names: SchemaNames,
) -> RegisteredArticle:
    unique = {ordinal for it in now.unique for ordinal in it.columns}
    # What an expression or a condition reads is not told.
    unseen = any(0 in it.columns or it.partial for it in _new_unique(before, now))
    known = {it.ordinal: it for it in article.columns}
    columns = tuple(
        _published(it, known.get(it.ordinal), key, unique=it.ordinal in unique or unseen) for it in decided.published()
    )
    filter_now = article.filter
    if filter_now is not None and (decided.renamed or now.name.table != article.source.table):
        filter_now = names.renamed_filter(filter_now, article.source, now.name, decided.renamed)
    # Not a copy: an article remembers where the columns of its key are.
    return RegisteredArticle.model_validate(
        {
            **_fields(article),
            "source": now.name,
            "columns": columns,
            "filter": filter_now,
            "deferrable": now.deferrable,
            "definition": now,
        }
    )


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


def _file_after(
    article: RegisteredArticle, decided: ColumnDecisions, announced: TableAnnouncement
) -> Mapping[str, object]:
    """Return what is known of the table's file: nothing where it is another one, but for its partitions, and nothing of
    changed columns."""
    if article.file is None:
        return {"file": None}
    if announced.rewrite is not Rewrite.NONE:
        return {"file": None if article.file.partitions is None else article.file.of([])}
    return {"file": article.file.of([it for it in article.file.columns if it in decided.untouched])}
