"""Columns and the primary key of a PostgreSQL table, changed in the transaction that is open, each by an ALTER TABLE of
its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import LiteralString

import psycopg
from psycopg import errors, sql

from tranrepl.errors import ConfigurationError, DataError, ReplicationError
from tranrepl.model.catalogue import TableDescription
from tranrepl.model.table_definition import Generation
from tranrepl.postgres.catalogue import qualified
from tranrepl.postgres.composed_sql import expression_sql, type_sql
from tranrepl.postgres.session import Session, own_path, translate, translated_errors
from tranrepl.subscriber.base.column_steps import (
    AddedColumn,
    CheckedColumn,
    ColumnStep,
    DroppedColumn,
    GeneratedColumn,
    NullableColumn,
    RenamedColumn,
    RetypedColumn,
    TableColumn,
)
from tranrepl.subscriber.base.key_changes import UnfitRows, key_change
from tranrepl.subscriber.batching.steps import SchemaStep
from tranrepl.subscriber.missing_columns import no_table
from tranrepl.subscriber.postgres.catalogue import PostgresCatalogue
from tranrepl.subscriber.postgres.column_types import publishers
from tranrepl.subscriber.postgres.destination import find_destination

_REFUSED_BY_DEPENDENTS = frozenset({"2BP01", "0A000"})
"""Something depends on the column; a view or a generated column has the column's type in it."""
_HAS_DEFAULT = (
    "SELECT a.atthasdef FROM pg_catalog.pg_attribute a "
    "WHERE a.attrelid = pg_catalog.to_regclass(%s) AND a.attname = %s AND a.attgenerated = ''"
)


_HAS_CHECK = (
    "SELECT 1 FROM pg_catalog.pg_constraint "
    "WHERE conrelid = pg_catalog.to_regclass(%s) AND conname = %s AND contype = 'c'"
)


def check_clause(step: CheckedColumn) -> sql.Composed:
    """Return a column's check as a constraint of its table."""
    texts = sql.SQL(", ").join(map(sql.Literal, step.texts or ()))
    name, column = sql.Identifier(step.constraint), sql.Identifier(step.name)
    return sql.SQL("CONSTRAINT {} CHECK ({} IN ({}))").format(name, column, texts)


def added_column(step: AddedColumn) -> sql.Composed:
    """Return what adds a column, as an action of ALTER TABLE."""
    made, null = publishers(step.type).composed(), sql.SQL(" NOT NULL" if step.not_null else "")
    added = sql.SQL("ADD COLUMN {} {}{}").format(sql.Identifier(step.name), made, null)
    return added if step.value is None else added + sql.SQL(" DEFAULT {}").format(sql.Literal(step.value))


def generated_column(step: GeneratedColumn) -> sql.Composed:
    """Return what adds a generated column, likewise. Raises ConfigurationError where its expression is not taken
    over."""
    made, expression = publishers(step.type).composed(), expression_sql(step.expression)
    added = sql.SQL("ADD COLUMN {} {} GENERATED ALWAYS AS ({}) STORED")
    return added.format(sql.Identifier(step.name), made, expression)


class PostgresColumns:
    """The columns of the table that a schema change alters. Errors are of `tranrepl.errors`."""

    def __init__(self, session: Session, where: str, step: SchemaStep, unfit: UnfitRows) -> None:
        """Set which table it is. Where its rows are unknown, a value that does not go over into a new type becomes
        NULL; or, in the primary key, `unfit` says what becomes of its row."""
        self._keeps_rows = step.change.rows_unknown is None
        self._article = step.new or step.old
        self._unfit = unfit
        self._session = session
        self._where = where
        self._name = step.old.destination

    def there(self) -> list[TableColumn]:
        """Return the columns that the table has now."""
        return [TableColumn(it.name, it.type_name, not it.not_null) for it in self._described().columns]

    def execute(self, steps: Sequence[ColumnStep]) -> Iterator[str]:
        """Do these steps, in order, and yield the statements that ran, or what was left alone instead."""
        for step in steps:
            match step:
                case AddedColumn():
                    yield from self._add(step)
                case GeneratedColumn():
                    yield self._add_generated(step)
                case DroppedColumn(name):
                    yield from self._drop(name)
                case RenamedColumn(name, new_name):
                    yield self._alter("RENAME COLUMN {} TO {}", sql.Identifier(name), sql.Identifier(new_name))
                case NullableColumn(name):
                    yield self._alter("ALTER COLUMN {} DROP NOT NULL", sql.Identifier(name))
                case RetypedColumn():
                    yield from self._retype(step)
                case CheckedColumn():
                    yield from self._check(step)

    def _described(self) -> TableDescription:
        table = find_destination(self._session, self._where, self._name)
        if table is None:
            raise no_table(self._where, self._article)
        return table

    def _add(self, step: AddedColumn) -> Iterator[str]:
        """Add a column; rows that are there get the Publisher's value, which PostgreSQL keeps once for all of them."""
        yield self._execute(added_column(step))
        if step.value is not None and step.default is None:
            yield self._alter("ALTER COLUMN {} DROP DEFAULT", sql.Identifier(step.name))

    def _add_generated(self, step: GeneratedColumn) -> str:
        """Add a column that is generated from others. It does not travel: where the expression has no meaning here, the
        table does without."""
        try:
            added = generated_column(step)
            with self._session.transaction():
                return self._execute(added)
        except ConfigurationError as error:
            return f"{self._where}: table {self._name}: generated column {step.name} was left out: {error.message}"

    def _drop(self, name: str) -> Iterator[str]:
        """Drop a column, and what is generated from it: at the Publisher that had to go too."""
        dependent = [
            it.name
            for it in self._described().columns
            if it.generation is not Generation.NONE and name in it.generated_from
        ]
        for it in (*dependent, name):
            yield self._alter("DROP COLUMN IF EXISTS {}", sql.Identifier(it))

    def _retype(self, step: RetypedColumn) -> Iterator[str]:
        column, made = sql.Identifier(step.name), publishers(step.type).composed()
        if self._keeps_rows:
            yield self._alter("ALTER COLUMN {} TYPE {}", column, made)
            return
        try:
            yield self._cast(step)
            return
        except (ConfigurationError, DataError):
            # The default, which the Publisher may have dropped, has to go over as well as the rows have.
            yield from self._drop_default(step.name)
        try:
            yield self._cast(step)
        except (ConfigurationError, DataError) as error:
            if step.name in {it.name for it in self._described().key}:
                yield from self._retype_key(step, error)
                return
            loosened = "ALTER COLUMN {} DROP NOT NULL, ALTER COLUMN {} TYPE {} USING NULL"
            yield self._alter(loosened, column, column, made)

    def _cast(self, step: RetypedColumn) -> str:
        column, made = sql.Identifier(step.name), publishers(step.type).composed()
        with self._session.transaction():
            return self._alter("ALTER COLUMN {} TYPE {} USING {}::{}", column, made, column, type_sql(step.spelling))

    def _retype_key(self, step: RetypedColumn, unfit: ReplicationError) -> Iterator[str]:
        """Retype a column of the primary key to which rows do not go over: they are deleted with all others where they
        may be. Raises ConfigurationError where they may not."""
        if self._unfit.may_go(self._article):
            with translated_errors(self._where):
                _delete_rows(self._session, qualified(self._name))
            yield (
                f"{self._where}: rows of {self._name} were deleted: they do not fit the new type of its primary key, "
                "and are copied again"
            )
        try:
            # What holds no rows takes a type to which there is no cast.
            made = publishers(step.type).composed()
            yield self._alter("ALTER COLUMN {} TYPE {} USING NULL", sql.Identifier(step.name), made)
        except DataError:
            key = [self._article.columns[at].name for at in self._article.key_positions]
            raise self._unfit.problem(self._where, self._article, key, unfit.message) from unfit

    def _check(self, step: CheckedColumn) -> Iterator[str]:
        """Let the column have its check. Rows that are there have nothing else: they are not read."""
        if not step.is_new:
            name = qualified(self._name).as_string(self._session)
            if self._session.execute(_HAS_CHECK, [name, step.constraint]).fetchone() is None:
                return
            yield self._alter("DROP CONSTRAINT {}", sql.Identifier(step.constraint))
        if step.texts is not None:
            yield self._alter("ADD {} NOT VALID", check_clause(step))

    def _drop_default(self, column: str) -> Iterator[str]:
        """Drop the default that a column got with the Publisher's: it may not be a value of another type."""
        name = qualified(self._name).as_string(self._session)
        if self._session.execute(_HAS_DEFAULT, [name, column]).fetchone() == (True,):
            yield self._alter("ALTER COLUMN {} DROP DEFAULT", sql.Identifier(column))

    def _alter(self, action: LiteralString, *parts: sql.Composable) -> str:
        return self._execute(sql.SQL(action).format(*parts))

    def _execute(self, action: sql.Composable) -> str:
        statement = sql.SQL("ALTER TABLE {} {}").format(qualified(self._name), action)
        text = statement.as_string(None)
        try:
            self._session.execute(statement)
        except psycopg.Error as error:
            if error.sqlstate in _REFUSED_BY_DEPENDENTS:
                raise _refused_by_dependents(self._where, text, error) from error
            raise translate(self._where, error) from error
        return f"{self._where}: {text}"


def _refused_by_dependents(where: str, text: str, error: psycopg.Error) -> ConfigurationError:
    problem = translate(where, error)
    return ConfigurationError(
        f"{problem.message}: {text} is refused",
        database_code=error.sqlstate,
        remedy="drop what depends on the column at the Subscriber, deliver again, then create it again for the "
        "altered table",
    )


def _replaced_key(table: sql.Composable, constraint: str | None, columns: Sequence[str]) -> sql.Composed:
    """Return the statement that gives a table another primary key than that of this constraint, where it has one."""
    dropped = sql.SQL("" if constraint is None else "DROP CONSTRAINT {}, ")
    names = sql.SQL(", ").join(map(sql.Identifier, columns))
    return sql.SQL("ALTER TABLE {} {}ADD PRIMARY KEY ({})").format(
        table, dropped.format(*([] if constraint is None else [sql.Identifier(constraint)])), names
    )


def _delete_rows(session: Session, table: sql.Composable) -> None:
    """Delete all rows of a table that is altered in the same transaction."""
    with own_path(session):
        session.execute(sql.SQL("DELETE FROM {}").format(table))
        session.execute("SET CONSTRAINTS ALL IMMEDIATE")


def change_key(session: Session, where: str, step: SchemaStep, unfit: UnfitRows) -> Iterator[str]:
    """Give the destination the new primary key, where it had the old one or has just lost it; yield what was done.

    Rows that do not fit the new key are deleted with all others where they may be. Raises ConfigurationError where they
    may not.
    """
    change = key_change(step)
    if step.new is None or change is None:
        return
    table = qualified(step.new.destination)
    key = PostgresCatalogue(session).primary_key((step.new.destination.schema, step.new.destination.table))
    if (None if key is None else list(key.columns)) != (None if change.lost else change.before):
        return
    statement = _replaced_key(table, None if key is None else key.name, change.now)
    try:
        with session.transaction():
            session.execute(statement)
    except (errors.UniqueViolation, errors.NotNullViolation) as error:
        if not unfit.may_go(step.new):
            raise unfit.problem(where, step.new, change.now) from error
        _delete_rows(session, table)
        session.execute(statement)
        yield f"rows of {step.new.destination} were deleted: they did not fit the new primary key, and are copied again"
    yield statement.as_string(None)
