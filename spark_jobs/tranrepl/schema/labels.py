"""Enum types of published columns: types that were renamed, labels that were added, and labels that were renamed.

Values travel as text. So a renamed label is a label more at a Subscriber, which keeps the old one for commands that
have it; the log does not say which rows have the new name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from tranrepl.model.article import RegisteredArticle
from tranrepl.model.schema_change import LabelAction, LabelChange
from tranrepl.model.table_definition import DefinedType, TableDefinition, added_labels, labels_follow
from tranrepl.schema.dialect import PublisherDialect
from tranrepl.schema.messages import Subject

_RENAMING = (Subject.TYPE, Subject.SCHEMA)


@dataclass(frozen=True)
class LabelDifference:
    """The enum types of one article's published columns, before and after one command."""

    article: RegisteredArticle
    before: TableDefinition
    now: TableDefinition

    def changes(self, subject: Subject) -> Iterator[LabelChange]:
        """Yield what is done to the types and to their labels, each type's once."""
        for known, found in self._types:
            # A transaction that alters something else may not see yet what the type is called.
            if known.name != found.name and subject in _RENAMING:
                yield LabelChange(action=LabelAction.RENAME_TYPE, type_name=known.name, new_type_name=found.name)
            for label, following in added_labels(known.labels or (), found.labels or ()):
                yield LabelChange(action=LabelAction.ADD, type_name=found.name, label=label, before=following)

    def why_unknown(self) -> str | None:
        """Return why the log does not say which rows the table has now; None where it does."""
        names = ", ".join(it.name for it in self._renamed)
        return f"a label of type {names} was renamed" if names else None

    def filtered(self, dialect: PublisherDialect) -> str | None:
        """Return the name of a type of which a label was renamed, and whose values the article's row filter reads."""
        if self.article.filter is None:
            return None
        return self._renamed_in(set(dialect.filter_columns(self.article.filter, self.article.source.table)))

    def dividing(self) -> str | None:
        """Return the name of such a type whose values the Subscribers' partitions may be divided by."""
        division = self.before.division
        if division is None or not self.article.file_names.divided:
            return None
        keys = [division.key_columns, *(it.key_columns for it in division.partitions if not it.holds_rows)]
        if None in keys:
            return self._renamed_in({it.name for it in self.before.columns})
        return self._renamed_in({name for key in keys for name in key or ()})

    def _renamed_in(self, columns: set[str]) -> str | None:
        renamed = {it.oid: it.name for it in self._renamed}
        types = (of.oid for it in self.before.columns if it.name in columns for of in it.types or ())
        return next((renamed[it] for it in types if it in renamed), None)

    @cached_property
    def _renamed(self) -> list[DefinedType]:
        return [known for known, found in self._types if not labels_follow(known.labels or (), found.labels or ())]

    @cached_property
    def _types(self) -> list[tuple[DefinedType, DefinedType]]:
        """The enum types that a published column was made of before and is made of now, before and after."""
        numbers: dict[int, None] = {}
        for it in self.article.columns:
            old, new = self.before.by_ordinal.get(it.ordinal), self.now.by_ordinal.get(it.ordinal)
            if old is not None and new is not None and old.type_oid == new.type_oid:
                known = {of.oid for of in old.types or () if of.labels is not None}
                numbers |= {of.oid: None for of in new.types or () if of.labels is not None and of.oid in known}
        return [(self.before.enumerated[it], self.now.enumerated[it]) for it in numbers]
