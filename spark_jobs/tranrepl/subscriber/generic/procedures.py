"""Procedures of databases that SQLAlchemy reaches: what every one of them has, and who writes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import sqlalchemy as sa

from tranrepl.model.call_syntax import Argument, arguments
from tranrepl.model.commands import Operation
from tranrepl.subscriber.capabilities import NameLimit
from tranrepl.subscriber.dialect import Scripted
from tranrepl.subscriber.generic.target import SqlTarget
from tranrepl.subscriber.procedure_names import PREFIXES, called_procedure, generates


@dataclass(frozen=True, slots=True)
class ProcedureName:
    schema: str | None
    """None: where generated procedures live."""
    name: str


@dataclass(frozen=True, slots=True)
class Procedure:
    """`create` is the whole statement, `body` what the catalogue shows of it."""

    name: ProcedureName
    create: str
    body: str


class ProcedureScripter(Protocol):
    """Writes procedures in one database's language, and the statements that call them."""

    names: NameLimit

    def procedure(self, target: SqlTarget, operation: Operation) -> Procedure:
        """Return the procedure that applies `operation`; of a custom one, the skeleton."""
        ...

    def call(self, name: ProcedureName, passed: tuple[Argument, ...]) -> str:
        """Return the statement that calls it, for `sqlalchemy.text`, each argument bound by its name."""
        ...

    def drop(self, name: ProcedureName) -> str:
        """Return the statement that drops a procedure if it is there."""
        ...

    def stored_body(self, session: sa.Connection, name: ProcedureName) -> str | None:
        """Return what the catalogue holds of a procedure, to compare with `Procedure.body`; None where there is
        none."""
        ...

    def made(self, create: str, body: str) -> bool:
        """Return whether the catalogue's body is what this statement made."""
        ...

    def ends_transaction(self, session: sa.Connection, name: ProcedureName) -> bool:
        """Return whether the text of the procedure in the catalogue ends the transaction that it is called in."""
        ...

    def signature_problem(
        self, session: sa.Connection, name: ProcedureName, passed: tuple[Argument, ...]
    ) -> str | None:
        """Return why the procedure in the catalogue cannot be called with these arguments; None where it can."""
        ...

    def shared(self) -> tuple[Procedure, ...]:
        """Return the procedures that all articles share."""
        ...


def count_problem(count: int, expected: int) -> str | None:
    """Return what is wrong with the number of a procedure's arguments."""
    return None if count == expected else f"takes {count} arguments; it is called with {expected}"


def name_of(target: SqlTarget, operation: Operation, names: NameLimit) -> ProcedureName:
    """Return the name of the procedure that a command calls, generated or custom."""
    propagation = target.article.propagation(operation)
    return ProcedureName(*called_procedure(propagation, operation, target.article.destination, names))


def generated_procedures(scripter: ProcedureScripter, target: SqlTarget) -> list[Procedure]:
    return [scripter.procedure(target, it) for it in PREFIXES if generates(target.article.propagation(it))]


def custom_operations(target: SqlTarget) -> list[Operation]:
    """Return the operations that go through a custom procedure."""
    return [it for it in PREFIXES if target.article.propagation(it).procedure is not None]


def scripted(scripter: ProcedureScripter, target: SqlTarget, what: Scripted) -> list[str]:
    """Return statements that replace the procedures, without a terminator."""
    if what is Scripted.CUSTOM:
        procedures = [scripter.procedure(target, it) for it in custom_operations(target)]
    else:
        procedures = generated_procedures(scripter, target)
    return [text for it in procedures for text in (scripter.drop(it.name), it.create)]


def call_of(scripter: ProcedureScripter, target: SqlTarget, operation: Operation) -> str:
    return scripter.call(name_of(target, operation, scripter.names), arguments(target.article, operation))


def mask_bytes(target: SqlTarget) -> int:
    """Return the width of the bitmap in bytes: a bit a column."""
    return -(-len(target.columns) // 8)


def key_bits(target: SqlTarget) -> tuple[int, ...]:
    """Return positions of the key's columns where there are others besides: their bits choose between two UPDATEs."""
    key = target.article.key_positions
    return key if len(key) < len(target.columns) else ()
