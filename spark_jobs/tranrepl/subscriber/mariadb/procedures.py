"""Procedures of a MariaDB Subscriber.

Layout: SQL Server's generated procedures ("Transactional Articles - Specify How Changes Are Propagated", examples).
They live in the connection's database. `ROW_COUNT()` there counts rows that changed, so that none is no proof: the row
is looked for before 20598 is raised.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import sqlalchemy as sa
from sqlalchemy.dialects import mysql
from sqlalchemy.types import TypeEngine

from tranrepl.errors import ROW_NOT_FOUND
from tranrepl.model.call_syntax import BITMAP, Argument, Image, arguments, key_arguments
from tranrepl.model.commands import Operation
from tranrepl.subscriber.base.procedures import (
    Procedure,
    ProcedureName,
    key_bits,
    mask_bytes,
    name_of,
)
from tranrepl.subscriber.base.target import SqlTarget
from tranrepl.subscriber.capabilities import NameLimit, NameUnit
from tranrepl.subscriber.mariadb.sql_text import qualified_name, quoted_name
from tranrepl.subscriber.mariadb.stored_procedures import StoredRoutine, find_routines
from tranrepl.subscriber.row_not_found import row_not_found_text

PROCEDURE_NAMES = NameLimit(64, NameUnit.CHARACTERS)
_LONGEST_MESSAGE = 512
_DIALECT = mysql.dialect()
_BEFORE_BODY = "MODIFIES SQL DATA\n"


class MariaDbScripter:
    """Writes in MariaDB's language; MySQL's is the same."""

    names = PROCEDURE_NAMES

    def procedure(self, target: SqlTarget, operation: Operation) -> Procedure:
        name = name_of(target, operation, self.names)
        declared = ",\n  ".join(
            f"IN {quoted_name(argument.name)} {_parameter_type(target, argument)}"
            for argument in arguments(target.article, operation)
        )
        body = f"BEGIN\n{_BODIES[operation](target)}END"
        create = f"CREATE PROCEDURE {_qualified(name)}(\n  {declared})\n{_BEFORE_BODY}{body}"
        return Procedure(name, create, body)

    def call(self, name: ProcedureName, passed: tuple[Argument, ...]) -> str:
        values = ", ".join(f":tranrepl_{argument.name}" for argument in passed)
        return f"CALL {_qualified(name).replace(':', chr(92) + ':')}({values})"

    def drop(self, name: ProcedureName) -> str:
        return f"DROP PROCEDURE IF EXISTS {_qualified(name)}"

    def stored(self, session: sa.Connection, names: Sequence[ProcedureName]) -> dict[ProcedureName, StoredRoutine]:
        return find_routines(session, names)

    def made(self, create: str, body: str) -> bool:
        return ends_with_body(create, body)

    def shared(self) -> tuple[Procedure, ...]:
        return ()


def ends_with_body(text: str, body: str) -> bool:
    """Return whether a `CREATE PROCEDURE` of ours ends in this body."""
    return text.endswith(_BEFORE_BODY + body)


def _qualified(name: ProcedureName) -> str:
    return qualified_name(name.schema, name.name)


def _literal(text: str) -> str:
    """Write a text literal that is right with and without NO_BACKSLASH_ESCAPES."""
    if "\\" in text:
        return f"CONVERT(0x{text.encode().hex()} USING utf8mb4)"
    return "'" + text.replace("'", "''") + "'"


def _parameter_type(target: SqlTarget, argument: Argument) -> str:
    if argument.position is None:
        return f"varbinary({mask_bytes(target)})"
    column_type: TypeEngine[object] = target.columns[argument.position].type.type
    return column_type.compile(dialect=_DIALECT)


def _table(target: SqlTarget) -> str:
    return qualified_name(target.schema, target.name)


def _insert(target: SqlTarget) -> str:
    columns = ", ".join(quoted_name(column.name) for column in target.columns)
    values = ", ".join(quoted_name(argument.name) for argument in arguments(target.article, Operation.INSERT))
    return f"  INSERT INTO {_table(target)} ({columns})\n  VALUES ({values});\n"


def _update(target: SqlTarget) -> str:
    passed = arguments(target.article, Operation.UPDATE)
    new = {it.position: quoted_name(it.name) for it in passed if it.image is Image.AFTER}
    matches = _key_matches(target, Operation.UPDATE)
    everything = range(len(target.columns))
    if BITMAP not in passed:
        assigned = [f"{_column(target, at)} = {new[at]}" for at in everything]
        return _declared() + _update_statement(target, assigned, matches) + _row_not_found(target, Operation.UPDATE)
    assigned = [
        f"{_column(target, at)} = CASE WHEN {_bit_is_set(at)} THEN {new[at]} ELSE {_column(target, at)} END"
        for at in everything
    ]
    update = _update_statement(target, assigned, matches)
    key = key_bits(target)
    if key:
        # One that fills itself is set to what it is.
        set_always = [at for at in everything if at not in key or target.columns[at].fills_itself]
        others = _update_statement(target, [assigned[at] for at in set_always], matches)
        update = f"  IF {' OR '.join(map(_bit_is_set, key))} THEN\n{update}  ELSE\n{others}  END IF;\n"
    return _declared() + update + _row_not_found(target, Operation.UPDATE)


def _update_statement(target: SqlTarget, assigned: Sequence[str], matches: str) -> str:
    changes = ",\n    ".join(assigned)
    return (
        f"  UPDATE {_table(target)} AS destination SET\n    {changes}\n  WHERE {matches};\n"
        "  SET tranrepl_rows = ROW_COUNT();\n"
    )


def _delete(target: SqlTarget) -> str:
    matches = _key_matches(target, Operation.DELETE)
    return (
        f"{_declared()}  DELETE destination FROM {_table(target)} AS destination WHERE {matches};\n"
        f"  SET tranrepl_rows = ROW_COUNT();\n{_row_not_found(target, Operation.DELETE)}"
    )


def _declared() -> str:
    return (
        "  DECLARE tranrepl_rows bigint;\n"
        f"  DECLARE tranrepl_message varchar({_LONGEST_MESSAGE}) CHARACTER SET utf8mb4;\n"
    )


def _column(target: SqlTarget, at: int) -> str:
    """Return the qualified column: an unqualified name would be the parameter's where a column is called as one."""
    return f"destination.{quoted_name(target.columns[at].name)}"


def _bit_is_set(at: int) -> str:
    return f"ORD(SUBSTRING(`bitmap`, {at // 8 + 1}, 1)) & {1 << at % 8}"


def _key_matches(target: SqlTarget, operation: Operation) -> str:
    key = zip(target.article.key_positions, key_arguments(target.article, operation), strict=True)
    return " AND ".join(f"{_column(target, at)} = {quoted_name(argument.name)}" for at, argument in key)


def _row_not_found(target: SqlTarget, operation: Operation) -> str:
    matches = _key_matches(target, operation)
    text = row_not_found_text(operation, target.article.destination)
    key = key_arguments(target.article, operation)
    names = [target.columns[at].name for at in target.article.key_positions]
    parts = [_literal(text)]
    for place, (name, argument) in enumerate(zip(names, key, strict=True)):
        parts += [_literal(f"{', ' if place else ''}{name} = "), quoted_name(argument.name)]
    absent = f"NOT EXISTS (SELECT 1 FROM {_table(target)} AS destination WHERE {matches})"
    return (
        f"  IF tranrepl_rows = 0 AND {absent} THEN\n"
        f"    SET tranrepl_message = LEFT(CONCAT({', '.join(parts)}), {_LONGEST_MESSAGE});\n"
        f"    SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = {ROW_NOT_FOUND}, MESSAGE_TEXT = tranrepl_message;\n"
        "  END IF;\n"
    )


_BODIES: Mapping[Operation, Callable[[SqlTarget], str]] = {
    Operation.INSERT: _insert,
    Operation.UPDATE: _update,
    Operation.DELETE: _delete,
}
