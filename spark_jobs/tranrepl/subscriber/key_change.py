"""The primary key of a destination whose article got another one."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from tranrepl.errors import ConfigurationError
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.schema_change import ColumnAction, SchemaChange
from tranrepl.subscriber.batching.steps import SchemaStep


@dataclass(frozen=True, slots=True)
class KeyChange:
    """Columns of the old and of the new primary key, in key order, by the names that they have after the change."""

    before: list[str]
    now: list[str]
    lost: bool = False
    """The change drops a column of the old key, and the old key with it."""


def key_change(step: SchemaStep) -> KeyChange | None:
    """Return what becomes of the primary key; None where it stays, or the article's rows are not copied again."""
    return None if step.new is None else changed_key(step.change, step.old, step.new)


def changed_key(change: SchemaChange, old: RegisteredArticle, new: RegisteredArticle) -> KeyChange | None:
    """Return the same of a change between two definitions."""
    if change.rows_unknown is None:
        return None
    names = _key_of(old)
    before = _renamed_key(change, names)
    key = KeyChange(before, _key_of(new), lost=len(before) < len(names))
    return None if key.before == key.now and not key.lost else key


def added_value(change: SchemaChange, name: str) -> str | None:
    """Return what all rows have in a column that the change adds, by its name after the change."""
    values: dict[str, str | None] = {}
    for part in change.columns:
        if part.action is ColumnAction.ADD:
            values[part.column] = part.existing_value
        elif part.action is ColumnAction.RENAME and part.column in values:
            values[part.new_name or part.column] = values.pop(part.column)
    return values.get(name)


@dataclass(frozen=True, slots=True)
class UnfitRows:
    """What becomes of rows that do not fit the new primary key of their table, or its type."""

    copied: bool = False
    """The articles' rows are copied again."""
    shared_tables: frozenset[str] = frozenset()
    """Articles, by source, whose tables keep rows of others then."""

    def may_go(self, article: RegisteredArticle) -> bool:
        """Return whether all rows of the article's table may be deleted: none is another's, and they come again."""
        return self.copied and str(article.source) not in self.shared_tables

    def problem(
        self, where: str, article: RegisteredArticle, key: Sequence[str], why: str | None = None
    ) -> ConfigurationError:
        """Return the error where they may not."""
        if not self.copied:
            return rows_do_not_fit(where, article, key, why or _UNFIT)
        return _rows_of_others_do_not_fit(where, article, key, why or _UNFIT)


_UNFIT = "two have the same values, or one has no value, or one that is too long"


def rows_do_not_fit(where: str, article: RegisteredArticle, key: Sequence[str], why: str) -> ConfigurationError:
    """Return the error for rows that are not to be copied again, and do not fit the new key, or its type."""
    name, source = where.removeprefix("Subscriber "), shlex.quote(str(article.source))
    return ConfigurationError(
        f"article {article.source}: {where}: rows of table {article.destination} do not fit its new primary key "
        f"({', '.join(key)}): {why}",
        remedy=f"correct them at the Subscriber, and deliver again; or `tranrepl reinitialize FILE -s {name} --article "
        f"{source}` copies them",
        article=str(article.source),
    )


def _rows_of_others_do_not_fit(
    where: str, article: RegisteredArticle, key: Sequence[str], why: str
) -> ConfigurationError:
    return ConfigurationError(
        f"article {article.source}: {where}: rows of table {article.destination} that the article's row filter leaves "
        f"to others do not fit its new primary key ({', '.join(key)}): {why}",
        remedy="correct or delete them at the Subscriber, then `tranrepl run FILE`",
        article=str(article.source),
    )


def _key_of(article: RegisteredArticle) -> list[str]:
    return [article.columns[at].name for at in article.key_positions]


def _renamed_key(change: SchemaChange, names: list[str]) -> list[str]:
    """Return the key's columns that are left, by their new names."""
    for part in change.columns:
        if part.action is ColumnAction.DROP:
            names = [name for name in names if name != part.column]
        if part.action is ColumnAction.RENAME:
            names = [part.new_name or name if name == part.column else name for name in names]
    return names
