"""Procedures at a Subscriber that SQLAlchemy reaches: made anew, left alone where somebody edited them, and checked
where they are custom."""

from __future__ import annotations

from collections.abc import Iterator

import sqlalchemy as sa

from tranrepl.errors import CustomProcedureError
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.call_syntax import Argument, arguments
from tranrepl.model.commands import Operation
from tranrepl.subscriber.dialect import SubscriptionKey
from tranrepl.subscriber.generic.procedures import (
    Procedure,
    ProcedureName,
    ProcedureScripter,
    generated_procedures,
)
from tranrepl.subscriber.generic.target import SqlTarget
from tranrepl.subscriber.procedure_names import PREFIXES, called_procedure, generates
from tranrepl.subscriber.replication_tables import OBJECTS


def execute_ddl(session: sa.Connection, statement: str) -> None:
    """Execute DDL as it is written: no parameters, and no marks for them."""
    session.exec_driver_sql(statement, execution_options={"no_parameters": True})


class ProcedureSetup:
    """One subscription's procedures, read and made in whatever transaction is open."""

    def __init__(self, session: sa.Connection, scripter: ProcedureScripter, key: SubscriptionKey, where: str) -> None:
        self._session = session
        self._scripter = scripter
        self._key = key
        self._where = where

    def set_up(self, target: SqlTarget) -> list[str]:
        """Create or regenerate the generated procedures of an article; one that was edited by hand, and is called as
        before, is left alone. Return what was done."""
        return [
            done for it in generated_procedures(self._scripter, target) for done in self._set_up(target.article, it)
        ]

    def follow(self, target: SqlTarget) -> list[str]:
        """Regenerate the generated procedures for another definition of the article. One that was edited by hand is
        left alone: `problems` has found that it takes what it is called with."""
        done = []
        for it in generated_procedures(self._scripter, target):
            if self._is_edited(it.name):
                self._register(target.article, it)
                done.append(f"left procedure {it.name.name} alone: it was edited by hand")
            else:
                done += self._set_up(target.article, it)
        return done

    def problems(self, old: RegisteredArticle, new: RegisteredArticle) -> Iterator[CustomProcedureError]:
        """Yield custom procedures, and generated ones that were edited by hand, that do not take what commands of a new
        definition call them with."""
        for operation in PREFIXES:
            passed = arguments(new, operation)
            if passed == arguments(old, operation):
                continue
            name = self._called(new, operation)
            if name is None or (generates(new.propagation(operation)) and not self._is_edited(name)):
                continue
            problem = self.custom_problem(name, passed)
            if problem is not None:
                wanted = ", ".join(f"{it.name} {_type_name(new, it)}" for it in passed)
                yield CustomProcedureError(
                    f"article {new.source}: {self._where}: the table changed at the Publisher, and procedure "
                    f"{name.name} {problem}: it must take ({wanted})",
                    remedy="replace it, then deliver again; `tranrepl script FILE --custom` prints a skeleton",
                    article=str(new.source),
                )

    def custom_problem(self, name: ProcedureName, passed: tuple[Argument, ...]) -> str | None:
        """Return why a procedure cannot be called with these arguments; None where it can."""
        if self._scripter.stored_body(self._session, name) is None:
            return f"does not exist; it is called with {len(passed)} arguments"
        problem = self._scripter.signature_problem(self._session, name, passed)
        if problem is None and self._scripter.ends_transaction(self._session, name):
            return "ends the transaction: no COMMIT, ROLLBACK or START TRANSACTION in a procedure that applies commands"
        return problem

    def _called(self, article: RegisteredArticle, operation: Operation) -> ProcedureName | None:
        propagation = article.propagation(operation)
        if propagation.procedure is None and not generates(propagation):
            return None
        return ProcedureName(*called_procedure(propagation, operation, article.destination, self._scripter.names))

    def _is_edited(self, name: ProcedureName) -> bool:
        stored, registered = self._scripter.stored_body(self._session, name), self._registered(name)
        return stored is not None and registered is not None and not self._scripter.made(registered, stored)

    def _registered(self, name: ProcedureName) -> str | None:
        return self._session.scalar(sa.select(OBJECTS.c.object_text).where(OBJECTS.c.object_name == name.name))

    def _set_up(self, article: RegisteredArticle, generated: Procedure) -> list[str]:
        name = generated.name
        stored = self._scripter.stored_body(self._session, name)
        if self._registered(name) == generated.create and stored is not None:
            return [] if stored == generated.body else [f"left procedure {name.name} alone: it was edited by hand"]
        execute_ddl(self._session, self._scripter.drop(name))
        execute_ddl(self._session, generated.create)
        self._register(article, generated)
        return [f"created procedure {name.name} at {self._where}"]

    def _register(self, article: RegisteredArticle, generated: Procedure) -> None:
        self._session.execute(sa.delete(OBJECTS).where(OBJECTS.c.object_name == generated.name.name))
        self._session.execute(
            sa.insert(OBJECTS).values(
                publisher=self._key.publisher,
                publisher_db=self._key.publisher_db,
                publication=self._key.publication,
                article=str(article.source),
                object_name=generated.name.name,
                object_type="P",
                object_text=generated.create,
            )
        )


def _type_name(article: RegisteredArticle, argument: Argument) -> str:
    """Return an argument's type as the Publisher has it; of the bitmap, its width in bytes."""
    if argument.position is None:
        return f"binary({-(-len(article.columns) // 8)})"
    return article.columns[argument.position].type_name
