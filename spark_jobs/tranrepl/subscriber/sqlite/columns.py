"""Columns of an SQLite table. ALTER TABLE there adds, drops and renames; the rest of a declaration is the text that
the file keeps of CREATE TABLE. (Alembic's batch mode makes the table again from what SQLAlchemy reflects: it loses
collations, unnamed checks, indexes of expressions and triggers, and foreign keys delete the rows that refer to it.)

Source: SQLite, "ALTER TABLE", section 7: what does not change how rows are stored may be edited in `sqlite_schema`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.dialects.sqlite.base import SQLiteCompiler
from sqlglot.dialects.sqlite import SQLite

from tranrepl.errors import ConfigurationError
from tranrepl.subscriber.base.column_declaration import (
    ColumnDeclaration,
    find_declaration,
    table_body,
    with_another_constraint,
    with_constraint,
    with_primary_key,
)
from tranrepl.subscriber.base.column_statements import AlembicColumns
from tranrepl.subscriber.base.column_steps import CheckedColumn, ColumnStep, RetypedColumn
from tranrepl.subscriber.base.label_checks import check_text


class _Compiler(SQLiteCompiler):
    """Before SQLAlchemy 2.1, values were found behind a doubled percent sign, too."""

    _positional_pattern = re.compile(f"(?<!%){SQLiteCompiler._positional_pattern.pattern}")


def with_names_apart(engine: sa.Engine) -> sa.Engine:
    """Let SQLAlchemy find the places of values, which it writes as `%(name)s` first, in no name: percent signs of names
    and texts are doubled until a statement is complete."""
    dialect: Any = engine.dialect
    dialect.identifier_preparer._double_percents = True
    dialect.statement_compiler = _Compiler

    @event.listens_for(engine, "before_cursor_execute", retval=True)
    def single(
        _connection: object, _cursor: object, statement: str, parameters: object, context: Any, _many: object
    ) -> tuple[str, object]:
        as_it_is = context.execution_options.get("no_parameters", False)
        return statement if as_it_is else statement.replace("%%", "%"), parameters

    return engine


class SqliteColumns(AlembicColumns):
    """All in the transaction that is open, and nothing of it where rows do not fit."""

    def execute(self, steps: Sequence[ColumnStep]) -> None:
        with self.session.begin_nested():
            super().execute(steps)

    def make_nullable(self, name: str) -> None:
        found = _declaration(self._text(), name)
        self._edit(found.statement_with(found.written(nullable=True)))

    def retype(self, step: RetypedColumn) -> None:
        """Give the column another type.

        One of another kind is stored otherwise in the primary key, which is the rowid itself where it is INTEGER.
        """
        text, key = self._text(), primary_key(self.session, self.place[1])
        retyped = self._retyped(text, step)
        of_key = step.name.lower() in (it.lower() for it in key)
        if of_key and _kind(_declaration(text, step.name)) != _kind(_declaration(retyped, step.name)):
            rebuild(self.session, self.place[1], retyped, key)
        else:
            self._edit(retyped)

    def drop(self, name: str) -> None:
        """Drop the column; one of the primary key, which no ALTER TABLE drops, with the key. Raises ConfigurationError
        where a foreign key refers to that key."""
        table = self.place[1]
        if name.lower() not in (it.lower() for it in primary_key(self.session, table)):
            super().drop(name)
        elif is_referred_to(self.session, table):
            raise ConfigurationError(
                f"table {table}: column {name} is to be dropped, which is of its primary key, and foreign keys refer "
                "to the table",
                remedy="make the tables that refer to it again without these foreign keys, then `tranrepl run FILE`",
            )
        else:
            rebuild(self.session, table, self._text(), (), dropped=name)

    def check(self, step: CheckedColumn) -> None:
        text, check = self._text(), None if step.texts is None else check_text(step, _quoted)
        if step.is_new and check is not None:
            self._edit(with_another_constraint(text, check, SQLite.Tokenizer))
        elif (edited := with_constraint(text, step.constraint, check, SQLite.Tokenizer)) is not None:
            self._edit(edited)

    def can_replace_key(self) -> bool:
        return not is_referred_to(self.session, self.place[1])

    def replace_key(self, columns: Sequence[str], retyped: Sequence[RetypedColumn]) -> None:
        rebuild(self.session, self.place[1], reduce(self._retyped, retyped, self._text()), columns)

    def _retyped(self, text: str, step: RetypedColumn) -> str:
        found = _declaration(text, step.name)
        return found.statement_with(found.written(step.type.compile(dialect=self.session.dialect)))

    def _text(self) -> str:
        return table_text(self.session, self.place[1])

    def _edit(self, text: str) -> None:
        edit_texts(self.session, {self.place[1]: text})


def _declaration(text: str, name: str) -> ColumnDeclaration:
    found = find_declaration(text, name, SQLite.Tokenizer, ("COLLATE",))
    if found is None:
        raise sa.exc.NoSuchColumnError(f"no column {name} in {text}")
    return found


def _kind(declared: ColumnDeclaration) -> str:
    """Return a type without its length: by that SQLite knows how to store its values."""
    return declared.type_name.partition("(")[0].strip().upper()


_PREFIX = "tranrepl_"
_OLD_PREFIX = "tranrepl_old_"
_DEPENDENTS = sa.text(
    "SELECT sql FROM sqlite_schema WHERE type IN ('index', 'trigger') AND lower(tbl_name) = lower(:name) "
    "AND sql IS NOT NULL"
)
_COLUMNS = sa.text("SELECT name FROM pragma_table_xinfo(:name) WHERE hidden = 0")
_KEY = sa.text("SELECT name FROM pragma_table_info(:name) WHERE pk > 0 ORDER BY pk")
_REFERRING = sa.text(
    "SELECT DISTINCT m.name, m.sql FROM sqlite_schema m, pragma_foreign_key_list(m.name) f "
    "WHERE m.type = 'table' AND lower(f.\"table\") = lower(:name)"
)


def is_referred_to(session: sa.Connection, name: str) -> bool:
    """Return whether a foreign key refers to the table."""
    return session.execute(_REFERRING, {"name": name}).first() is not None


def primary_key(session: sa.Connection, name: str) -> list[str]:
    """Return the columns of the table's primary key, in key order."""
    return list(session.scalars(_KEY, {"name": name}))


def rebuild(session: sa.Connection, name: str, statement: str, key: Sequence[str], dropped: str | None = None) -> None:
    """Rebuild the table as this CREATE TABLE has its columns, with this primary key and with its rows, indexes and
    triggers, and without a column that is `dropped`, in the open transaction. Foreign keys that refer to it stay."""
    body = with_primary_key(statement, [_quoted(it) for it in key], SQLite.Tokenizer, dropped)
    before = table_body(table_text(session, name), SQLite.Tokenizer)
    dependents = session.scalars(_DEPENDENTS, {"name": name}).all()
    kept = [it for it in session.scalars(_COLUMNS, {"name": name}) if dropped is None or it.lower() != dropped.lower()]
    columns = ", ".join(map(_quoted, kept))
    texts = {it.name: it.sql for it in session.execute(_REFERRING, {"name": name})}
    table, new, old = _quoted(name), _quoted(f"{_PREFIX}{name}"), _quoted(f"{_OLD_PREFIX}{name}")
    # Views that name the table are looked at when they are read, and not where it is renamed.
    session.exec_driver_sql("PRAGMA legacy_alter_table = ON")
    try:
        _run(
            session,
            f"CREATE TABLE {new} {body}",
            f"INSERT INTO {new} ({columns}) SELECT {columns} FROM {table}",  # noqa: S608 — quoted names
            f"ALTER TABLE {table} RENAME TO {old}",
            f"ALTER TABLE {new} RENAME TO {table}",
        )
        if texts:
            # Foreign keys have followed the old table, whose rows, dropped, would take rows of other tables with them.
            own = {name: f"CREATE TABLE {table} {body}", f"{_OLD_PREFIX}{name}": f"CREATE TABLE {old} {before}"}
            others = {it: text for it, text in texts.items() if it.lower() != name.lower()}
            edit_texts(session, {**others, **own})
        _run(session, f"DROP TABLE {old}", *dependents)
    finally:
        session.exec_driver_sql("PRAGMA legacy_alter_table = OFF")


def _run(session: sa.Connection, *statements: str) -> None:
    for it in statements:
        session.exec_driver_sql(it, execution_options={"no_parameters": True})


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


_TEXT = sa.text("SELECT sql FROM sqlite_schema WHERE type = 'table' AND lower(name) = lower(:name)")
_EDIT = sa.text("UPDATE sqlite_schema SET sql = :sql WHERE type = 'table' AND lower(name) = lower(:name)")


def table_text(session: sa.Connection, name: str) -> str:
    """Return the text of a table that is there."""
    text: str = session.execute(_TEXT, {"name": name}).scalar_one()
    return text


def edit_texts(session: sa.Connection, texts: Mapping[str, str]) -> None:
    """Set the texts of tables, and let every session read them again."""
    version = session.exec_driver_sql("PRAGMA schema_version").scalar_one()
    session.exec_driver_sql("PRAGMA writable_schema = ON")
    try:
        for name, text in texts.items():
            session.execute(_EDIT, {"sql": text, "name": name})
        session.exec_driver_sql(f"PRAGMA schema_version = {version + 1}")
    finally:
        session.exec_driver_sql("PRAGMA writable_schema = OFF")
