"""Procedures of databases that SQLAlchemy reaches: what every one of them has, and who writes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import sqlalchemy as sa

from tranrepl.model.article import RegisteredArticle
from tranrepl.model.call_syntax import Argument, arguments
from tranrepl.model.commands import Operation, Propagation
from tranrepl.model.names import TableName
from tranrepl.settings.publication import Article
from tranrepl.subscriber.base.target import SqlTarget
from tranrepl.subscriber.capabilities import NameLimit
from tranrepl.subscriber.procedure_names import PREFIXES, Scripted, called_procedure, generates


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


class StoredProcedure(Protocol):
    """A procedure as the catalogue has it."""

    @property
    def body(self) -> str:
        """What the catalogue holds of its text, to compare with `Procedure.body`; empty where our login may not see
        it."""
        ...

    def ends_transaction(self) -> bool:
        """Return whether its text ends the transaction that it is called in."""
        ...

    def signature_problem(self, passed: tuple[Argument, ...]) -> str | None:
        """Return why it cannot be called with these arguments; None where it can."""
        ...


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

    def stored(self, session: sa.Connection, names: Sequence[ProcedureName]) -> Mapping[ProcedureName, StoredProcedure]:
        """Return the procedures that are there, asked for all together."""
        ...

    def made(self, create: str, body: str) -> bool:
        """Return whether the catalogue's body is what this statement made."""
        ...

    def shared(self) -> tuple[Procedure, ...]:
        """Return the procedures that all articles share."""
        ...


def count_problem(count: int, expected: int) -> str | None:
    """Return what is wrong with the number of a procedure's arguments."""
    return None if count == expected else f"takes {count} arguments; it is called with {expected}"


def name_of(target: SqlTarget, operation: Operation, names: NameLimit) -> ProcedureName:
    """Return the name of the procedure that a command calls, generated or custom."""
    return called_name(target.article.propagation(operation), operation, target.article.destination, names)


def called_name(
    propagation: Propagation, operation: Operation, destination: TableName, names: NameLimit
) -> ProcedureName:
    return ProcedureName(*called_procedure(propagation, operation, destination, names))


def custom_names(articles: Iterable[Article], names: NameLimit) -> list[ProcedureName]:
    """Return the names of the articles' custom procedures."""
    return [
        called_name(article.propagation(it), it, article.destination_table, names)
        for article in articles
        for it in custom_operations(article)
    ]


def generated_procedures(scripter: ProcedureScripter, target: SqlTarget) -> list[Procedure]:
    return [scripter.procedure(target, it) for it in PREFIXES if generates(target.article.propagation(it))]


def custom_operations(article: Article | RegisteredArticle) -> list[Operation]:
    """Return the operations that go through a custom procedure."""
    return [it for it in PREFIXES if article.propagation(it).procedure is not None]


def scripted(scripter: ProcedureScripter, target: SqlTarget, what: Scripted) -> list[str]:
    """Return statements that replace the procedures, without a terminator."""
    if what is Scripted.CUSTOM:
        procedures = [scripter.procedure(target, it) for it in custom_operations(target.article)]
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
