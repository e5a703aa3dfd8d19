"""What can be applied in bulk at a MariaDB or MySQL Subscriber, read from `information_schema`.

That shows a login only what it has rights for: a trigger or a procedure's text that it may not see counts as one that
depends on commit order.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from tranrepl.model.article import RegisteredArticle
from tranrepl.model.commands import Operation
from tranrepl.model.source_types import source_type
from tranrepl.subscriber.base.bulk_rules import Place, TableFacts, rules_of, unedited_operations
from tranrepl.subscriber.base.staged_bulk import BulkRules, BulkTarget, StagedColumn
from tranrepl.subscriber.mariadb.literals import ColumnDeclaration, literals
from tranrepl.subscriber.mariadb.procedures import PROCEDURE_NAMES, ends_with_body
from tranrepl.subscriber.replication_tables import OBJECTS

_CONSTANT = re.compile(r"NULL|-?[0-9.]+(e[+-]?[0-9]+)?|[bx]?'([^'\\]|''|\\.)*'", re.IGNORECASE | re.DOTALL)
_NOW = re.compile(r"(current_timestamp|curdate|curtime|now)(\([0-9]*\))?", re.IGNORECASE)
"""A moment of the statement: it depends on no order."""
_NO_ACTION = frozenset({"RESTRICT", "NO ACTION"})


def bulk_rules(
    session: sa.Connection, articles: Mapping[int, RegisteredArticle], places: Mapping[int, Place]
) -> BulkRules[pa.StringArray]:
    """Read the catalogue, for all articles at once; `places` are their tables'."""
    catalogue = _Catalogue.read(session, sorted(set(places.values())))
    unedited = unedited_operations(articles, PROCEDURE_NAMES, partial(_still_as_made, session))

    def table_of(article: RegisteredArticle, place: Place) -> _Table | None:
        del article
        return catalogue.tables.get(place)

    return rules_of(articles, places, table_of, unedited, catalogue.references)


def bulk_target(session: sa.Connection, article: RegisteredArticle, place: Place) -> BulkTarget[pa.StringArray] | None:
    """Return the article's table, where all of its columns have literals; else None."""
    table = _Catalogue.read(session, [place]).tables.get(place)
    return None if table is None else table.target(article)


@dataclass(slots=True)
class _Table:
    place: Place
    has_constant_default: _HasConstantDefault
    columns: dict[str, ColumnDeclaration] = field(default_factory=dict)
    unique_keys: dict[str, set[str]] = field(default_factory=dict)
    trigger_events: set[str] = field(default_factory=set)
    cascades: bool = False

    def target(self, article: RegisteredArticle) -> BulkTarget[pa.StringArray] | None:
        staged = []
        for column in article.columns:
            declared = self.columns.get(column.name)
            values = None if declared is None else literals(source_type(column.type_name), declared)
            if declared is None or values is None:
                return None
            text = declared.collation is not None
            staged.append(StagedColumn(declared.name, _declaration(declared), values, spelled=text))
        key = {staged[at].name for at in article.key_positions}
        index = next((name for name, columns in sorted(self.unique_keys.items()) if columns <= key), None)
        return BulkTarget(article, self.place, tuple(staged), index)

    def facts(self) -> TableFacts:
        return TableFacts(
            [frozenset(it) for it in self.unique_keys.values()],
            frozenset(it for it in Operation if it.name in self.trigger_events),
            self.cascades,
            filled_in_order=frozenset(it.name for it in self.columns.values() if not self.has_constant_default(it)),
            counting=frozenset(it.name for it in self.columns.values() if _counts_up(it)),
            filled_at_update=any(_fills_at_update(it) for it in self.columns.values()),
        )


def _declaration(column: ColumnDeclaration) -> str:
    """Declare a column of the same type, so that an index serves and a comparison is the same."""
    if column.charset is None:
        return f"{column.column_type} NULL"
    return f"{column.column_type} CHARACTER SET {column.charset} COLLATE {column.collation} NULL"


def _counts_up(column: ColumnDeclaration) -> bool:
    return "auto_increment" in column.extra.lower()


def _fills_at_update(column: ColumnDeclaration) -> bool:
    return "on update" in column.extra.lower()


def _is_generated(column: ColumnDeclaration) -> bool:
    return bool(re.search(r"\b(virtual|stored|persistent)\b", column.extra, re.IGNORECASE))


class _HasConstantDefault:
    """Whether a column that an INSERT leaves out is filled alike, whatever the order."""

    def __init__(self, *, is_mariadb: bool) -> None:
        self._is_mariadb = is_mariadb

    def __call__(self, column: ColumnDeclaration) -> bool:
        if _counts_up(column):
            return False
        if column.default is None or _is_generated(column) or _NOW.fullmatch(column.default):
            return True
        if self._is_mariadb:
            return _CONSTANT.fullmatch(column.default) is not None
        # MySQL shows constants without quotes, and marks expressions.
        return "default_generated" not in column.extra.lower()


@dataclass(frozen=True, slots=True)
class _Catalogue:
    tables: dict[Place, _Table]
    references: set[tuple[Place, Place]]
    """Child and parent."""

    @classmethod
    def read(cls, session: sa.Connection, places: Sequence[Place]) -> _Catalogue:
        """Read the tables that can be written in bulk at all."""
        reader = _Reader(session, places)
        is_constant = _HasConstantDefault(is_mariadb=getattr(session.dialect, "is_mariadb", True))
        tables = {
            place: _Table(place, is_constant)
            for place, engine in reader.by_place(_TABLES)
            if (engine or "").lower() == "innodb"
        }
        watched = {place for place, *_ in reader.by_place(_WATCHED)}
        for place in tables.keys() - watched:
            del tables[place]
        for place, *declared in reader.by_place(_COLUMNS):
            if place in tables:
                column = ColumnDeclaration(*declared)
                tables[place].columns[column.name] = column
        for place, index, column in reader.by_place(_UNIQUE_KEYS):
            if place in tables:
                tables[place].unique_keys.setdefault(index, set()).add(column)
        for place, events in reader.by_place(_TRIGGERS):
            if place in tables:
                tables[place].trigger_events.update(events.upper().replace(" ", "").split(","))
        references = reader.references() if session.scalar(sa.text("SELECT @@foreign_key_checks")) else []
        for _, parent, *rules in references:
            if parent in tables and not _NO_ACTION.issuperset(rules):
                tables[parent].cascades = True
        return cls(tables, {(child, parent) for child, parent, *_ in references})


@dataclass(frozen=True, slots=True)
class _Reader:
    session: sa.Connection
    places: Sequence[Place]

    def by_place(self, query: sa.TextClause) -> Iterable[tuple[Any, ...]]:
        """Yield rows with schema and name made one. Names are compared here: collations take unlike ones for one."""
        wanted = set(self.places)
        for schema, name, *rest in self._rows(query):
            if (schema, name) in wanted:
                yield ((schema, name), *rest)

    def references(self) -> list[tuple[Place, Place, str, str]]:
        return [((it[0], it[1]), (it[2], it[3]), it[4], it[5]) for it in self._rows(_REFERENCES)]

    def _rows(self, query: sa.TextClause) -> Sequence[Sequence[Any]]:
        if not self.places:
            return []
        names: dict[str, set[str]] = defaultdict(set)
        for schema, name in self.places:
            names["schemas"].add(schema)
            names["names"].add(name)
        bound = {given: sorted(its) for given, its in names.items()}
        return self.session.execute(query, bound).all()


def _still_as_made(session: sa.Connection, names: Sequence[str]) -> list[str]:
    return [name for name, text, body in _procedures(session, names) if body and ends_with_body(text, body)]


def _procedures(session: sa.Connection, names: Sequence[str]) -> Sequence[Sequence[Any]]:
    """Return what setup registered, and the body that is there; nothing where the login may not look."""
    try:
        return session.execute(_PROCEDURES, {"names": names}).all()
    except DBAPIError:
        session.rollback()
        return []


def _of_places(select: str, schema: str = "table_schema", name: str = "table_name") -> sa.TextClause:
    query = sa.text(f"{select} {schema} IN :schemas AND {name} IN :names")
    return query.bindparams(sa.bindparam("schemas", expanding=True), sa.bindparam("names", expanding=True))


_TABLES = _of_places(
    "SELECT table_schema, table_name, engine FROM information_schema.tables WHERE table_type = 'BASE TABLE' AND"
)
_COLUMNS = _of_places(
    "SELECT table_schema, table_name, column_name, LOWER(data_type), column_type, character_set_name, collation_name, "
    "character_maximum_length, numeric_scale, datetime_precision, column_default, extra "
    "FROM information_schema.columns WHERE"
)
_UNIQUE_KEYS = _of_places(
    "SELECT table_schema, table_name, index_name, column_name FROM information_schema.statistics "
    "WHERE non_unique = 0 AND"
)
_TRIGGERS = _of_places(
    "SELECT event_object_schema, event_object_table, event_manipulation FROM information_schema.triggers WHERE",
    "event_object_schema",
    "event_object_table",
)
_REFERENCES = _of_places(
    "SELECT constraint_schema, table_name, unique_constraint_schema, referenced_table_name, update_rule, delete_rule "
    "FROM information_schema.referential_constraints WHERE",
    "unique_constraint_schema",
    "referenced_table_name",
)
_MINE = "p.grantee = CONCAT('''', REPLACE(CURRENT_USER(), '@', '''@'''), '''') AND p.privilege_type = 'TRIGGER'"
_WATCHED = _of_places(
    "SELECT t.table_schema, t.table_name FROM information_schema.tables t "
    f"WHERE (EXISTS (SELECT 1 FROM information_schema.user_privileges p WHERE {_MINE}) "
    "OR EXISTS (SELECT 1 FROM information_schema.schema_privileges p "
    f"WHERE {_MINE} AND t.table_schema LIKE p.table_schema) "
    "OR EXISTS (SELECT 1 FROM information_schema.table_privileges p "
    f"WHERE {_MINE} AND p.table_schema = t.table_schema AND p.table_name = t.table_name)) AND",
    "t.table_schema",
    "t.table_name",
)
"""Tables whose triggers the login would see."""
_PROCEDURES = sa.text(
    f"SELECT o.object_name, o.object_text, r.routine_definition FROM {OBJECTS.name} o "
    "JOIN information_schema.routines r ON CAST(r.routine_name AS BINARY) = CAST(o.object_name AS BINARY) "
    "WHERE r.routine_type = 'PROCEDURE' AND r.routine_schema = DATABASE() AND o.object_name IN :names"
).bindparams(sa.bindparam("names", expanding=True))
