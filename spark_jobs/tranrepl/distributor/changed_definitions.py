"""Definitions of articles that setup changes, stored as a schema change behind all commands of the old ones.

It stands behind the last transaction that is stored, in a place of its own, and each subscription passes it when its
turn comes: then its procedures become those of the new definition. The tables stay as they are, but for what the
Publisher's became in a way that the log does not bring.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import pyarrow as pa

from tranrepl.distributor.database import Batch, DistributionDatabase, PublicationRecord, StoredSchemaChange
from tranrepl.distributor.store import folder_path, new_folder
from tranrepl.distributor.store_folders import write_folder
from tranrepl.errors import ConfigurationError, FencedError
from tranrepl.failpoint import Failpoint, reach
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.commands import FIRST_XACT_SEQNO, ROW_LAYOUT, Operation
from tranrepl.model.position import FIRST_POSITION, is_within_commit, next_place
from tranrepl.model.schema_change import SETUP_TAG, ColumnAction, ColumnChange, SchemaChange

_TRIES = 20


@dataclass(frozen=True, slots=True)
class ChangedDefinition:
    """An article whose definition setup changes; `article_id` of the new one is 0 until it is stored."""

    old: RegisteredArticle
    new: RegisteredArticle
    columns: tuple[ColumnChange, ...] = ()
    """What is done to the Subscribers' tables."""
    rows_unknown: str | None = None
    """Why the log does not say which rows the altered table has; None where it does, or the tables stay as they are."""

    @property
    def alters_tables(self) -> bool:
        return bool(self.columns) or self.rows_unknown is not None

    @property
    def dropped_key(self) -> tuple[ColumnChange, ...]:
        """Columns that go from the Subscribers' tables, once their key is another one."""
        key = {self.old.columns[at].name for at in self.old.key_positions}
        return tuple(it for it in self.columns if it.action is ColumnAction.DROP and it.column in key)

    def in_words(self) -> str:
        """Return what is changed, by the names that the file has for it."""
        return ", ".join(name for name, before, now in self._parts() if before != now) or "its columns' properties"

    def _parts(self) -> Iterator[tuple[str, object, object]]:
        for name in ("destination", "filter", "ins_cmd", "upd_cmd", "del_cmd", "update_policy", "truncate"):
            yield name, getattr(self.old, name), getattr(self.new, name)
        yield "columns", [it.name for it in self.old.columns], [it.name for it in self.new.columns]


@dataclass(frozen=True, slots=True)
class _Step:
    """A definition that follows another one, and the change between them."""

    old: RegisteredArticle
    new: RegisteredArticle
    change: SchemaChange


@dataclass(frozen=True, slots=True)
class StoredDefinitions:
    """Changed definitions as they are in force. Commands before `xact_seqno` are of the old ones."""

    xact_seqno: bytes
    changed: tuple[ChangedDefinition, ...]


def store_definitions(
    database: DistributionDatabase,
    publication: str,
    changed: Sequence[ChangedDefinition],
    why_needed: Callable[[], str | None],
) -> StoredDefinitions:
    """Let the new definitions be in force. What log readers have read by the old ones, and not registered, they read
    again.

    `why_needed` says who has commands of the old definitions still to receive: None where nobody has, and what could
    not be stored is not needed. Raises ConfigurationError where it is.
    """
    numbers = iter(database.articles.reserve_ids(len(changed) + sum(bool(it.dropped_key) for it in changed)))
    ways = [_way(it, numbers) for it in changed]
    changed = [replace(it, new=way[-1].new) for it, way in zip(changed, ways, strict=True)]
    steps = [step for way in ways for step in way]
    for _ in range(_TRIES):
        record = database.publications.get(publication)
        last, before = record.registered_xact_seqno, record.redefined_xact_seqno
        seqno = next_place(max(last or FIRST_XACT_SEQNO, before or FIRST_XACT_SEQNO))
        try:
            batch, changes = _stored(record, last, seqno, steps, why_needed)
            database.batches.redefine(record, seqno, {it.old.article_id: it.new for it in steps}, batch, changes)
        except FencedError:
            # A log reader was faster.
            continue
        reach(Failpoint.REDEFINED)
        return StoredDefinitions(seqno, tuple(changed))
    raise FencedError(
        f"{database.where}: log readers of publication {publication} registered something each time that setup was "
        "about to change definitions of articles"
    )


def _stored(
    record: PublicationRecord,
    last: bytes | None,
    seqno: bytes,
    steps: Sequence[_Step],
    why_needed: Callable[[], str | None],
) -> tuple[Batch | None, list[StoredSchemaChange]]:
    """Write the changes into the store; return what is to be registered. Where nothing was stored before, nothing is
    written, but for what alters the Subscribers' tables."""
    alters = any(it.change.changes_destination or it.change.rows_unknown is not None for it in steps)
    if last is None and not alters:
        return None, []
    changes = [StoredSchemaChange(seqno, number, it.change) for number, it in enumerate(steps, start=1)]
    time, folder = record.registered_commit_time or datetime.now(UTC), new_folder()
    try:
        _require_room(record, last, seqno)
        write_folder(folder_path(record, folder), pa.Table.from_pylist([_row(it, time) for it in changes], ROW_LAYOUT))
    except ConfigurationError as problem:
        if alters:
            raise ConfigurationError(
                f"{problem.message}: a change of the Subscribers' tables has no place there",
                remedy="`tranrepl trace FILE` stores one that changes no rows; then `tranrepl setup FILE`",
            ) from problem
        needed = why_needed()
        if needed is None:
            return None, []
        raise ConfigurationError(
            f"{needed}, which were made before the file was changed, and {problem.message}",
            remedy="`tranrepl run FILE` with the file as it was delivers them; then `tranrepl setup FILE`",
        ) from problem
    return Batch(folder, seqno, seqno, time, time, 1, len(changes), 0), changes


def _require_room(record: PublicationRecord, last: bytes | None, seqno: bytes) -> None:
    taken = last is not None and not is_within_commit(seqno, last)
    if taken or seqno >= (record.registered_to or FIRST_POSITION).value:
        raise ConfigurationError("definitions were changed several times since the last transaction was stored")


def _row(stored: StoredSchemaChange, time: datetime) -> dict[str, object]:
    return {
        "xact_seqno": stored.xact_seqno,
        "command_id": stored.command_id,
        "commit_time": time,
        "article_id": stored.change.article_id,
        "operation": int(Operation.SCHEMA),
        "after": stored.change.model_dump_json(),
    }


def _way(changed: ChangedDefinition, numbers: Iterator[int]) -> list[_Step]:
    """Return the steps to the new definition. Columns of the old key that are gone are dropped by a step of their own,
    behind the one that replaces the key: no database drops a column of a key, or each leaves another key."""
    dropped = changed.dropped_key
    first = changed.new.model_copy(update={"article_id": next(numbers)})
    change = SchemaChange(
        source=changed.old.source,
        article_id=changed.old.article_id,
        new_article_id=first.article_id,
        tag=SETUP_TAG,
        columns=tuple(it for it in changed.columns if it not in dropped),
        rows_unknown=changed.rows_unknown,
        notes=(f"setup changed its definition ({changed.in_words()}), which holds from here on",),
    )
    if not dropped:
        return [_Step(changed.old, first, change)]
    last = changed.new.model_copy(update={"article_id": next(numbers)})
    drop = SchemaChange(
        source=last.source,
        article_id=first.article_id,
        new_article_id=last.article_id,
        tag=SETUP_TAG,
        columns=dropped,
    )
    return [_Step(changed.old, first, change), _Step(first, last, drop)]
