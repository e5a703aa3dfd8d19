"""SQL Server's catalogue, read in its own SQL: one query for each kind of object, for all tables.

SQLAlchemy's `mssql` dialect says nothing of unique constraints, nor how many digits of a second a column keeps.
Source: "System catalog views" (`sys.columns`, `sys.indexes`, `sys.foreign_keys`, `sys.triggers`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import groupby
from operator import attrgetter
from typing import Any, TypeVar

import sqlalchemy as sa

from tranrepl.subscriber.base.catalogue import Place, respelled
from tranrepl.subscriber.base.identifiers import Identifiers
from tranrepl.subscriber.capabilities import NameCase

Found = TypeVar("Found")

_IDENTIFIERS = Identifiers("mssql")
ROWVERSION = "timestamp"
"""The catalogue's name of the type `rowversion`."""


class ReferentialAction(IntEnum):
    """What a foreign key does to the referring rows; the catalogue's own numbers."""

    NO_ACTION = 0
    CASCADE = 1
    SET_NULL = 2
    SET_DEFAULT = 3


@dataclass(frozen=True, slots=True)
class IdentityColumn:
    not_for_replication: bool
    """A replication agent's session inserts the Publisher's value, and the counter stays where it is."""


@dataclass(frozen=True, slots=True)
class CatalogueColumn:
    name: str
    type_name: str
    """The base type's name where the type is an alias; a CLR type's own."""
    max_length: int
    """Bytes; -1 for `max`."""
    precision: int
    scale: int
    """For a time: the digits of a second's fraction."""
    nullable: bool
    collation: str | None
    code_page: int | None
    """The collation's code page, in which `varchar` is stored."""
    default: str | None
    computed: str | None
    """The expression of a computed column."""
    identity: IdentityColumn | None

    @property
    def is_filled_by_the_server(self) -> bool:
        """Return whether no statement can give it a value."""
        return self.computed is not None or self.type_name == ROWVERSION


@dataclass(frozen=True, slots=True)
class UniqueIndex:
    """A primary key, unique constraint or unique index that is not disabled."""

    name: str
    columns: tuple[str, ...]
    primary_key: bool
    filtered: bool
    """Whether the index has some rows only."""


@dataclass(frozen=True, slots=True)
class ForeignKeyConstraint:
    """`columns[i]` of `table` refers to `referenced_columns[i]` of `referenced`."""

    name: str
    table: Place
    columns: tuple[str, ...]
    referenced: Place
    referenced_columns: tuple[str, ...]
    on_delete: ReferentialAction
    on_update: ReferentialAction
    enabled: bool
    not_for_replication: bool

    @property
    def acts(self) -> bool:
        """Return whether it changes referring rows."""
        return self.enabled and (self.on_delete, self.on_update) != (ReferentialAction.NO_ACTION,) * 2


@dataclass(frozen=True, slots=True)
class Trigger:
    name: str
    events: frozenset[str]
    """INSERT, UPDATE, DELETE."""
    enabled: bool
    not_for_replication: bool


@dataclass(frozen=True, slots=True)
class CatalogueTable:
    """A table as the server has it, under the name that the server has for it."""

    object_id: int
    place: Place
    columns: tuple[CatalogueColumn, ...]
    unique_indexes: tuple[UniqueIndex, ...]
    name_case: NameCase
    """The case of columns' names, by the collation of the catalogue."""

    def spelled_as(self, names: Sequence[str]) -> CatalogueTable:
        """Return the table with its columns' names spelled as in `names`, where the server takes one for the other."""
        spelled = respelled([it.name for it in self.columns], names, self.name_case)
        return replace(
            self,
            columns=tuple(replace(it, name=spelled.get(it.name, it.name)) for it in self.columns),
            unique_indexes=tuple(
                replace(it, columns=tuple(spelled.get(name, name) for name in it.columns)) for it in self.unique_indexes
            ),
        )


def find_tables(session: sa.Connection, places: Sequence[Place]) -> dict[Place, CatalogueTable]:
    """Return the tables and views that are there, by the places asked for; names are compared as the server does."""
    found = _resolved(session, places)
    ids = sorted({row.object_id for row in found.values()})
    columns, indexes = _columns(session, ids), _unique_indexes(session, ids)
    return {
        place: CatalogueTable(
            row.object_id,
            (row.schema_name, row.table_name),
            columns.get(row.object_id, ()),
            indexes.get(row.object_id, ()),
            NameCase.INSENSITIVE if row.ignores_case else NameCase.SENSITIVE,
        )
        for place, row in found.items()
    }


def find_foreign_keys(session: sa.Connection, tables: Iterable[CatalogueTable]) -> tuple[ForeignKeyConstraint, ...]:
    """Return the foreign keys that begin or end at one of the tables; ordered by table and name."""
    rows = _rows(session, _FOREIGN_KEYS, [it.object_id for it in tables])
    return tuple(_foreign_key(list(columns)) for _, columns in groupby(rows, attrgetter("object_id")))


def find_triggers(session: sa.Connection, tables: Iterable[CatalogueTable]) -> dict[int, tuple[Trigger, ...]]:
    """Return the tables' triggers for changes of rows, by object_id; a table without any has no entry."""
    rows = _rows(session, _TRIGGERS, [it.object_id for it in tables])
    return _by_table(_trigger(list(events)) for _, events in groupby(rows, lambda row: (row.table_id, row.object_id)))


def _resolved(session: sa.Connection, places: Sequence[Place]) -> dict[Place, Any]:
    """Return what the server takes each name for: its object_id, and the schema and name that it has there."""
    if not places:
        return {}
    asked = sa.values(sa.column("number", sa.Integer), sa.column("name", sa.Unicode), name="asked").data(
        [(number, _IDENTIFIERS.qualified(*place)) for number, place in enumerate(places)]
    )
    objects = _table("objects", "object_id", "schema_id", "name", "type")
    schemas = _table("schemas", "schema_id", "name")
    # What is joined to a name has its collation, which is the catalogue's.
    in_collation = sa.func.left(objects.c.name, 0).op("+")(sa.literal_column("N'a'"))
    query = (
        sa.select(
            asked.c.number,
            objects.c.object_id,
            schemas.c.name.label("schema_name"),
            objects.c.name.label("table_name"),
            sa.case((in_collation == sa.literal_column("N'A'"), 1), else_=0).label("ignores_case"),
        )
        .join(objects, objects.c.object_id == sa.func.object_id(asked.c.name))
        .join(schemas, schemas.c.schema_id == objects.c.schema_id)
        .where(objects.c.type.in_(["U", "V"]))
    )
    return {places[row.number]: row for row in session.execute(query)}


def _table(name: str, *columns: str) -> sa.TableClause:
    return sa.table(name, *map(sa.column, columns), schema="sys")


def _columns(session: sa.Connection, ids: Sequence[int]) -> dict[int, tuple[CatalogueColumn, ...]]:
    return _by_table(
        (
            row.object_id,
            CatalogueColumn(
                row.name,
                row.type_name,
                row.max_length,
                row.precision,
                row.scale,
                nullable=bool(row.is_nullable),
                collation=row.collation_name,
                code_page=row.code_page,
                default=row.default_definition,
                computed=row.computed_definition,
                identity=IdentityColumn(bool(row.not_for_replication)) if row.is_identity else None,
            ),
        )
        for row in _rows(session, _COLUMNS, ids)
    )


def _unique_indexes(session: sa.Connection, ids: Sequence[int]) -> dict[int, tuple[UniqueIndex, ...]]:
    rows = _rows(session, _UNIQUE_INDEXES, ids)
    return _by_table(
        (table, _unique_index(list(columns)))
        for (table, _), columns in groupby(rows, lambda row: (row.object_id, row.index_id))
    )


def _unique_index(columns: Sequence[Any]) -> UniqueIndex:
    index = columns[0]
    return UniqueIndex(
        index.index_name,
        tuple(it.column_name for it in columns),
        primary_key=bool(index.is_primary_key),
        filtered=bool(index.has_filter),
    )


def _foreign_key(columns: Sequence[Any]) -> ForeignKeyConstraint:
    key = columns[0]
    return ForeignKeyConstraint(
        key.name,
        (key.schema_name, key.table_name),
        tuple(it.column_name for it in columns),
        (key.referenced_schema, key.referenced_table),
        tuple(it.referenced_column for it in columns),
        on_delete=ReferentialAction(key.delete_referential_action),
        on_update=ReferentialAction(key.update_referential_action),
        enabled=not key.is_disabled,
        not_for_replication=bool(key.is_not_for_replication),
    )


def _trigger(events: Sequence[Any]) -> tuple[int, Trigger]:
    trigger = events[0]
    return trigger.table_id, Trigger(
        trigger.name,
        frozenset(it.type_desc for it in events),
        enabled=not trigger.is_disabled,
        not_for_replication=bool(trigger.is_not_for_replication),
    )


def _rows(session: sa.Connection, query: sa.TextClause, ids: Sequence[int]) -> Sequence[Any]:
    return session.execute(query, {"ids": list(ids)}).all() if ids else []


def _by_table(found: Iterable[tuple[int, Found]]) -> dict[int, tuple[Found, ...]]:
    by_table: dict[int, list[Found]] = {}
    for table, it in found:
        by_table.setdefault(table, []).append(it)
    return {table: tuple(its) for table, its in by_table.items()}


def _of_tables(query: str) -> sa.TextClause:
    return sa.text(query).bindparams(sa.bindparam("ids", expanding=True))


_COLUMNS = _of_tables(
    "select c.object_id, c.name, coalesce(b.name, t.name) as type_name, c.max_length, c.precision, c.scale, "
    "c.is_nullable, c.collation_name, convert(int, collationproperty(c.collation_name, 'CodePage')) as code_page, "
    "d.definition as default_definition, m.definition as computed_definition, "
    "c.is_identity, i.is_not_for_replication as not_for_replication "
    "from sys.columns c "
    "left join sys.types t on t.user_type_id = c.user_type_id "
    "left join sys.types b on b.user_type_id = c.system_type_id "
    "left join sys.default_constraints d on d.object_id = c.default_object_id "
    "left join sys.computed_columns m on m.object_id = c.object_id and m.column_id = c.column_id "
    "left join sys.identity_columns i on i.object_id = c.object_id and i.column_id = c.column_id "
    "where c.object_id in :ids order by c.object_id, c.column_id"
)
_UNIQUE_INDEXES = _of_tables(
    "select i.object_id, i.index_id, i.name as index_name, i.is_primary_key, i.has_filter, c.name as column_name "
    "from sys.indexes i "
    "join sys.index_columns x on x.object_id = i.object_id and x.index_id = i.index_id "
    "join sys.columns c on c.object_id = x.object_id and c.column_id = x.column_id "
    "where i.is_unique = 1 and i.is_disabled = 0 and i.is_hypothetical = 0 and x.is_included_column = 0 "
    "and i.object_id in :ids order by i.object_id, i.is_primary_key desc, i.index_id, x.key_ordinal"
)
_FOREIGN_KEYS = _of_tables(
    "select f.object_id, f.name, s.name as schema_name, o.name as table_name, rs.name as referenced_schema, "
    "ro.name as referenced_table, c.name as column_name, rc.name as referenced_column, "
    "f.delete_referential_action, f.update_referential_action, f.is_disabled, "
    "f.is_not_for_replication "
    "from sys.foreign_keys f "
    "join sys.foreign_key_columns k on k.constraint_object_id = f.object_id "
    "join sys.objects o on o.object_id = f.parent_object_id join sys.schemas s on s.schema_id = o.schema_id "
    "join sys.objects ro on ro.object_id = f.referenced_object_id join sys.schemas rs on rs.schema_id = ro.schema_id "
    "join sys.columns c on c.object_id = k.parent_object_id and c.column_id = k.parent_column_id "
    "join sys.columns rc on rc.object_id = k.referenced_object_id and rc.column_id = k.referenced_column_id "
    "where f.parent_object_id in :ids or f.referenced_object_id in :ids "
    "order by s.name, o.name, f.name, f.object_id, k.constraint_column_id"
)
_TRIGGERS = _of_tables(
    "select t.parent_id as table_id, t.object_id, t.name, e.type_desc, t.is_disabled, "
    "t.is_not_for_replication from sys.triggers t join sys.trigger_events e on e.object_id = t.object_id "
    "where t.parent_id in :ids order by t.parent_id, t.object_id"
)
