"""Random statements for tables as they are at that moment, in the eyes of the session that will execute them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

import psycopg

Session = psycopg.Connection[tuple[Any, ...]]

SCHEMAS = ("public", "aside")
_TABLE = """SELECT c.oid, n.nspname, c.relname, k.conname,
  (SELECT array_agg(x.relname::text) FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid
   WHERE i.indrelid = c.oid AND NOT i.indisprimary)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_constraint k ON k.conrelid = c.oid AND k.contype = 'p'
WHERE c.relkind = 'r' AND n.nspname = ANY (%s) AND c.relname ~ %s"""
_COLUMNS = """SELECT a.attnum, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity,
  coalesce(a.attnum = ANY (i.indkey::int2[]), false)
FROM pg_attribute a LEFT JOIN pg_index i ON i.indrelid = a.attrelid AND i.indisprimary
WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"""
_LABELS = "SELECT enumlabel FROM pg_enum WHERE enumtypid = 'mood'::regtype ORDER BY enumsortorder"

_NAMES = tuple(f"c{number}" for number in range(6))
_TYPES = (
    *("integer", "bigint", "smallint", "text", "character varying(8)", "numeric(9,2)", "boolean", "date"),
    *("timestamp with time zone", "timestamp without time zone", "double precision", "uuid", "mood", "integer[]"),
)
_OTHER_TYPES: Mapping[str, tuple[str, ...]] = {
    "smallint": ("integer",),
    "integer": ("bigint", "bigint USING {0} + 1", "text", "numeric(12,2)"),
    "bigint": ("numeric(22,2)", "text"),
    "character varying(8)": ("varchar(20)", "text", "text USING upper({0})"),
    "character varying(20)": ("text",),
    "text": ("varchar(100) USING left({0}, 100)",),
    "numeric(9,2)": ("numeric(12,2)", "numeric(12,4)", "numeric"),
    "numeric(12,2)": ("numeric",),
    "boolean": ("integer USING {0}::integer",),
    "date": ("timestamp",),
    "timestamp with time zone": ("timestamp",),
    "timestamp without time zone": ("timestamptz",),
    "mood": ("text",),
    "uuid": ("text",),
}
_LONG = "(SELECT string_agg(md5({0} || n::text), '') FROM generate_series(1, 300) n)"


@dataclass(frozen=True, slots=True)
class Column:
    ordinal: int
    name: str
    type_name: str
    not_null: bool
    identity: str
    in_key: bool


@dataclass(frozen=True, slots=True)
class Table:
    """A table under the name that it has now; `base` is the one that it began with."""

    base: str
    oid: int
    schema: str
    name: str
    key_name: str
    indexes: tuple[str, ...]
    columns: tuple[Column, ...]

    @property
    def sql(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def key(self) -> tuple[Column, ...]:
        return tuple(it for it in self.columns if it.in_key)

    @property
    def others(self) -> tuple[Column, ...]:
        return tuple(it for it in self.columns if not it.in_key)


def find_table(session: Session, base: str) -> Table | None:
    """Return the table that is or was called so, as the session sees it; None where it sees it twice, as it was when
    its transaction, at REPEATABLE READ, began, and as that transaction has altered it."""
    found = session.execute(_TABLE, [list(SCHEMAS), f"^{base}(_[0-9])?$"]).fetchall()
    if len(found) != 1:
        return None
    ((oid, schema, name, key_name, indexes),) = found
    columns = tuple(Column(*row) for row in session.execute(_COLUMNS, [oid]).fetchall())
    return Table(base, oid, schema, name, key_name, tuple(indexes or ()), columns)


@dataclass(frozen=True, slots=True)
class Chooser:
    """Composes one statement; `random` makes all choices, and `held` are columns that stay, by their ordinals."""

    session: Session
    table: Table
    random: Random
    held: frozenset[int]

    def statement(self, kind: str) -> str | None:
        """Return SQL; None where the table, as it is now, has nothing to do it with."""
        return STATEMENTS[kind](self)

    def value(self, type_name: str) -> str:  # noqa: C901 — a case for each type
        number = self.random.randrange(10)
        if type_name.startswith("numeric"):
            return f"'{number}.25'" if "," in type_name or type_name == "numeric" else f"'{number}'"
        match type_name:
            case "boolean":
                return f"'{'ft'[number % 2]}'"
            case "date":
                return f"'2024-02-0{number % 9 + 1}'"
            case "timestamp with time zone":
                return f"'2024-02-0{number % 9 + 1} 00:00:00.00000{number}+02'"
            case "timestamp without time zone":
                return f"'2024-02-0{number % 9 + 1} 00:00:00.0{number}'"
            case "double precision":
                return f"'{number / 8}'"
            case "uuid":
                return f"'00000000-0000-0000-0000-00000000000{number}'"
            case "mood":
                return f"'{self.random.choice(self.labels())}'"
            case "integer[]":
                return f"'{{{number},NULL}}'"
            case "text":
                return self.random.choice([f"'{number}'", f"'{number}'", "''", "E'a\\tb\\\\é''|'", self._long(number)])
            case _:
                return f"'{number}'"

    def _long(self, number: int) -> str:
        return _LONG.format(f"'{number}'")

    def labels(self) -> list[str]:
        return [label for (label,) in self.session.execute(_LABELS)]

    def some(self, columns: tuple[Column, ...]) -> Column | None:
        return self.random.choice(columns) if columns else None

    def new_name(self) -> str:
        taken = {it.name for it in self.table.columns}
        return self.random.choice([it for it in (*_NAMES, "c_more") if it not in taken] or [f"d{len(taken)}"])

    def free_columns(self) -> tuple[Column, ...]:
        return tuple(it for it in self.table.others if it.ordinal not in self.held)

    def a_key(self) -> str:
        return " AND ".join(f"{it.name} = {self.value(it.type_name)}" for it in self.table.key)

    def some_rows(self) -> str:
        column = self.table.key[0].name
        first = self.random.randrange(10)
        return f"{column} BETWEEN {first} AND {first + self.random.randrange(4)}"


def _insert(it: Chooser) -> str:
    columns = [
        c for c in it.table.columns if c.identity != "a" and (c.in_key or c.not_null or it.random.random() < 0.8)
    ]
    rows = [_row(it, columns) for _ in range(it.random.randrange(1, 4))]
    names = ", ".join(c.name for c in columns)
    return f"INSERT INTO {it.table.sql} ({names}) VALUES {', '.join(rows)} ON CONFLICT DO NOTHING"


def _row(it: Chooser, columns: list[Column]) -> str:
    return f"({', '.join(_value_or_null(it, c) for c in columns)})"


def _value_or_null(it: Chooser, column: Column) -> str:
    if not column.not_null and it.random.random() < 0.15:
        return "NULL"
    return it.value(column.type_name)


def _update(it: Chooser) -> str | None:
    column = it.some(tuple(c for c in it.table.others if c.identity != "a"))
    if column is None:
        return None
    return f"UPDATE {it.table.sql} SET {column.name} = {_value_or_null(it, column)} WHERE {it.some_rows()}"


def _update_key(it: Chooser) -> str | None:
    column = it.some(it.table.key)
    if column is None:
        return None
    return f"UPDATE {it.table.sql} SET {column.name} = {it.value(column.type_name)} WHERE {it.a_key()}"


def _shift_keys(it: Chooser) -> str:
    name = it.table.key[-1].name
    return f"UPDATE {it.table.sql} SET {name} = {name} + 10 WHERE {it.some_rows()}"


def _delete(it: Chooser) -> str:
    return f"DELETE FROM {it.table.sql} WHERE {it.some_rows()}"


def _truncate(it: Chooser) -> str | None:
    return f"TRUNCATE {it.table.sql}" if it.random.random() < 0.3 else None


def _add(it: Chooser) -> str:
    return _alter(it, _addition(it, it.new_name()))


def _addition(it: Chooser, name: str) -> str:
    type_name = it.random.choice(_TYPES)
    constant = f" DEFAULT {it.random.choice(['', '', 'NULL::' + type_name])}"
    default = constant if constant.endswith(type_name) else f" DEFAULT {it.value(type_name)}"
    if "SELECT" in default:
        default = " DEFAULT 'short'"
    ending = it.random.choice(["", default, default, f"{default} NOT NULL"])
    return f"ADD COLUMN {name} {type_name}{'' if 'NULL::' in ending and 'NOT NULL' in ending else ending}"


def _add_two(it: Chooser) -> str:
    name = it.new_name()
    return _alter(it, f"{_addition(it, name)}, {_addition(it, name + 'b')}")


def _add_now(it: Chooser) -> str:
    type_name = it.random.choice(["timestamptz", "timestamp", "date", "text"])
    return _alter(it, f"ADD COLUMN {it.new_name()} {type_name} NOT NULL DEFAULT now()")


def _add_volatile(it: Chooser) -> str:
    definition = it.random.choice(
        [
            "double precision DEFAULT random()",
            "uuid NOT NULL DEFAULT gen_random_uuid()",
            "serial",
            "integer GENERATED BY DEFAULT AS IDENTITY",
            "timestamptz DEFAULT clock_timestamp()",
        ]
    )
    return _alter(it, f"ADD COLUMN {it.new_name()} {definition}")


def _drop(it: Chooser) -> str | None:
    column = it.some(it.free_columns())
    return None if column is None else _alter(it, f"DROP COLUMN {column.name}")


def _replace(it: Chooser) -> str | None:
    """Drop a column and add another one of its name, in one command."""
    column = it.some(it.free_columns())
    return None if column is None else _alter(it, f"DROP COLUMN {column.name}, {_addition(it, column.name)}")


def _rename(it: Chooser) -> str | None:
    column = it.some(it.table.columns)
    return None if column is None else _alter(it, f"RENAME COLUMN {column.name} TO {it.new_name()}")


def _swap(it: Chooser) -> str | None:
    """Exchange two columns' names."""
    if len(it.table.columns) < 2:
        return None
    one, other = it.random.sample(it.table.columns, 2)
    renames = ((one.name, "by_the_way"), (other.name, one.name), ("by_the_way", other.name))
    return "; ".join(_alter(it, f"RENAME COLUMN {old} TO {new}") for old, new in renames)


def _retype(it: Chooser) -> str | None:
    column = it.some(tuple(c for c in it.free_columns() if c.type_name in _OTHER_TYPES and not c.identity))
    if column is None:
        return None
    type_name = it.random.choice(_OTHER_TYPES[column.type_name]).format(column.name)
    return _alter(it, f"ALTER COLUMN {column.name} TYPE {type_name}")


def _not_null(it: Chooser) -> str | None:
    column = it.some(it.table.others)
    if column is None:
        return None
    return _alter(it, f"ALTER COLUMN {column.name} {'DROP' if column.not_null else 'SET'} NOT NULL")


def _default(it: Chooser) -> str | None:
    column = it.some(tuple(c for c in it.table.others if not c.identity))
    if column is None:
        return None
    value = it.value(column.type_name)
    what = "DROP DEFAULT" if "SELECT" in value or it.random.random() < 0.3 else f"SET DEFAULT {value}"
    return _alter(it, f"ALTER COLUMN {column.name} {what}")


def _comment(it: Chooser) -> str:
    return f"COMMENT ON COLUMN {it.table.sql}.{it.table.key[0].name} IS 'commented'"


def _index(it: Chooser) -> str | None:
    if it.table.indexes:
        return f"DROP INDEX {it.table.schema}.{it.table.indexes[0]}"
    column = it.some(tuple(c for c in it.table.columns if c.type_name != "text"))
    if column is None:
        return None
    unique, part = it.random.choice([("", ""), ("UNIQUE ", ""), ("UNIQUE ", f" WHERE {column.name} IS NULL")])
    return f"CREATE {unique}INDEX ON {it.table.sql} ({column.name}){part}"


def _turn_key(it: Chooser) -> str | None:
    """Give a key of several columns another order."""
    if len(it.table.key) < 2:
        return None
    names = ", ".join(c.name for c in it.random.sample(it.table.key, len(it.table.key)))
    return _alter(it, f"DROP CONSTRAINT {it.table.key_name}, ADD PRIMARY KEY ({names})")


def _rename_table(it: Chooser) -> str:
    name = it.random.choice([it.table.base, *(f"{it.table.base}_{number}" for number in range(3))])
    return _alter(it, f"RENAME TO {name}")


def _set_schema(it: Chooser) -> str:
    return _alter(it, f"SET SCHEMA {it.random.choice(SCHEMAS)}")


def _add_label(it: Chooser) -> str:
    place = it.random.choice(["", f" BEFORE '{it.labels()[0]}'"])
    return f"ALTER TYPE mood ADD VALUE IF NOT EXISTS 'm{it.random.randrange(9)}'{place}"


def _rename_label(it: Chooser) -> str:
    return f"ALTER TYPE mood RENAME VALUE '{it.random.choice(it.labels())}' TO 'n{it.random.randrange(9)}'"


def _swap_labels(it: Chooser) -> str:
    """Exchange two labels' names."""
    one, other = it.random.sample(it.labels(), 2)
    renames = ((one, "by the way"), (other, one), ("by the way", other))
    return "; ".join(f"ALTER TYPE mood RENAME VALUE '{before}' TO '{now}'" for before, now in renames)


def _alter(it: Chooser, what: str) -> str:
    return f"ALTER TABLE {it.table.sql} {what}"


ROWS: Mapping[str, Callable[[Chooser], str | None]] = {
    "insert": _insert,
    "update": _update,
    "update key": _update_key,
    "shift keys": _shift_keys,
    "delete": _delete,
    "truncate": _truncate,
}
DDL: Mapping[str, Callable[[Chooser], str | None]] = {
    "add": _add,
    "add two": _add_two,
    "add now": _add_now,
    "add volatile": _add_volatile,
    "drop": _drop,
    "replace": _replace,
    "rename": _rename,
    "swap": _swap,
    "retype": _retype,
    "not null": _not_null,
    "default": _default,
    "comment": _comment,
    "index": _index,
    "turn key": _turn_key,
    "rename table": _rename_table,
    "set schema": _set_schema,
    "add label": _add_label,
    "rename label": _rename_label,
    "swap labels": _swap_labels,
}
STATEMENTS = {**ROWS, **DDL}
