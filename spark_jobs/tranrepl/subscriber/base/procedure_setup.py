"""Procedures at a Subscriber that SQLAlchemy reaches: replaced, left alone where somebody edited them, and checked
where they are custom."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import sqlalchemy as sa

from tranrepl.errors import CustomProcedureError
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.call_syntax import Argument, arguments
from tranrepl.model.commands import Operation
from tranrepl.subscriber.base.database import SqlDatabase
from tranrepl.subscriber.base.generated_procedures import GeneratedProcedure, GeneratedProcedures
from tranrepl.subscriber.base.procedures import (
    ProcedureName,
    ProcedureScripter,
    StoredProcedure,
    generated_procedures,
)
from tranrepl.subscriber.base.target import SqlTarget
from tranrepl.subscriber.procedure_names import PREFIXES, called_procedure, generates
from tranrepl.subscriber.subscription import SubscriptionKey


def custom_problem(stored: StoredProcedure | None, passed: tuple[Argument, ...]) -> str | None:
    """Return why a procedure cannot be called with these arguments; None where it can."""
    if stored is None:
        return f"does not exist; it is called with {len(passed)} arguments"
    problem = stored.signature_problem(passed)
    if problem is None and stored.ends_transaction():
        return "ends the transaction: no COMMIT, ROLLBACK or START TRANSACTION in a procedure that applies commands"
    return problem


def unseen_texts(at: str, called: Mapping[str, StoredProcedure | None], grant: str | None) -> Iterator[str]:
    """Yield a warning about custom procedures of which our login does not see what they do. `grant` lets it."""
    unseen = [name for name, it in called.items() if it is not None and not it.body]
    if unseen and grant is not None:
        yield (
            f"{at}: our login may not see the text of {', '.join(unseen)}, which is not looked through for COMMIT and "
            f"the like; an administrator lets it: {grant};"
        )


def made_procedures(scripter: ProcedureScripter, target: SqlTarget) -> list[GeneratedProcedure]:
    """Return the procedures that setup makes for an article."""
    return [
        GeneratedProcedure(str(target.article.source), it.name.name, it.create)
        for it in generated_procedures(scripter, target)
    ]


class ProcedureSetup:
    """One subscription's procedures as a schema change leaves them, read and made in whatever transaction is open."""

    def __init__(
        self,
        session: sa.Connection,
        database: SqlDatabase,
        scripter: ProcedureScripter,
        key: SubscriptionKey,
        where: str,
    ) -> None:
        self._session = session
        self._scripter = scripter
        self._where = where
        self._generated = GeneratedProcedures(session, database, key, where)

    def follow(self, target: SqlTarget) -> list[str]:
        """Regenerate the generated procedures for another definition of the article. One that was edited by hand is
        left alone: `problems` has found that it takes what it is called with."""
        return self._generated.follow(made_procedures(self._scripter, target))

    def problems(self, old: RegisteredArticle, new: RegisteredArticle) -> Iterator[CustomProcedureError]:
        """Yield custom procedures, and generated ones that were edited by hand, that do not take what commands of a new
        definition call them with."""
        for operation in PREFIXES:
            passed = arguments(new, operation)
            if passed == arguments(old, operation):
                continue
            name = self._called(new, operation)
            if name is None or (generates(new.propagation(operation)) and not self._generated.edited([name.name])):
                continue
            problem = custom_problem(self._scripter.stored(self._session, [name]).get(name), passed)
            if problem is not None:
                wanted = ", ".join(f"{it.name} {_type_name(new, it)}" for it in passed)
                yield CustomProcedureError(
                    f"article {new.source}: {self._where}: the table changed at the Publisher, and procedure "
                    f"{name.name} {problem}: it must take ({wanted})",
                    remedy="replace it, then deliver again; `tranrepl script FILE --custom` prints a skeleton",
                    article=str(new.source),
                )

    def _called(self, article: RegisteredArticle, operation: Operation) -> ProcedureName | None:
        propagation = article.propagation(operation)
        if propagation.procedure is None and not generates(propagation):
            return None
        return ProcedureName(*called_procedure(propagation, operation, article.destination, self._scripter.names))


def _type_name(article: RegisteredArticle, argument: Argument) -> str:
    """Return an argument's type as the Publisher has it; of the bitmap, its width in bytes."""
    if argument.position is None:
        return f"binary({-(-len(article.columns) // 8)})"
    return article.columns[argument.position].type_name
