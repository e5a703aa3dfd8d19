"""Procedures of a MariaDB Subscriber.

Layout: SQL Server's generated procedures ("Transactional Articles - Specify How Changes Are Propagated", examples).
They live in the connection's database. `ROW_COUNT()` there counts rows that changed, so that none is no proof: the row
is looked for before 20598 is raised.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.dialects import mysql
from sqlalchemy.types import TypeEngine
from sqlglot import Token, TokenType
from sqlglot.errors import SqlglotError
from sqlglot.tokens import Tokenizer

from tranrepl.errors import ROW_NOT_FOUND
from tranrepl.model.call_syntax import BITMAP, Argument, Image, arguments, key_arguments
from tranrepl.model.commands import Operation
from tranrepl.subscriber.base.procedures import (
    Procedure,
    ProcedureName,
    count_problem,
    key_bits,
    mask_bytes,
    name_of,
)
from tranrepl.subscriber.base.target import SqlTarget
from tranrepl.subscriber.capabilities import NameLimit, NameUnit
from tranrepl.subscriber.mariadb.sql_text import qualified_name, quoted_name, tokenizer

_NO_KEYWORDS = frozenset({TokenType.STRING, TokenType.NATIONAL_STRING, TokenType.IDENTIFIER})
_BEGINNINGS = frozenset({("START", "TRANSACTION"), ("BEGIN", "TRANSACTION"), ("BEGIN", "TRAN")})


def ends_transaction(body: str, tokenizer: type[Tokenizer]) -> bool:
    """Return whether a COMMIT, a ROLLBACK, or the beginning of another transaction is among a procedure's keywords.

    A text that is not of the tokenizer's language has none: what it does is seen when it is called.
    """
    try:
        words = _keywords(tokenizer().tokenize(body))
    except SqlglotError:
        return False
    following = [*words, ""][1:]
    return any(
        word == "COMMIT" or (word == "ROLLBACK" and not _to_savepoint(words[at + 1 :])) or (word, after) in _BEGINNINGS
        for at, (word, after) in enumerate(zip(words, following, strict=True))
    )


def _keywords(tokens: Sequence[Token]) -> list[str]:
    """Return the texts of keywords in capitals; empty for what is no keyword."""
    return ["" if token.token_type in _NO_KEYWORDS else token.text.upper() for token in tokens]


def _to_savepoint(words: Sequence[str]) -> bool:
    return words[:1] == ["TO"] or words[:2] == ["WORK", "TO"]


_TEXT = (
    "SELECT :number{0} AS number, COALESCE(routine_definition, '') AS body, sql_mode AS sql_mode "
    "FROM information_schema.routines WHERE routine_type = 'PROCEDURE' "
    "AND routine_schema = COALESCE(:schema{0}, DATABASE()) AND routine_name = :name{0}"
)
_COUNT = (
    "SELECT :number{0} AS number, COUNT(*) AS parameters FROM information_schema.parameters "
    "WHERE routine_type = 'PROCEDURE' "
    "AND specific_schema = COALESCE(:schema{0}, DATABASE()) AND specific_name = :name{0}"
)


@dataclass(frozen=True, slots=True)
class StoredRoutine:
    body: str
    """Empty where our login may not see it."""
    sql_mode: str
    parameters: int

    def ends_transaction(self) -> bool:
        # The catalogue has comments for the server (/*! … */) as what they are for it: its own text, or nothing.
        return ends_transaction(self.body, tokenizer(self.sql_mode))

    def signature_problem(self, passed: tuple[Argument, ...]) -> str | None:
        return count_problem(self.parameters, len(passed))


def find_routines(session: sa.Connection, names: Sequence[ProcedureName]) -> dict[ProcedureName, StoredRoutine]:
    """Return the procedures that are there; names are compared as the server does."""
    if not names:
        return {}
    counts = {row.number: row.parameters for row in session.execute(*_of_each(_COUNT, names))}
    return {
        names[row.number]: StoredRoutine(row.body, row.sql_mode, counts[row.number])
        for row in session.execute(*_of_each(_TEXT, names))
    }


def _of_each(query: str, names: Sequence[ProcedureName]) -> tuple[sa.TextClause, dict[str, object]]:
    """Return the query for all names in one, and its parameters."""
    text = " UNION ALL ".join(query.format(at) for at in range(len(names)))
    values: dict[str, object] = {}
    for at, it in enumerate(names):
        values |= {f"number{at}": at, f"schema{at}": it.schema, f"name{at}": it.name}
    return sa.text(text), values


PROCEDURE_NAMES = NameLimit(64, NameUnit.CHARACTERS)
_DIALECT = mysql.dialect()
_BEFORE_BODY = "MODIFIES SQL DATA\n"
_DECLARED = "  DECLARE tranrepl_rows bigint;\n"


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
        return _DECLARED + _update_statement(target, assigned, matches) + _row_not_found(target, Operation.UPDATE)
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
    return _DECLARED + update + _row_not_found(target, Operation.UPDATE)


def _update_statement(target: SqlTarget, assigned: Sequence[str], matches: str) -> str:
    changes = ",\n    ".join(assigned)
    return (
        f"  UPDATE {_table(target)} AS destination SET\n    {changes}\n  WHERE {matches};\n"
        "  SET tranrepl_rows = ROW_COUNT();\n"
    )


def _delete(target: SqlTarget) -> str:
    matches = _key_matches(target, Operation.DELETE)
    return (
        f"{_DECLARED}  DELETE destination FROM {_table(target)} AS destination WHERE {matches};\n"
        f"  SET tranrepl_rows = ROW_COUNT();\n{_row_not_found(target, Operation.DELETE)}"
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
    absent = f"NOT EXISTS (SELECT 1 FROM {_table(target)} AS destination WHERE {matches})"
    # MySQL takes 128 characters. Whoever calls adds the table and the key.
    message = f"The row was not found at the Subscriber when applying the replicated {operation.name} command"
    return (
        f"  IF tranrepl_rows = 0 AND {absent} THEN\n"
        f"    SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = {ROW_NOT_FOUND}, MESSAGE_TEXT = '{message}';\n"
        "  END IF;\n"
    )


_BODIES: Mapping[Operation, Callable[[SqlTarget], str]] = {
    Operation.INSERT: _insert,
    Operation.UPDATE: _update,
    Operation.DELETE: _delete,
}
