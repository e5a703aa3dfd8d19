"""The statements that give a table a column, for people to paste."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.types import TypeEngine

from tranrepl.model.names import TableName
from tranrepl.subscriber.base.column_steps import AddedColumn, ColumnStep, MadeColumn, RenamedColumn
from tranrepl.subscriber.base.database import SqlDatabase, spelled
from tranrepl.subscriber.base.recorded_statements import StatementRecorder


@dataclass(frozen=True, slots=True)
class PlannedColumnTexts:
    """Statements of one table, as a schema change would run them."""

    database: SqlDatabase
    table: TableName
    types: Mapping[str, TypeEngine[Any]]
    """Types of the columns that may be added."""

    def add(self, column: str) -> str:
        made = self.types[column]
        step = AddedColumn(column, made, spelled(made, self.database.dialect()), sa.String())
        return self._text(step, f"not {column}")

    def rename(self, column: str, new_name: str) -> str:
        return self._text(RenamedColumn(column, new_name), column)

    def _text(self, step: ColumnStep, there: str) -> str:
        dialect: Callable[..., sa.Dialect] = type(self.database.dialect())
        recorder = StatementRecorder(dialect(paramstyle="named"))
        made = [MadeColumn(there, sa.Integer(), "integer", nullable=True, of_key=False)]
        columns = self.database.planned_columns(recorder, self.database.place(self.table), made)
        if columns is None:
            return f"{self.database.qualified(self.table)}: {step.in_words()};"
        columns.execute([step])
        return " ".join(f"{it};" for it in recorder.statements)
