"""Columns of an article that a command added, dropped, renamed or retyped, and whether their values are known."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from tranrepl.model.article import RegisteredArticle
from tranrepl.model.schema_change import ColumnAction, ColumnChange
from tranrepl.model.table_definition import DefinedColumn, Generation, TableDefinition
from tranrepl.schema.dialect import PublisherDialect
from tranrepl.schema.messages import AlteredTable, Rewrite, Subject


@dataclass(frozen=True)
class ColumnDifference:
    """The columns of one article, before and after one command."""

    article: RegisteredArticle
    before: TableDefinition
    now: TableDefinition
    altered: AlteredTable

    @cached_property
    def gains_columns(self) -> bool:
        """The article's file chooses no columns: it has all of them."""
        return self.article.file_names.columns is None

    @cached_property
    def _ordinals(self) -> frozenset[int]:
        """Columns that the article published so far."""
        return frozenset(it.ordinal for it in self.article.columns)

    @cached_property
    def _pairs(self) -> list[tuple[DefinedColumn, DefinedColumn]]:
        """Columns that were there and are, before and after."""
        return [
            (it, self.now.by_ordinal[it.ordinal]) for it in self.before.columns if it.ordinal in self.now.by_ordinal
        ]

    @cached_property
    def _kept(self) -> list[tuple[DefinedColumn, DefinedColumn]]:
        """Those of them that the article publishes, before and after."""
        return [(old, new) for old, new in self._pairs if old.ordinal in self._ordinals and _is_written(new)]

    @cached_property
    def _recreated(self) -> list[tuple[DefinedColumn, DefinedColumn]]:
        """Columns that are generated and were not, or the other way round, or from something else, before and after."""
        # An expression has the names of now: those of renamed columns and types do not make it another one.
        of_table = self.altered.subject is Subject.TABLE and self.altered.is_locked
        comparable = of_table and not any(old.name != new.name for old, new in self._pairs)
        return [
            (old, new)
            for old, new in self._pairs
            if _is_written(old) != _is_written(new)
            or (comparable and not _is_written(new) and old.default != new.default)
        ]

    @cached_property
    def _dropped(self) -> list[DefinedColumn]:
        """Columns that go from the Subscribers' tables, generated ones first: they may be made of others."""
        gone = [it for it in self.before.columns if it.ordinal not in self.now.by_ordinal]
        chosen = [it for it in (*gone, *(old for old, _ in self._recreated)) if self._is_at_subscribers(it)]
        return sorted(chosen, key=lambda it: it.generation is Generation.NONE)

    @cached_property
    def _added(self) -> list[DefinedColumn]:
        """Columns that the Subscribers' tables gain, generated ones last."""
        if not self.gains_columns:
            return []
        again = {new.ordinal for _, new in self._recreated}
        new = [it for it in self.now.columns if it.ordinal not in self.before.by_ordinal or it.ordinal in again]
        return sorted(new, key=lambda it: it.generation is not Generation.NONE)

    @cached_property
    def _generated(self) -> list[tuple[DefinedColumn, DefinedColumn]]:
        """Columns that were generated and are, before and after."""
        return [(old, new) for old, new in self._pairs if not _is_written(old) and not _is_written(new)]

    @cached_property
    def renamed(self) -> dict[str, str]:
        """The new names of published columns, by those before."""
        return {old.name: new.name for old, new in self._kept if old.name != new.name}

    @cached_property
    def untouched(self) -> frozenset[int]:
        """Ordinals of the columns that are as they were."""
        return frozenset(old.ordinal for old, new in self._pairs if old == new)

    def published(self) -> list[DefinedColumn]:
        """Return the columns that the article publishes from here on, in the table's order."""
        gained = {it.ordinal for it in self._added}
        chosen = [it for it in self.now.columns if it.ordinal in self._ordinals or it.ordinal in gained]
        return [it for it in chosen if _is_written(it)]

    def changes(self) -> tuple[ColumnChange, ...]:
        """Return what is done to the Subscribers' tables, in order."""
        return (
            *(ColumnChange(action=ColumnAction.DROP, column=it.name) for it in self._dropped),
            *self._renames(),
            *self._retypes(),
            *self._nullable(),
            *map(self._addition, self._added),
        )

    def why_unknown(self, dialect: PublisherDialect) -> str | None:
        """Return why the log does not say which rows the table has now; None where it does."""
        if Rewrite.PERSISTENCE in self.altered.rewrite:
            return "a partition was made unlogged, or logged again: the log does not have its rows"
        retyped = [(old, new) for old, new in self._kept if _retyped(old, new)]
        rewritten = Rewrite.TYPE in self.altered.rewrite
        always = self._may_have_rows and any(dialect.rewrites_values(old, new) for old, new in retyped)
        if retyped and (rewritten or always):
            return f"column {', '.join(new.name for _, new in retyped)} got another type"
        uncaptured = [it.name for it in (*(new for _, new in retyped), *self._added) if self._is_uncaptured(it)]
        if uncaptured:
            return f"column {', '.join(uncaptured)} was added or altered by a command that was not captured"
        added = [it.name for it in self._added if self._is_unknown(it)]
        return f"column {', '.join(added)} was added with values that the log does not have" if added else None

    def notes(self) -> tuple[str, ...]:
        """Return what was changed and is left alone at the Subscribers, in words."""
        return (*self._notes_of_new(), *self._notes_of_kept(), *self._notes_of_generated())

    def _notes_of_new(self) -> Iterator[str]:
        if not self.gains_columns:
            for it in self.now.columns:
                if it.ordinal not in self.before.by_ordinal:
                    yield f"column {it.name} is not among the article's columns"
        for it in self._added:
            if it.generation is not Generation.NONE:
                yield (
                    f"column {it.name} is generated and does not travel; with REPLICA IDENTITY FULL, an UPDATE or "
                    "DELETE at the Publisher fails where its publication leaves such columns out"
                )

    def _notes_of_kept(self) -> Iterator[str]:
        for old, new in self._kept:
            if new.not_null and not old.not_null:
                yield f"column {new.name} is NOT NULL now"
            if new.default != old.default and self.altered.is_locked:
                yield f"column {new.name} has another default"
            if new.type_name != old.type_name and not _retyped(old, new):
                yield f"the type of column {new.name} is called {new.type_name} now"

    def _notes_of_generated(self) -> Iterator[str]:
        if self.gains_columns:
            again = {new.ordinal for _, new in self._recreated}
            for old, new in self._generated:
                if new.ordinal not in again and _retyped(old, new):
                    yield f"generated column {new.name} is of type {new.type_name} now"

    def _is_at_subscribers(self, column: DefinedColumn) -> bool:
        return column.ordinal in self._ordinals or (self.gains_columns and not _is_written(column))

    def _is_unknown(self, column: DefinedColumn) -> bool:
        if not _is_written(column) or column.ordinal in self.altered.existing_values:
            return False
        if column.ordinal in self.altered.unread_values or column.ordinal in self.before.by_ordinal:
            return True
        if Rewrite.DEFAULT not in self.altered.rewrite:
            # Its value would be in the message, had it come with this command.
            return column.default is not None and self._may_have_rows
        return column.default is not None or column.is_identity or column.is_of_users_type

    @cached_property
    def _may_have_rows(self) -> bool:
        """A partitioned table has those of its partitions alone."""
        divided = [it.division for it in (self.before, self.now) if it.division is not None]
        return not divided or any(part.holds_rows for it in divided for part in it.partitions)

    def _is_uncaptured(self, column: DefinedColumn) -> bool:
        """Return whether another transaction has added or altered a column, of which there would be a message."""
        own = self.altered.altered
        return own is not None and column.ordinal not in own and _is_written(column)

    def _addition(self, column: DefinedColumn) -> ColumnChange:
        generated = column.generation is not Generation.NONE
        has_default = not generated and column.default is not None and not column.counts
        return ColumnChange(
            action=ColumnAction.ADD,
            column=column.name,
            type_name=column.type_name,
            collation=self._collation(column),
            existing_value=None if generated else self.altered.existing_values.get(column.ordinal),
            default=column.default if has_default else None,
            not_null=column.not_null,
            generation_expression=column.default if generated else None,
        )

    def _retypes(self) -> Iterator[ColumnChange]:
        for old, new in self._kept:
            if _retyped(old, new):
                yield ColumnChange(
                    action=ColumnAction.RETYPE,
                    column=new.name,
                    type_name=new.type_name,
                    collation=self._collation(new),
                )

    def _nullable(self) -> Iterator[ColumnChange]:
        for old, new in self._kept:
            if old.not_null and not new.not_null:
                yield ColumnChange(action=ColumnAction.DROP_NOT_NULL, column=new.name)

    def _collation(self, column: DefinedColumn) -> str | None:
        return None if column.collation_oid is None else self.altered.collations.get(column.collation_oid)

    def _renames(self) -> Iterator[ColumnChange]:
        """Yield renames so that no two columns have one name at any time: where names are exchanged, by way of another
        one."""
        generated = self._generated if self.gains_columns else []
        named = {old.name: (old, new) for old, new in (*self._kept, *generated) if old.name != new.name}
        again = {old.ordinal for old, _ in self._recreated}
        waiting = {name: new.name for name, (old, new) in named.items() if old.ordinal not in again}
        columns = {name: named[name] for name in waiting}
        while waiting:
            free = next((old for old, new in waiting.items() if new not in waiting), None)
            if free is not None:
                yield _rename(free, waiting.pop(free), columns[free][1])
                continue
            name, new_name = next(iter(waiting.items()))
            del waiting[name]
            old, new = columns[name]
            by_the_way = f"tranrepl_{old.ordinal}"
            yield _rename(name, by_the_way, new)
            waiting[by_the_way], columns[by_the_way] = new_name, (old, new)


def _rename(old: str, new: str, column: DefinedColumn) -> ColumnChange:
    return ColumnChange(
        action=ColumnAction.RENAME,
        column=old,
        new_name=new,
        generation_expression=None if _is_written(column) else column.default or "",
    )


def _is_written(column: DefinedColumn) -> bool:
    """Return whether a column's values are written by statements: only then do they travel."""
    return column.generation is Generation.NONE


def _retyped(old: DefinedColumn, new: DefinedColumn) -> bool:
    types = [(it.type_oid, it.type_modifier, it.collation_oid) for it in (old, new)]
    return types[0] != types[1]
