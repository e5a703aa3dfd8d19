"""What applies one command, as SQLAlchemy statements: names quoted, values bound."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import sqlalchemy as sa

from tranrepl.model.bitmask import changed_columns
from tranrepl.model.call_syntax import Argument, Image, arguments, key_arguments
from tranrepl.model.commands import Method, Operation
from tranrepl.model.row_images import values
from tranrepl.subscriber.base.database import SqlDatabase
from tranrepl.subscriber.base.execution import CALLS_PROCEDURE, SETS_IDENTITY
from tranrepl.subscriber.base.procedures import call_of
from tranrepl.subscriber.base.target import SqlTarget
from tranrepl.subscriber.row_filter_translation import translated_filter
from tranrepl.subscriber.value_conversion import UnfitValueError

Cells = list[str | None]


@dataclass(frozen=True, slots=True)
class Command:
    """One row of the layout. Images are values in text form by published column; what does not travel is None."""

    xact_seqno: bytes
    command_id: int
    article_id: int
    operation: Operation
    before: Cells
    after: Cells
    changed: bytes | None

    def value(self, image: Image, position: int) -> str | None:
        """Return the value at this position of an image; None for values at its end that do not travel and may be left
        off."""
        cells = self.before if image is Image.BEFORE else self.after
        return cells[position] if position < len(cells) else None


def command_rows(commands: pa.Table) -> Iterator[Command]:
    """Yield the commands of a table in the row layout, in its order."""
    names = ("xact_seqno", "command_id", "article_id", "operation", "before", "after", "changed")
    columns = (commands[name].to_pylist() for name in names)
    for xact_seqno, command_id, article_id, operation, before, after, changed in zip(*columns, strict=True):
        yield Command(
            xact_seqno,
            command_id,
            article_id,
            Operation(operation),
            [] if before is None else values(before),
            [] if after is None else values(after),
            changed,
        )


Parameters = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Shape:
    """Commands of one shape are one statement with other values."""

    article_id: int
    operation: Operation
    changed: tuple[int, ...] | None
    """Positions of the changed columns of an UPDATE statement; None otherwise."""


@dataclass(frozen=True, slots=True)
class Statement:
    """`passed` are the values it takes, each bound under its argument's name."""

    executable: sa.Executable
    passed: tuple[Argument, ...]
    together: bool
    """Many may be executed at once: their row count tells whether each met its row."""
    must_meet: bool
    """Zero rows is error 20598."""


class ParameterError(ValueError):
    """A value that a column of the article cannot hold."""


def is_procedural(target: SqlTarget, operation: Operation) -> bool:
    return operation is not Operation.TRUNCATE and target.article.propagation(operation).method is Method.PROCEDURE


def shape_of(command: Command, target: SqlTarget) -> Shape:
    changed: tuple[int, ...] | None = None
    if command.operation is Operation.UPDATE and not is_procedural(target, command.operation):
        mask = command.changed or b""
        changed = tuple(at - 1 for at in changed_columns(mask, len(target.columns)))
    return Shape(command.article_id, command.operation, changed)


def statement(database: SqlDatabase, target: SqlTarget, shape: Shape) -> Statement:
    """Return the statement that applies commands of this shape."""
    if is_procedural(target, shape.operation):
        return _call(database, target, shape.operation)
    match shape.operation:
        case Operation.INSERT:
            return insert_statement(target, together=database.counts_together)
        case Operation.UPDATE:
            return _update(database, target, shape.changed or ())
        case Operation.DELETE:
            return _delete(database, target)
        case _:
            return _truncate(database, target)


def parameters(command: Command, target: SqlTarget, passed: tuple[Argument, ...]) -> Parameters:
    """Return the values that a statement is executed with. Raises ParameterError."""
    bound: Parameters = {}
    for argument in passed:
        if argument.position is None:
            bound[_bind_name(argument)] = command.changed
            continue
        text = command.value(argument.image, argument.position)
        column = target.columns[argument.position]
        try:
            bound[_bind_name(argument)] = None if text is None else column.conversion.convert(text)
        except UnfitValueError as error:
            raise ParameterError(f"column {column.name}: {error}") from error
    return bound


def key_of(command: Command, target: SqlTarget) -> list[tuple[str, str | None]]:
    """Return the key's columns and values: the old one's where there is one."""
    image = Image.AFTER if command.operation is Operation.INSERT else Image.BEFORE
    return [(target.columns[at].name, command.value(image, at)) for at in target.article.key_positions]


def _bind_name(argument: Argument) -> str:
    return f"tranrepl_{argument.name}"


def _bound(argument: Argument, target: SqlTarget) -> sa.BindParameter[Any]:
    if argument.position is None:
        return sa.bindparam(_bind_name(argument), type_=sa.LargeBinary())
    return sa.bindparam(_bind_name(argument), type_=target.columns[argument.position].conversion.bind)


def _call(database: SqlDatabase, target: SqlTarget, operation: Operation) -> Statement:
    if database.scripter is None:
        raise ValueError(f"{database.kind} has no procedures")
    passed = arguments(target.article, operation)
    text = sa.text(call_of(database.scripter, target, operation))
    call = text.bindparams(*(_bound(argument, target) for argument in passed))
    return Statement(call.execution_options(**{CALLS_PROCEDURE: True}), passed, together=False, must_meet=False)


def insert_statement(target: SqlTarget, *, together: bool = False) -> Statement:
    """Return the INSERT of a row of the article, whatever its `ins_cmd` is."""
    table, passed = target.table(), arguments(target.article, Operation.INSERT)
    columns = list(table.c)
    assigned = {columns[it.position or 0]: _bound(it, target) for it in passed}
    insert = sa.insert(table).values(assigned)
    if any(column.identity for column in target.columns):
        insert = insert.execution_options(**{SETS_IDENTITY: (target.schema, target.name)})
    return Statement(insert, passed, together=together, must_meet=False)


def _update(database: SqlDatabase, target: SqlTarget, changed: tuple[int, ...]) -> Statement:
    table, key = target.table(), key_arguments(target.article, Operation.UPDATE)
    columns = list(table.c)
    new = tuple(
        it
        for it in arguments(target.article, Operation.UPDATE)
        if it.image is Image.AFTER and it.position is not None and it.position in changed
    )
    assigned: dict[Any, Any] = {columns[it.position or 0]: _bound(it, target) for it in new}
    if not assigned:
        # Nothing changes, but the row must be there.
        first = columns[target.article.key_positions[0]]
        assigned = {first: first}
    assigned |= target.kept(table, {it.name for it in assigned})
    executable = sa.update(table).where(_key_matches(target, table, key)).values(assigned)
    together = database.counts_together and target.key_is_unique
    return Statement(executable, (*new, *key), together=together, must_meet=True)


def _delete(database: SqlDatabase, target: SqlTarget) -> Statement:
    table, key = target.table(), key_arguments(target.article, Operation.DELETE)
    executable = sa.delete(table).where(_key_matches(target, table, key))
    together = database.counts_together and target.key_is_unique
    return Statement(executable, key, together=together, must_meet=True)


def _key_matches(target: SqlTarget, table: sa.TableClause, key: tuple[Argument, ...]) -> sa.ColumnElement[bool]:
    columns = list(table.c)
    return sa.and_(*(columns[it.position or 0] == _bound(it, target) for it in key))


def _truncate(database: SqlDatabase, target: SqlTarget) -> Statement:
    return Statement(own_rows_deleted(database, target, target.table()), (), together=False, must_meet=False)


def own_rows_deleted(database: SqlDatabase, target: SqlTarget, table: sa.TableClause) -> sa.Delete:
    """Return the deletion of the article's rows from its table: those that its filter lets through, where it has
    one."""
    executable = sa.delete(table)
    if target.article.filter is None:
        return executable
    return executable.where(sa.text(translated_filter(target.article.filter, database.sql_name, target.name)))
