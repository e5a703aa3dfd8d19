"""Columns of a table changed statement by statement, as Alembic writes them, in a database whose DDL is part of the
transaction."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa
from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext

from tranrepl.subscriber.base.catalogue import Place
from tranrepl.subscriber.base.column_steps import (
    AddedColumn,
    CheckedColumn,
    ColumnStep,
    DroppedColumn,
    NullableColumn,
    RenamedColumn,
    RetypedColumn,
)
from tranrepl.subscriber.base.identifiers import always_quoted
from tranrepl.subscriber.base.label_checks import check_constraint


class AlembicColumns:
    """Each step by a statement of its own; what its database does otherwise is overridden."""

    def __init__(self, session: sa.Connection, place: Place) -> None:
        self.session = session
        self.place = place
        schema, name = place
        self.table = always_quoted(name)
        self.schema = None if schema is None else always_quoted(schema)
        self.operations = Operations(MigrationContext.configure(session))

    def execute(self, steps: Sequence[ColumnStep]) -> None:
        for step in steps:
            self._execute(step)

    def complete(self, steps: Sequence[ColumnStep]) -> None:
        """Do nothing: it is all done, or none of it."""

    def can_replace_key(self) -> bool:
        return False

    def has_check(self, name: str) -> bool:
        """Return whether the table has a check of this name."""
        return any(it["name"] == name for it in sa.inspect(self.session).get_check_constraints(self.table, self.schema))

    def replace_key(self, columns: Sequence[str], retyped: Sequence[RetypedColumn]) -> None:
        raise NotImplementedError

    def _execute(self, step: ColumnStep) -> None:
        match step:
            case AddedColumn():
                self._add(step)
            case DroppedColumn(name):
                self.drop(name)
            case RenamedColumn(name, new_name):
                self.rename(name, new_name)
            case NullableColumn(name):
                self.make_nullable(name)
            case RetypedColumn():
                self.retype(step)
            case CheckedColumn():
                self.check(step)

    def check(self, step: CheckedColumn) -> None:
        """Let the column have its check."""
        if not step.is_new:
            if not self.has_check(step.constraint):
                return
            self.operations.drop_constraint(always_quoted(step.constraint), self.table, "check", schema=self.schema)
        if step.texts is not None:
            made = check_constraint(step)
            self.operations.create_check_constraint(
                always_quoted(step.constraint), self.table, made.sqltext, schema=self.schema
            )

    def _add(self, step: AddedColumn) -> None:
        column = sa.Column(always_quoted(step.name), step.type, server_default=step.default, nullable=not step.not_null)
        self.operations.add_column(self.table, column, schema=self.schema)
        # A default says nothing of the rows of before, unless they may not be NULL.
        if step.value is not None and not step.not_null:
            table = sa.table(self.table, sa.column(always_quoted(step.name), step.bind), schema=self.schema)
            self.session.execute(sa.update(table).values({step.name: step.value}))

    def drop(self, name: str) -> None:
        self.operations.drop_column(self.table, always_quoted(name), schema=self.schema)

    def rename(self, name: str, new_name: str) -> None:
        self.operations.alter_column(
            self.table, always_quoted(name), new_column_name=always_quoted(new_name), schema=self.schema
        )

    def make_nullable(self, name: str) -> None:
        self.operations.alter_column(self.table, always_quoted(name), nullable=True, schema=self.schema)

    def retype(self, step: RetypedColumn) -> None:
        self.operations.alter_column(self.table, always_quoted(step.name), type_=step.type, schema=self.schema)
