"""What can be applied in bulk at a SQL Server Subscriber, read from its catalogue (`sys`).

That shows a login only what it has rights for: triggers and foreign keys that it may not see count as ones that depend
on commit order, and a procedure's text that it may not read as edited.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import sqlalchemy as sa

from tranrepl.model.article import RegisteredArticle
from tranrepl.model.commands import Operation
from tranrepl.model.source_types import source_type
from tranrepl.subscriber.base.bulk_rules import Place, TableFacts, rules_of, unedited_operations
from tranrepl.subscriber.base.staged_bulk import BulkRules, BulkTarget
from tranrepl.subscriber.mssql.catalogue import (
    ROWVERSION,
    CatalogueColumn,
    CatalogueTable,
    ForeignKeyConstraint,
    find_foreign_keys,
    find_tables,
    find_triggers,
)
from tranrepl.subscriber.mssql.procedures import PROCEDURE_NAMES
from tranrepl.subscriber.mssql.sql_text import SCHEMA
from tranrepl.subscriber.mssql.staged_values import Values, staged_column
from tranrepl.subscriber.replication_tables import OBJECTS

_CONSTANT = re.compile(r"NULL|[-+]?[0-9.]+(e[-+]?[0-9]+)?|0x[0-9a-f]*|N?'([^']|'')*'", re.IGNORECASE | re.DOTALL)
_NOW = re.compile(
    r"(getdate|getutcdate|sysdatetime|sysutcdatetime|sysdatetimeoffset)\(\)|current_timestamp", re.IGNORECASE
)
"""A moment of the statement: it depends on no order."""


def bulk_rules(
    session: sa.Connection, articles: Mapping[int, RegisteredArticle], places: Mapping[int, Place]
) -> BulkRules[Values]:
    """Read the catalogue, for all articles at once; `places` are their tables'."""
    tables = _read_tables(session, list(places.values()))
    unedited = unedited_operations(articles, PROCEDURE_NAMES, partial(_still_as_made, session))
    return rules_of(articles, places, tables.of_article, unedited, tables.references)


def bulk_target(session: sa.Connection, article: RegisteredArticle, place: Place) -> BulkTarget[Values] | None:
    """Return the article's table, where all of its columns can be staged; else None."""
    table = _read_tables(session, [place]).of_article(article, place)
    return None if table is None else table.target(article)


@dataclass(frozen=True, slots=True)
class _Table:
    """A table that can be written in bulk at all."""

    table: CatalogueTable
    trigger_events: frozenset[str]
    cascades: bool

    def target(self, article: RegisteredArticle) -> BulkTarget[Values] | None:
        """Return the article's table as bulk statements name it; None where a column cannot be staged."""
        columns = {it.name: it for it in self.table.columns}
        staged = []
        for column in article.columns:
            to = columns.get(column.name)
            if to is not None and not to.is_filled_by_the_server:
                staged.append(staged_column(source_type(column.type_name), to))
        known = tuple(it for it in staged if it is not None)
        return BulkTarget(article, self.place, known) if len(known) == len(article.columns) else None

    @property
    def place(self) -> Place:
        schema, name = self.table.place
        return schema or SCHEMA, name

    def facts(self) -> TableFacts:
        columns = self.table.columns
        return TableFacts(
            [frozenset(it.columns) for it in self.table.unique_indexes if not it.filtered],
            frozenset(it for it in Operation if it.name in self.trigger_events),
            self.cascades,
            filled_in_order=frozenset(it.name for it in columns if not _has_constant_default(it)),
            filled_at_update=any(it.type_name == ROWVERSION for it in columns),
            fixed=frozenset(it.name for it in columns if it.identity is not None),
        )


def _has_constant_default(column: CatalogueColumn) -> bool:
    """Return whether a column that an INSERT leaves out is filled alike, whatever the order."""
    if column.identity is not None or column.type_name == ROWVERSION:
        return False
    if column.computed is not None or column.default is None:
        return True
    default = _without_parentheses(column.default)
    return bool(_CONSTANT.fullmatch(default) or _NOW.fullmatch(default))


def _without_parentheses(definition: str) -> str:
    """Return a default without the parentheses that the catalogue puts around it: `((5))`."""
    while definition.startswith("(") and definition.endswith(")"):
        definition = definition[1:-1].strip()
    return definition


@dataclass(frozen=True, slots=True)
class _Tables:
    by_place: Mapping[Place, _Table]
    """By the places asked for."""
    references: frozenset[tuple[Place, Place]]
    """Child and parent."""

    def of_article(self, article: RegisteredArticle, place: Place) -> _Table | None:
        """Return the article's table, its published columns named as they are published."""
        found = self.by_place.get(place)
        if found is None:
            return None
        return replace(found, table=found.table.spelled_as([column.name for column in article.columns]))


def _read_tables(session: sa.Connection, places: Sequence[Place]) -> _Tables:
    found = find_tables(session, list(dict.fromkeys(places)))
    ids = {it.place: it.object_id for it in found.values()}
    keys = find_foreign_keys(session, found.values())
    triggers = find_triggers(session, found.values())
    properties = _properties(session, list(ids.values()))
    acting = {ids.get(it.referenced) for it in keys if it.acts}
    referenced = {ids.get(it.referenced) for it in keys}
    tables = {}
    for place, table in found.items():
        number = table.object_id
        known = properties.get(number)
        if known is None or known.keeps_history or not known.is_visible:
            continue
        events = [it.events for it in triggers.get(number, ()) if it.enabled]
        # A foreign key of a table that the login may not see.
        unseen = known.is_referenced and number not in referenced
        tables[place] = _Table(table, frozenset().union(*events), cascades=number in acting or unseen)
    return _Tables(_by_names(tables), _references(found, keys))


def _by_names(tables: Mapping[tuple[str | None, str], _Table]) -> dict[Place, _Table]:
    """Return the tables of which no other name was asked for: only the order keeps rows of two articles apart."""
    names: dict[int, list[tuple[str | None, str]]] = defaultdict(list)
    for place, it in tables.items():
        names[it.table.object_id].append(place)
    return {
        (schema or SCHEMA, name): tables[(schema, name)] for ((schema, name), *others) in names.values() if not others
    }


def _references(
    found: Mapping[tuple[str | None, str], CatalogueTable], keys: Iterable[ForeignKeyConstraint]
) -> frozenset[tuple[Place, Place]]:
    asked = {it.place: (schema or SCHEMA, name) for (schema, name), it in found.items()}
    return frozenset(
        (asked[it.table], asked[it.referenced]) for it in keys if it.table in asked and it.referenced in asked
    )


@dataclass(frozen=True, slots=True)
class _Properties:
    keeps_history: bool
    is_referenced: bool
    """Another table's foreign key refers to it."""
    is_visible: bool
    """The login sees its triggers."""


def _properties(session: sa.Connection, ids: Sequence[int]) -> dict[int, _Properties]:
    rows = session.execute(_PROPERTIES, {"ids": ids}) if ids else ()
    return {
        number: _Properties(bool(history), bool(parent), bool(visible)) for number, history, parent, visible in rows
    }


def _still_as_made(session: sa.Connection, names: Sequence[str]) -> list[str]:
    rows = session.execute(_PROCEDURES, {"schema": SCHEMA, "names": names})
    return [name for name, made, found in rows if made == found]


_PROPERTIES = sa.text(
    "select t.object_id, objectproperty(t.object_id, N'TableTemporalType'), "
    "objectproperty(t.object_id, N'TableHasForeignRef'), "
    "has_perms_by_name(quotename(s.name) + N'.' + quotename(t.name), N'OBJECT', N'VIEW DEFINITION') "
    "| has_perms_by_name(quotename(s.name) + N'.' + quotename(t.name), N'OBJECT', N'ALTER') "
    "from sys.tables as t join sys.schemas as s on s.schema_id = t.schema_id where t.object_id in :ids"
).bindparams(sa.bindparam("ids", expanding=True))
_PROCEDURES = sa.text(
    f"select o.object_name, o.object_text, modules.definition from {OBJECTS.name} as o "
    "left join sys.sql_modules as modules "
    "on modules.object_id = object_id(quotename(:schema) + N'.' + quotename(o.object_name), N'P') "
    "where o.object_name in :names"
).bindparams(sa.bindparam("names", expanding=True))
