"""The primary key of a destination whose article got another one, where SQLAlchemy reaches the Subscriber.

What was done before a crash is found by the catalogue, and is not done again.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from tranrepl.errors import ConfigurationError
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.schema_change import ColumnAction, SchemaChange
from tranrepl.subscriber.base.catalogue import PrimaryKey
from tranrepl.subscriber.base.column_steps import ColumnStatements, RetypedColumn
from tranrepl.subscriber.base.database import SqlDatabase
from tranrepl.subscriber.base.destination import find_destination
from tranrepl.subscriber.base.identifiers import always_quoted, table_clause
from tranrepl.subscriber.batching.steps import SchemaStep


@dataclass(frozen=True, slots=True)
class AddedToKey:
    """A column of the new key that is not there yet: the Publisher's type, and the value that all rows have in it."""

    type_name: str
    value: str | None


class KeyChanges:
    """The table of one article, whose columns are changed already."""

    def __init__(
        self, session: sa.Connection, database: SqlDatabase, article: RegisteredArticle, statements: ColumnStatements
    ) -> None:
        self._session = session
        self._database = database
        self._article = article
        self._statements = statements

    def apply(self, change: KeyChange) -> Iterator[str]:
        """Give the table the new primary key, where it has the old one or has just lost it; yield what was done, in
        words.

        Rows that do not fit the new key are deleted with all others: the article's are copied again.
        """
        if not self._stands_before(change):
            return
        columns, destination = ", ".join(change.now), self._article.destination
        if not self._statements.can_replace_key():
            yield f"{destination} keeps its primary key: the article's is ({columns}) now, change it by hand"
            return
        retyped = self._retyped(change.now)
        table = self._table(change.now)
        if self._rows_do_not_fit(table, retyped):
            self._session.execute(sa.delete(table))
            yield f"rows of {destination} were deleted: they do not fit the new primary key, and are copied again"
        self._statements.replace_key(change.now, retyped)
        yield f"{destination}: {'' if change.lost else 'DROP PRIMARY KEY, '}ADD PRIMARY KEY ({columns})"

    def fits_changed(self, change: KeyChange) -> bool:
        """Return whether the rows fit the new primary key; or the table does not have the old one, and keeps what it
        has."""
        if not self._statements.can_replace_key() or not self._stands_before(change):
            return True
        return not self._rows_do_not_fit(self._table(change.now), self._retyped(change.now))

    def fits(self, columns: Sequence[str], before: Sequence[str], added: Sequence[AddedToKey] = ()) -> bool:
        """Return whether the rows fit a primary key of these columns, which have their names of before, and of those
        that are `added`; or the table does not have the key before, and keeps what it has."""
        if not self._statements.can_replace_key() or not self._has_key(before):
            return True
        table = self._table(columns)
        if any(self._has_no_place(it) for it in added) and self._has_rows(table):
            return False
        return not self._rows_do_not_fit(table, self._retyped(columns))

    def _has_no_place(self, added: AddedToKey) -> bool:
        """Return whether no key takes the value that all rows have in a column."""
        length = getattr(self._database.type_named(added.type_name, indexed=True), "length", None)
        return added.value is None or (length is not None and len(added.value) > length)

    def _has_rows(self, table: sa.TableClause) -> bool:
        return self._session.execute(sa.select(sa.literal(1)).select_from(table).limit(1)).first() is not None

    def _stands_before(self, change: KeyChange) -> bool:
        return self._key() is None if change.lost else self._has_key(change.before)

    def _has_key(self, columns: Sequence[str]) -> bool:
        key = self._key()
        return key is not None and _lower(key.columns) == _lower(columns)

    def _key(self) -> PrimaryKey | None:
        return self._database.catalogue(self._session).primary_key(self._database.place(self._article.destination))

    def _table(self, columns: Sequence[str]) -> sa.TableClause:
        place = self._database.place(self._article.destination)
        return table_clause(place, *(sa.column(always_quoted(it)) for it in columns))

    def _retyped(self, names: Sequence[str]) -> list[RetypedColumn]:
        """Return the columns that get the type which setup gives one of a key, as a text that an index takes."""
        found = find_destination(self._session, self._database, self._article.destination)
        columns = {} if found is None else found.spelled_as(names).columns
        types = {it.name: it.type_name for it in self._article.columns}
        retyped = []
        for name in names:
            plain = self._database.type_named(types[name], indexed=False)
            made = self._database.type_named(types[name], indexed=True)
            has = self._spelled(columns[name]["type"])
            if has == self._spelled(plain) != self._spelled(made):
                retyped.append(RetypedColumn(name, made, self._spelled(made)))
        return retyped

    def _spelled(self, type_: sa.types.TypeEngine[object]) -> str:
        return self._database.described_type(type_, self._session.dialect).spelling

    def _rows_do_not_fit(self, table: sa.TableClause, retyped: Sequence[RetypedColumn]) -> bool:
        columns = list(table.columns)
        twice = sa.select(sa.literal(1)).select_from(table).group_by(*columns).having(sa.func.count() > 1)
        unfit = [it.is_(None) for it in columns]
        for it in retyped:
            length = getattr(it.type, "length", None)
            if length is not None:
                unfit.append(sa.func.char_length(table.c[it.name]) > length)
        single = sa.select(sa.literal(1)).select_from(table).where(sa.or_(sa.false(), *unfit))
        return any(self._session.execute(it.limit(1)).first() is not None for it in (single, twice))


def _lower(names: Sequence[str]) -> list[str]:
    return [it.lower() for it in names]


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
