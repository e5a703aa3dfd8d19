"""Enumerated types and their labels at a PostgreSQL Subscriber, as they follow the Publisher's.

A type is the one that the destination's column has, whatever it is called there: a rename of it may not have come, or
another article may be ahead.

Source: PostgreSQL documentation, `ALTER TYPE`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from psycopg import sql

from tranrepl.model.article import RegisteredArticle
from tranrepl.model.names import TableName
from tranrepl.model.schema_change import LabelAction, LabelChange, SchemaChange
from tranrepl.model.table_definition import TableDefinition, added_labels
from tranrepl.postgres.catalogue import qualified
from tranrepl.postgres.session import Session
from tranrepl.subscriber.postgres.rights import create_missing_schema

_TYPES_OF_COLUMNS = """
SELECT a.attname::text, coalesce(e.oid, t.oid)::bigint
  FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
  LEFT JOIN pg_catalog.pg_type e ON e.oid = t.typelem AND t.typcategory = 'A'
 WHERE a.attrelid = pg_catalog.to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped
   AND coalesce(e.typtype, t.typtype) = 'e'
"""
_TYPE = """
SELECT t.oid::bigint, n.nspname::text, t.typname::text,
       ARRAY(SELECT enumlabel::text FROM pg_catalog.pg_enum WHERE enumtypid = t.oid ORDER BY enumsortorder)
  FROM pg_catalog.pg_type t JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
 WHERE t.oid = coalesce(%s::oid, pg_catalog.to_regtype(%s)) AND t.typtype = 'e'
"""
_IS_TAKEN = "SELECT pg_catalog.to_regtype(%s) IS NOT NULL"
_LOCKED_HERE = """
SELECT EXISTS (SELECT FROM pg_catalog.pg_locks
                WHERE pid = pg_catalog.pg_backend_pid() AND locktype = 'object' AND mode = 'ExclusiveLock' AND granted
                  AND classid = 'pg_catalog.pg_type'::pg_catalog.regclass
                  AND objid = coalesce(%s::oid, pg_catalog.to_regtype(%s)))
"""

Numbers = Mapping[str, int]
"""The Subscriber's numbers of types, by their names at the Publisher, before a change and after it."""


@dataclass(frozen=True, slots=True)
class _EnumType:
    name: TableName
    """As this session sees it."""
    labels: Sequence[str]


def type_numbers(session: Session, old: RegisteredArticle, new: RegisteredArticle, change: SchemaChange) -> Numbers:
    """Return the types that a change is about, as far as the destination's columns have them."""
    table = qualified(old.destination).as_string(session)
    there: dict[str, int] = dict(session.execute(_TYPES_OF_COLUMNS, [table]).fetchall())
    names = {it.ordinal: it.name for it in old.columns}
    numbers: dict[str, int] = {}
    for column in (*new.columns, *old.columns):
        number = there.get(names.get(column.ordinal, ""))
        if number is not None:
            numbers[column.type_name.removesuffix("[]")] = number
    for it in change.labels:
        if it.action is LabelAction.RENAME_TYPE and it.new_type_name is not None:
            found = session.execute(_TYPE, [numbers.get(it.type_name), it.type_name]).fetchone()
            if found is not None:
                numbers |= {it.type_name: found[0], it.new_type_name: found[0]}
    return numbers


def alters_a_type(session: Session, change: SchemaChange, numbers: Numbers) -> bool:
    """Return whether the open transaction has altered a type to which a change adds labels: until its end no other
    session can."""
    types = {it.type_name for it in change.labels if it.action is LabelAction.ADD}
    return any(session.execute(_LOCKED_HERE, [numbers.get(it), it]).fetchone() == (True,) for it in types)


def add_labels(session: Session, change: SchemaChange, numbers: Numbers) -> Iterator[str]:
    """Add the labels that a change adds and that are missing, each by itself; yield what was done."""
    for it in change.labels:
        if it.action is not LabelAction.ADD:
            continue
        found = _find(session, it.type_name, numbers)
        if found is None:
            yield _no_type(it.type_name)
        elif it.label not in found.labels:
            yield _execute(session, added_label(it, found.name, known=it.before in found.labels))


def add_missing_labels(session: Session, table: TableName, source: TableDefinition) -> Iterator[str]:
    """Add the labels that the Publisher's types have and those of the destination lack, as where labels were renamed
    while no message came of it; yield what was done."""
    columns: dict[str, int] = dict(session.execute(_TYPES_OF_COLUMNS, [qualified(table).as_string(session)]).fetchall())
    there = {it.type_name.removesuffix("[]"): columns[it.name] for it in source.columns if it.name in columns}
    for it in source.enumerated.values():
        found = _find(session, it.name, there)
        if found is not None:
            for label, following in added_labels(found.labels, it.labels or ()):
                added = LabelChange(action=LabelAction.ADD, type_name=it.name, label=label, before=following)
                yield _execute(session, added_label(added, found.name, known=True))


def rename_types(session: Session, where: str, change: SchemaChange, numbers: Numbers) -> Iterator[str]:
    """Rename the types that a change renames and that have their old names, inside the open transaction; yield what was
    done. Raises MissingRightError where a type may not be moved."""
    for it in change.labels:
        if it.action is LabelAction.RENAME_TYPE:
            found = _find(session, it.type_name, numbers)
            if found is None:
                yield _no_type(it.type_name)
            else:
                yield from _rename_type(session, where, it, found)


def _rename_type(session: Session, where: str, change: LabelChange, found: _EnumType) -> Iterator[str]:
    before, now = _names(change)
    if found.name == now:
        return
    if found.name != before:
        yield f"type {found.name} keeps its name: the Publisher's is {now} now"
    elif session.execute(_IS_TAKEN, [change.new_type_name]).fetchone() == (True,):
        yield f"type {found.name} keeps its name: there is another type {now}"
    else:
        yield from create_missing_schema(session, where, now.schema)
        for statement in renamed_type(change):
            yield _execute(session, statement)


def _find(session: Session, type_name: str, numbers: Numbers) -> _EnumType | None:
    row = session.execute(_TYPE, [numbers.get(type_name), type_name]).fetchone()
    return None if row is None else _EnumType(TableName(row[1], row[2]), row[3])


def _no_type(type_name: str) -> str:
    return f"{type_name} is no enumerated type here: it was left alone, with its labels"


def added_label(change: LabelChange, name: TableName, *, known: bool) -> sql.Composed:
    """Return what adds a label before another one; where that is not known at the Subscriber, it gives no place."""
    before = known and change.before is not None
    place = sql.SQL(" BEFORE {}").format(sql.Literal(change.before)) if before else sql.SQL("")
    return _altered(name, sql.SQL("ADD VALUE IF NOT EXISTS {}").format(sql.Literal(change.label)) + place)


def renamed_type(change: LabelChange) -> Iterator[sql.Composed]:
    """Yield what gives a type another schema, and another name."""
    before, now = _names(change)
    if before.schema != now.schema:
        moved = sql.SQL("ALTER TYPE {} SET SCHEMA {}")
        yield moved.format(qualified(before), sql.Identifier(now.schema))
    if before.table != now.table:
        renamed = sql.SQL("ALTER TYPE {} RENAME TO {}")
        yield renamed.format(qualified(TableName(now.schema, before.table)), sql.Identifier(now.table))


def type_name_of(change: LabelChange) -> TableName:
    """Return the type's name before a change."""
    return TableName.parse(change.type_name)


def _names(change: LabelChange) -> tuple[TableName, TableName]:
    return type_name_of(change), TableName.parse(change.new_type_name or change.type_name)


def _altered(name: TableName, action: sql.Composable) -> sql.Composed:
    return sql.SQL("ALTER TYPE {} {}").format(qualified(name), action)


def _execute(session: Session, statement: sql.Composed) -> str:
    session.execute(statement)
    return statement.as_string(None)
