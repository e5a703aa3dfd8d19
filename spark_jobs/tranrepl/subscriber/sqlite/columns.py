"""Columns of an SQLite table. ALTER TABLE there adds, drops and renames; the rest of a declaration is the text that
the file keeps of CREATE TABLE.

Source: SQLite, "ALTER TABLE", section 7: what does not change how rows are stored may be edited in `sqlite_schema`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event
from sqlglot.dialects.sqlite import SQLite

from tranrepl.errors import ConfigurationError
from tranrepl.subscriber.base.column_declaration import ColumnDeclaration, find_declaration
from tranrepl.subscriber.base.column_statements import AlembicColumns
from tranrepl.subscriber.base.column_steps import ColumnStep, RetypedColumn
from tranrepl.subscriber.sqlite.rebuilt_table import edit_texts, is_referred_to, primary_key, rebuild, table_text


def with_names_apart(engine: sa.Engine) -> sa.Engine:
    """Let SQLAlchemy find the places of values, which it writes as `%(name)s` first, in no name: percent signs of names
    and texts are doubled until a statement is complete."""
    preparer: Any = engine.dialect.identifier_preparer
    preparer._double_percents = True

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
