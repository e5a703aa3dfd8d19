"""Columns of a MariaDB or MySQL table. One ALTER TABLE gives it its new columns: it is done as a whole or not at all,
also where the server crashes ("Atomic DDL"), so that the table's columns say which."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import sqlalchemy as sa
from pymysql.converters import escape_item
from sqlalchemy.types import TypeEngine

from tranrepl.errors import InternalError
from tranrepl.mysql.auto_increment import numbers_of
from tranrepl.subscriber.base.catalogue import Place
from tranrepl.subscriber.base.column_declaration import find_declaration
from tranrepl.subscriber.base.column_steps import (
    AddedColumn,
    CheckedColumn,
    ColumnStep,
    DroppedColumn,
    NullableColumn,
    RenamedColumn,
    RetypedColumn,
)
from tranrepl.subscriber.base.label_checks import check_text
from tranrepl.subscriber.mariadb.sql_text import qualified_name, quoted_name, tokenizer


@dataclass(slots=True)
class _Kept:
    """A column that was there before, as all steps together leave it."""

    name: str
    nullable: bool = False
    type: TypeEngine[Any] | None = None


@dataclass(slots=True)
class _Net:
    """What all steps together come to. ALTER TABLE knows columns by the names that they have before it."""

    dropped: list[str] = field(default_factory=list)
    kept: dict[str, _Kept] = field(default_factory=dict)
    """By the name before."""
    added: list[AddedColumn] = field(default_factory=list)
    checks: dict[str, CheckedColumn] = field(default_factory=dict)
    """By their names, of which the server does not tell capitals apart."""

    @classmethod
    def of(cls, steps: Sequence[ColumnStep]) -> _Net:
        net = cls()
        for step in steps:
            if isinstance(step, CheckedColumn):
                net.checks[step.constraint.lower()] = step
            else:
                net._do(step)
        return net

    def _do(self, step: ColumnStep) -> None:
        match step:
            case AddedColumn():
                self.added.append(step)
            case DroppedColumn(name) if not self._was_added(name):
                before = self._before(name)
                self.kept.pop(before, None)
                self.dropped.append(before)
            case DroppedColumn(name):
                self.added = [it for it in self.added if it.name != name]
            case RenamedColumn(name, new_name) if not self._was_added(name):
                self._kept(name).name = new_name
            case RenamedColumn(name, new_name):
                self.added = [_renamed(it, new_name) if it.name == name else it for it in self.added]
            case RetypedColumn(name, made) if not self._was_added(name):
                self._kept(name).type = made
            case RetypedColumn(name, made):
                self.added = [_retyped(it, made) if it.name == name else it for it in self.added]
            case NullableColumn(name) if not self._was_added(name):
                self._kept(name).nullable = True
            case NullableColumn(name):
                self.added = [replace(it, not_null=False) if it.name == name else it for it in self.added]

    def _was_added(self, name: str) -> bool:
        return any(it.name == name for it in self.added)

    def _before(self, name: str) -> str:
        return next((before for before, it in self.kept.items() if it.name == name), name)

    def _kept(self, name: str) -> _Kept:
        return self.kept.setdefault(self._before(name), _Kept(name))


def _renamed(column: AddedColumn, name: str) -> AddedColumn:
    return replace(column, name=name)


def _retyped(column: AddedColumn, made: TypeEngine[Any]) -> AddedColumn:
    return replace(column, type=made)


_TAKES_NULL = sa.text(
    "SELECT 1 FROM information_schema.columns WHERE table_schema = COALESCE(:schema, DATABASE()) "
    "AND table_name = :table AND column_name = :column AND is_nullable = 'YES'"
)

_COUNTING = sa.text(
    "SELECT column_name FROM information_schema.columns WHERE table_schema = COALESCE(:schema, DATABASE()) "
    "AND table_name = :table AND LOCATE('auto_increment', extra) > 0"
)
_KEY = sa.text(
    "SELECT LOWER(column_name) FROM information_schema.key_column_usage WHERE constraint_name = 'PRIMARY' "
    "AND table_schema = COALESCE(:schema, DATABASE()) AND table_name = :table"
)
_CHECK = sa.text(
    "SELECT 1 FROM information_schema.table_constraints WHERE constraint_type = 'CHECK' "
    "AND table_schema = COALESCE(:schema, DATABASE()) AND table_name = :table AND constraint_name = :name"
)


class MariaDbColumns:
    """Rows that are there get an added column's value as its default, which is taken away afterwards where the
    Publisher's is not so: their table is not rewritten for it, no trigger fires, and no other column notices an
    update."""

    def __init__(self, session: sa.Connection, place: Place) -> None:
        self._session = session
        self._place = place
        self._table = qualified_name(*place)

    def execute(self, steps: Sequence[ColumnStep]) -> None:
        net = _Net.of(steps)
        if self._loses_key(net):
            self._stop_counting()
        # With another name, a declaration would name the column in its CHECK by the name of before.
        self._alter(list(self._declarations(net)))
        self._alter(list(self._clauses(net)))

    def _alter(self, clauses: Sequence[str]) -> None:
        """Run one ALTER TABLE. Nobody looks for places of values among its names."""
        if clauses:
            self._session.exec_driver_sql(
                f"ALTER TABLE {self._table} {', '.join(clauses)}", execution_options={"no_parameters": True}
            )

    def complete(self, steps: Sequence[ColumnStep]) -> None:
        """Take away the defaults. An INSERT at the Subscriber without the column gives NULL. A column that is
        in the key by then takes none, and has no default any more."""
        for it in _Net.of(steps).added:
            if it.value is not None and it.default is None and self._takes_null(it.name):
                self._alter([f"ALTER COLUMN {quoted_name(it.name)} SET DEFAULT (NULL)"])

    def _takes_null(self, name: str) -> bool:
        schema, table = self._place
        found = self._session.execute(_TAKES_NULL, {"schema": schema, "table": table, "column": name}).scalar()
        return found is not None

    def can_replace_key(self) -> bool:
        return True

    def replace_key(self, columns: Sequence[str], retyped: Sequence[RetypedColumn]) -> None:
        types = [self._declared(it.name, self._spelled(it.type), nullable=False) for it in retyped]
        names = ", ".join(map(quoted_name, columns))
        self._stop_counting(unless=columns[:1])
        dropped = ["DROP PRIMARY KEY"] if self._key() else []
        self._alter([*(f"MODIFY COLUMN {it}" for it in types), *dropped, f"ADD PRIMARY KEY ({names})"])

    def _stop_counting(self, unless: Sequence[str] = ()) -> None:
        """Let no column number the rows but one of these: only the first column of a key may."""
        schema, table = self._place
        for name in self._session.scalars(_COUNTING, {"schema": schema, "table": table}).all():
            if name not in unless:
                self._alter([f"MODIFY COLUMN {self._declared(name, None, nullable=False, counting=False)}"])

    def _key(self) -> set[str]:
        """Return the columns of the table's primary key, in small letters."""
        schema, table = self._place
        return set(self._session.scalars(_KEY, {"schema": schema, "table": table}))

    def _clauses(self, net: _Net) -> Iterator[str]:
        if self._loses_key(net):
            # The server takes no column alone out of a key of several.
            yield "DROP PRIMARY KEY"
        for name in net.dropped:
            yield f"DROP COLUMN {quoted_name(name)}"
        for before, after in net.kept.items():
            if before != after.name:
                yield f"RENAME COLUMN {quoted_name(before)} TO {quoted_name(after.name)}"
        for it in net.added:
            given = "" if it.value is None else f" DEFAULT ({self._literal(it)})"
            null = "NOT NULL" if it.not_null else "NULL"
            yield f"ADD COLUMN {quoted_name(it.name)} {self._spelled(it.type)} {null}{given}"
        yield from (f"ADD {check_text(it, quoted_name)}" for it in net.checks.values() if it.is_new)

    def _loses_key(self, net: _Net) -> bool:
        return bool(net.dropped) and not self._key().isdisjoint(it.lower() for it in net.dropped)

    def _declarations(self, net: _Net) -> Iterator[str]:
        """Yield what changes a declaration and no name: it may be done twice."""
        for it in net.checks.values():
            if not it.is_new and self._has_check(it.constraint):
                yield f"DROP CONSTRAINT {quoted_name(it.constraint)}"
                if it.texts is not None:
                    yield f"ADD {check_text(it, quoted_name)}"
        for before, after in net.kept.items():
            if after.type is not None or after.nullable:
                spelled = None if after.type is None else self._spelled(after.type)
                yield f"MODIFY COLUMN {self._declared(before, spelled, nullable=after.nullable)}"

    def _has_check(self, name: str) -> bool:
        schema, table = self._place
        return self._session.scalar(_CHECK, {"schema": schema, "table": table, "name": name}) is not None

    def _literal(self, column: AddedColumn) -> str:
        """Return the value as the driver writes it where it is bound."""
        dialect = self._session.dialect
        bound = column.bind.dialect_impl(dialect).bind_processor(dialect)
        value = column.value if bound is None else bound(column.value)
        # The driver's `_binary X'…'` is no expression of a DEFAULT.
        return f"x'{value.hex()}'" if isinstance(value, bytes) else str(escape_item(value, "utf8mb4"))

    def _spelled(self, made: TypeEngine[Any]) -> str:
        return made.compile(dialect=self._session.dialect)

    def _declared(self, name: str, type_name: str | None, *, nullable: bool, counting: bool = True) -> str:
        """Return the column's whole declaration: what MODIFY COLUMN leaves out is lost. Only whole numbers count."""
        shown = self._session.exec_driver_sql(
            f"SHOW CREATE TABLE {self._table}", execution_options={"no_parameters": True}
        ).one()
        # The session's sql_mode, which says how the server writes names and strings.
        found = find_declaration(shown[1], name, tokenizer(""))
        if found is None:
            raise InternalError(f"SHOW CREATE TABLE {self._table} has no column {name}")
        written = found.written(type_name, nullable=nullable)
        counting = counting and numbers_of((type_name or found.type_name).lower()) is not None
        # It comes before a comment, and a column that counts has no default.
        return written if counting else written.replace(" AUTO_INCREMENT", "", 1)
