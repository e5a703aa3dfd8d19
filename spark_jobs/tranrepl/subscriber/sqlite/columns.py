"""Columns of an SQLite table. ALTER TABLE there adds, drops and renames; the rest of a declaration is the text that
the file keeps of CREATE TABLE.

Source: SQLite, "ALTER TABLE", section 7: what does not change how rows are stored may be edited in `sqlite_schema`.
"""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa
from sqlglot.dialects.sqlite import SQLite

from tranrepl.subscriber.generic.catalogue import Place
from tranrepl.subscriber.generic.column_declaration import ColumnDeclaration, find_declaration
from tranrepl.subscriber.generic.column_statements import AlembicColumns, always_quoted
from tranrepl.subscriber.generic.column_steps import ColumnStep, MadeColumn, RetypedColumn
from tranrepl.subscriber.generic.recorded_statements import StatementRecorder, recorded
from tranrepl.subscriber.sqlite.rebuilt_table import is_referred_to, rebuild

_STATEMENT = sa.text("SELECT sql FROM sqlite_schema WHERE type = 'table' AND lower(name) = lower(:name)")
_EDIT = sa.text("UPDATE sqlite_schema SET sql = :sql WHERE type = 'table' AND lower(name) = lower(:name)")


class SqliteColumns(AlembicColumns):
    """All in the transaction that is open."""

    def make_nullable(self, name: str) -> None:
        found = self._declaration(name)
        self._edit(found.statement_with(found.written(nullable=True)))

    def retype(self, step: RetypedColumn) -> None:
        found = self._declaration(step.name)
        self._edit(found.statement_with(found.written(step.type.compile(dialect=self.session.dialect))))

    def can_replace_key(self) -> bool:
        return not is_referred_to(self.session, self.place[1])

    def replace_key(self, columns: Sequence[str], retyped: Sequence[RetypedColumn]) -> None:
        for it in retyped:
            self.retype(it)
        rebuild(self.session, self.place[1], columns)

    def _declaration(self, name: str) -> ColumnDeclaration:
        statement = self.session.execute(_STATEMENT, {"name": self.place[1]}).scalar_one()
        found = find_declaration(statement, name, SQLite.Tokenizer, ("COLLATE",))
        if found is None:
            raise sa.exc.NoSuchColumnError(f"no column {name} in {statement}")
        return found

    def _edit(self, statement: str) -> None:
        """Set the text that the file keeps of the table, and let every session read it again."""
        version = self.session.exec_driver_sql("PRAGMA schema_version").scalar_one()
        self.session.exec_driver_sql("PRAGMA writable_schema = ON")
        try:
            self.session.execute(_EDIT, {"sql": statement, "name": self.place[1]})
            self.session.exec_driver_sql(f"PRAGMA schema_version = {version + 1}")
        finally:
            self.session.exec_driver_sql("PRAGMA writable_schema = OFF")


class PlannedSqliteColumns(SqliteColumns):
    """The statements for a table that setup made, which are recorded: they run at such a table in memory."""

    def __init__(self, recorder: StatementRecorder, place: Place, columns: Sequence[MadeColumn]) -> None:
        self._recorder = recorder
        self._place = place
        self._columns = columns

    def execute(self, steps: Sequence[ColumnStep]) -> None:
        engine = sa.create_engine("sqlite://")
        with engine.connect() as session:
            _made(self._place[1], self._columns).create(session)
            with recorded(session) as ran:
                SqliteColumns(session, self._place).execute(steps)
        engine.dispose()
        self._recorder.statements += ran


def _made(name: str, columns: Sequence[MadeColumn]) -> sa.Table:
    made = [
        sa.Column(always_quoted(it.name), it.type, primary_key=it.of_key, nullable=it.nullable, autoincrement=False)
        for it in columns
    ]
    return sa.Table(always_quoted(name), sa.MetaData(), *made)
