"""Partitions of an article's table that a command made, dropped or renamed, and the rows of those that go.

A partition is known by its object and by how it was attached, as are those that it is a partition of: one that was
detached and attached again is another one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from tranrepl.model.article import RegisteredArticle
from tranrepl.model.commands import Method
from tranrepl.model.partition_rows import DefinedPartition, PartitionLevel, PartitionPlace, PartitionRows, TableDivision
from tranrepl.model.schema_change import PartitionAction, PartitionChange
from tranrepl.model.table_file import PartitionFile, TableFile

_Divided = TypeVar("_Divided", DefinedPartition, TableDivision)
_Identity = tuple[tuple[int, str], ...]


@dataclass(frozen=True)
class DividedTable:
    """A partitioned table's partitions on all levels, by the object id of the table."""

    root: int
    division: TableDivision

    @cached_property
    def by_id(self) -> dict[int, DefinedPartition]:
        return {it.object_id: it for it in self.division.partitions}

    @cached_property
    def by_identity(self) -> dict[_Identity, DefinedPartition]:
        """Partitions by what each and those above it are, those above first."""
        found = {tuple((at.object_id, at.attached) for at in self.way_to(it)): it for it in self.division.partitions}
        return dict(sorted(found.items(), key=lambda it: len(it[0])))

    def way_to(self, partition: DefinedPartition) -> list[DefinedPartition]:
        """Return the partitions from the top down to one."""
        way = [partition]
        while way[0].parent in self.by_id:
            way.insert(0, self.by_id[way[0].parent])
        return way

    def path(self, partition: DefinedPartition) -> tuple[PartitionPlace, ...]:
        """Return the places on that way; none where some of them are not known."""
        places = []
        for it in self.way_to(partition):
            key = self.by_id.get(it.parent, self.division).key
            if key is None or it.bound is None:
                return ()
            places.append(PartitionPlace(key=key, bound=it.bound))
        return tuple(places)

    def rows(self, partition: DefinedPartition) -> PartitionRows | None:
        """Return which rows a partition has; None where no comparison of values says that."""
        levels = [self._level(it) for it in self.way_to(partition)]
        known = [it for it in levels if it is not None]
        return PartitionRows(levels=tuple(known)) if len(known) == len(levels) else None

    def _level(self, partition: DefinedPartition) -> PartitionLevel | None:
        above = self.by_id.get(partition.parent, self.division)
        if above.key_columns is None or partition.limits is None:
            return None
        siblings = [it.limits for it in self.division.partitions if it.parent == partition.parent]
        others = [it for it in siblings if it is not None and not it.is_default]
        if not partition.limits.is_default:
            return PartitionLevel(columns=above.key_columns, limits=partition.limits)
        if len(others) != len(siblings) - 1:
            return None
        return PartitionLevel(columns=above.key_columns, limits=partition.limits, others=tuple(others))

    @property
    def holding_rows(self) -> set[int]:
        return {it.object_id for it in self.division.partitions if it.holds_rows}


@dataclass(frozen=True)
class PartitionDifference:
    """The partitions of one article's table, before and after one command."""

    article: RegisteredArticle
    before: TableDivision | None
    altered: TableDivision | None

    @cached_property
    def now(self) -> TableDivision | None:
        """The division now, with the limits that earlier messages had."""
        if self.before is None or self.altered is None:
            return self.altered
        known = {(it.object_id, it.attached): it for it in self.before.partitions}
        partitions = [_as_known(it, known.get((it.object_id, it.attached))) for it in self.altered.partitions]
        return _with_key(self.altered, self.before).model_copy(update={"partitions": tuple(partitions)})

    @cached_property
    def _tables(self) -> tuple[DividedTable, DividedTable] | None:
        if self.before is None or self.now is None:
            return None
        return DividedTable(self.article.source_object_id, self.before), DividedTable(
            self.article.source_object_id, self.now
        )

    @cached_property
    def _gone(self) -> list[DefinedPartition]:
        """Partitions that are gone; not those below one that is."""
        if self._tables is None:
            return []
        before, now = self._tables
        gone = {identity: it for identity, it in before.by_identity.items() if identity not in now.by_identity}
        return [it for identity, it in gone.items() if identity[:-1] not in gone]

    @cached_property
    def _new(self) -> list[DefinedPartition]:
        """Partitions that are new, each behind the one that it is a partition of."""
        if self._tables is None:
            return []
        before, now = self._tables
        return [it for identity, it in now.by_identity.items() if identity not in before.by_identity]

    def changes(self) -> tuple[PartitionChange, ...]:
        """Return what is done to partitions of the Subscribers' tables and their rows, in order."""
        if self._tables is None:
            return ()
        before, now = self._tables
        gone = self._gone if removes_rows(self.article) else []
        return (
            *(removal(PartitionAction.REMOVE, before, it) for it in gone),
            *self._renames(),
            *(
                PartitionChange(action=PartitionAction.CREATE, table=it.table, path=now.path(it), key=it.key)
                for it in self._new
            ),
        )

    def _renames(self) -> Iterator[PartitionChange]:
        if self._tables is None:
            return
        before, now = self._tables
        for identity, it in now.by_identity.items():
            known = before.by_identity.get(identity)
            if known is not None and known.table != it.table:
                yield PartitionChange(
                    action=PartitionAction.RENAME, table=known.table, path=before.path(known), new_name=it.table
                )

    def why_unknown(self) -> str | None:
        """Return why the log does not say which rows the table has now; None where it does."""
        filled = [str(it.table) for it in self._new if it.holds_rows and not it.empty]
        if filled:
            return f"partition {', '.join(filled)} was attached with rows of its own, which the log does not show"
        open_rows = [it for it in self.changes() if it.removes_rows and it.rows is None]
        if open_rows:
            return f"partition {open_rows[0].table} was detached or dropped, and no comparison says which rows it had"
        return None

    def notes(self) -> Iterator[str]:
        """Yield what is left alone at the Subscribers, in words."""
        for it in self._gone if not removes_rows(self.article) else ():
            yield f"partition {it.table} was detached or dropped: its rows stay, as the article deletes none"

    def file(self, file: TableFile | None) -> TableFile | None:
        """Return the table's file with the partitions that it has now."""
        if self._tables is None or file is None or file.partitions is None:
            return file
        before, now = self._tables
        partitions = dict(file.partitions)
        for number in before.holding_rows & set(partitions):
            if _identity(before, number) not in now.by_identity:
                partitions[number] = partitions[number].model_copy(update={"gone": True})
        for it in self._new:
            attachment = "".join(f"/{at.attached}" for at in now.way_to(it))
            known = file.attached.get(it.object_id)
            if it.holds_rows and (known is None or known.attachment != attachment):
                partitions[it.object_id] = PartitionFile(
                    number=0, columns={}, table=it.table, attachment=attachment, made_empty=True
                )
        return file.model_copy(update={"partitions": partitions})


def _as_known(shown: DefinedPartition, known: DefinedPartition | None) -> DefinedPartition:
    """Return a partition with the limits and the key that an earlier message had, where this one has none."""
    if known is None:
        return shown
    divided = _with_key(shown, known)
    if shown.bound is not None:
        return divided
    return divided.model_copy(update={"bound": known.bound, "limits": known.limits})


def _with_key(shown: _Divided, known: _Divided) -> _Divided:
    """Return what is divided with the key that an earlier message had, where this one has none."""
    if shown.key is not None:
        return shown
    return shown.model_copy(update={"key": known.key, "key_columns": known.key_columns})


def removes_rows(article: RegisteredArticle) -> bool:
    """Return whether rows that go with a partition go at the Subscribers too."""
    return article.del_cmd.method is not Method.NONE


def emptied_partitions(article: RegisteredArticle, object_ids: Collection[int]) -> Sequence[PartitionChange] | None:
    """Return what a TRUNCATE of some partitions does at the Subscribers; None where it is not known of each which rows
    it had."""
    division = article.source_definition.division
    if division is None:
        return None
    table = DividedTable(article.source_object_id, division)
    known = [removal(PartitionAction.EMPTY, table, table.by_id[it]) for it in object_ids if it in table.by_id]
    return known if len(known) == len(object_ids) and all(it.rows is not None for it in known) else None


def removal(action: PartitionAction, table: DividedTable, partition: DefinedPartition) -> PartitionChange:
    """Return the change that takes a partition's rows away."""
    return PartitionChange(action=action, table=partition.table, path=table.path(partition), rows=table.rows(partition))


def _identity(table: DividedTable, object_id: int) -> _Identity:
    return tuple((at.object_id, at.attached) for at in table.way_to(table.by_id[object_id]))
