"""What a database's catalogue says of tables: their columns, unique keys and foreign keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol

import sqlalchemy as sa
from sqlalchemy.engine.interfaces import ReflectedColumn
from sqlalchemy.exc import NoSuchTableError

from tranrepl.errors import ConfigurationError
from tranrepl.model.names import TableName
from tranrepl.subscriber.capabilities import NameCase

Place = tuple[str | None, str]
"""Schema and name of a table; without a schema, where the session's own tables are."""


FILLS_ITSELF = "tranrepl_fills_itself"
"""Says of a column's description, beside what SQLAlchemy says, that an UPDATE without the column fills it."""
UniqueColumns = tuple[str | None, ...]
"""Columns of a primary key, unique constraint or unique index; None for an expression."""


@dataclass(frozen=True, slots=True)
class ReferringColumns:
    """A foreign key: `columns[i]` refers to `referenced_columns[i]`."""

    columns: tuple[str, ...]
    referenced: Place
    referenced_columns: tuple[str, ...]
    acts: bool = True
    """It is not disabled."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a table may not take commands, as in "is …", and the statement that mends it."""

    why: str
    remedy: str

    def error(self, where: str, table: TableName | str, article: TableName | None = None) -> ConfigurationError:
        return ConfigurationError(
            f"{where}: table {table} {self.why}",
            remedy=f"run at the Subscriber: {self.remedy}",
            article=None if article is None else str(article),
        )


@dataclass(frozen=True, slots=True)
class Destination:
    """A table as the Subscriber's catalogue describes it."""

    columns: Mapping[str, ReflectedColumn]
    unique_keys: tuple[frozenset[str], ...]
    """Columns of the primary key and of unique constraints: no two rows have the same values in them."""
    name_case: NameCase = NameCase.SENSITIVE
    """The case of columns' names."""
    refusal: Refusal | None = None

    def spelled_as(self, names: Sequence[str]) -> Destination:
        """Return the table with its columns' names spelled as in `names`, where they differ in case alone and the
        database takes one for the other. A column's description keeps the name that the catalogue has."""
        spelled = respelled(self.columns, names, self.name_case)
        if not spelled:
            return self
        return replace(
            self,
            columns={spelled.get(name, name): it for name, it in self.columns.items()},
            unique_keys=tuple(frozenset(spelled.get(name, name) for name in key) for key in self.unique_keys),
        )

    def settable(self, name: str) -> bool:
        return "computed" not in self.columns[name]

    def fills_itself(self, name: str) -> bool:
        """Return whether an UPDATE that leaves it out gives it a value of the database's own."""
        described: Mapping[str, object] = self.columns[name]
        return described.get(FILLS_ITSELF) is True

    def is_identity(self, name: str) -> bool:
        """Return whether it is an identity to which neither INSERT nor UPDATE may give a value."""
        identity = self.columns[name].get("identity")
        return identity is not None and identity.get("always", True)


def respelled(found: Iterable[str], names: Sequence[str], name_case: NameCase) -> dict[str, str]:
    """Return, by a table's names of columns, those of `names` that the database takes for them although they differ in
    case; none for one that could be taken for two."""
    if name_case is NameCase.SENSITIVE:
        return {}
    here, wanted = _by_letters(found), _by_letters(names)
    return {
        here[letters][0]: spellings[0]
        for letters, spellings in wanted.items()
        if len(spellings) == 1 and len(here.get(letters, ())) == 1 and here[letters] != spellings
    }


def _by_letters(names: Iterable[str]) -> dict[str, list[str]]:
    """Return names by what they are without their case."""
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(name.casefold(), []).append(name)
    return found


@dataclass(frozen=True, slots=True)
class PrimaryKey:
    """A table's primary key."""

    name: str | None
    """None where the database has no name for it."""
    columns: tuple[str, ...]


class Catalogue(Protocol):
    """Answers for many tables at a time; a table that is not there has no entry."""

    def destinations(self, places: Sequence[Place]) -> Mapping[Place, Destination]:
        """Return the tables' columns, and the unique keys that tell their rows apart."""
        ...

    def unique_keys(self, places: Sequence[Place]) -> Mapping[Place, Sequence[UniqueColumns]]:
        """Return whatever is unique, also among some rows only."""
        ...

    def foreign_keys(self, places: Sequence[Place]) -> Mapping[Place, Sequence[ReferringColumns]]:
        """Return the tables' foreign keys."""
        ...

    def primary_key(self, place: Place) -> PrimaryKey | None:
        """Return a table's primary key; None where it has none, or is not there."""
        ...


class InspectedCatalogue:
    """The catalogue as SQLAlchemy reads it, table by table."""

    def __init__(
        self,
        session: sa.Connection,
        columns: Callable[[sa.Connection, str | None, str], Sequence[ReflectedColumn]],
        column_name: Callable[[str], str],
    ) -> None:
        self._session = session
        self._inspector = sa.inspect(session)
        self._columns = columns
        self._column_name = column_name

    def destinations(self, places: Sequence[Place]) -> Mapping[Place, Destination]:
        found = {place: self._destination(*place) for place in places}
        return {place: it for place, it in found.items() if it is not None}

    def unique_keys(self, places: Sequence[Place]) -> Mapping[Place, Sequence[UniqueColumns]]:
        return {place: self._unique_keys(*place) for place in places}

    def foreign_keys(self, places: Sequence[Place]) -> Mapping[Place, Sequence[ReferringColumns]]:
        found: dict[Place, Sequence[ReferringColumns]] = {}
        for place in places:
            with suppress(NoSuchTableError):
                found[place] = self._foreign_keys(*place)
        return found

    def primary_key(self, place: Place) -> PrimaryKey | None:
        schema, name = place
        try:
            found = self._inspector.get_pk_constraint(name, schema)
        except NoSuchTableError:
            return None
        columns = tuple(map(self._column_name, found["constrained_columns"]))
        return PrimaryKey(found["name"], columns) if columns else None

    def _destination(self, schema: str | None, table: str) -> Destination | None:
        try:
            columns = self._columns(self._session, schema, table)
            keys = self._constraints(schema, table)
        except NoSuchTableError:
            return None
        if not columns:
            return None
        return Destination(
            {name: {**it, "name": name} for it in columns for name in [self._column_name(it["name"])]},
            tuple(frozenset(name for name in key if name) for key in keys),
        )

    def _constraints(self, schema: str | None, table: str) -> list[UniqueColumns]:
        """Return the columns of the primary key and of unique constraints."""
        keys: list[Sequence[str | None]] = [self._inspector.get_pk_constraint(table, schema)["constrained_columns"]]
        keys += [it["column_names"] for it in self._inspector.get_unique_constraints(table, schema)]
        return [self._named(it) for it in keys if it]

    def _unique_keys(self, schema: str | None, table: str) -> list[UniqueColumns]:
        indexes = [it["column_names"] for it in self._inspector.get_indexes(table, schema) if it["unique"]]
        return list(dict.fromkeys([*self._constraints(schema, table), *(self._named(it) for it in indexes if it)]))

    def _named(self, columns: Sequence[str | None]) -> UniqueColumns:
        return tuple(None if it is None else self._column_name(it) for it in columns)

    def _foreign_keys(self, schema: str | None, table: str) -> list[ReferringColumns]:
        return [
            ReferringColumns(
                tuple(map(self._column_name, found["constrained_columns"])),
                (found["referred_schema"] or schema, found["referred_table"]),
                tuple(map(self._column_name, found["referred_columns"])),
            )
            for found in self._inspector.get_foreign_keys(table, schema)
        ]
