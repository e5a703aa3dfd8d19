"""Procedures at a Subscriber that SQLAlchemy reaches: replaced, left alone where somebody edited them, and checked
where they are custom."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from tranrepl.errors import CustomProcedureError
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.call_syntax import Argument, arguments
from tranrepl.model.commands import Operation
from tranrepl.subscriber.base.model_database import execute_ddl
from tranrepl.subscriber.base.procedures import (
    Procedure,
    ProcedureName,
    ProcedureScripter,
    StoredProcedure,
    generated_procedures,
)
from tranrepl.subscriber.base.target import SqlTarget
from tranrepl.subscriber.procedure_names import PREFIXES, called_procedure, generates
from tranrepl.subscriber.replication_tables import OBJECTS
from tranrepl.subscriber.subscription import SubscriptionKey


@dataclass(frozen=True, slots=True)
class _Known:
    """A procedure in the catalogue, and the statement that made it; None where it is not there, or not ours."""

    stored: StoredProcedure | None
    registered: str | None
    made: Callable[[str, str], bool]

    @property
    def edited(self) -> bool:
        if self.stored is None or self.registered is None:
            return False
        return not self.made(self.registered, self.stored.body)


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


class ProcedureSetup:
    """One subscription's procedures, read and made in whatever transaction is open."""

    def __init__(self, session: sa.Connection, scripter: ProcedureScripter, key: SubscriptionKey, where: str) -> None:
        self._session = session
        self._scripter = scripter
        self._key = key
        self._where = where

    def set_up(self, targets: Sequence[SqlTarget]) -> list[str]:
        """Create or regenerate the generated procedures of articles; one that was edited by hand, and is called as
        before, is left alone. Return what was done."""
        made = [(target.article, it) for target in targets for it in generated_procedures(self._scripter, target)]
        known = self._known([it.name for _, it in made])
        return [done for article, it in made for done in self._set_up(article, it, known[it.name])]

    def follow(self, target: SqlTarget) -> list[str]:
        """Regenerate the generated procedures for another definition of the article. One that was edited by hand is
        left alone: `problems` has found that it takes what it is called with."""
        done, generated = [], generated_procedures(self._scripter, target)
        known = self._known([it.name for it in generated])
        for it in generated:
            if known[it.name].edited:
                self._register(target.article, it)
                done.append(f"left procedure {it.name.name} alone: it was edited by hand")
            else:
                done += self._set_up(target.article, it, known[it.name])
        return done

    def problems(self, old: RegisteredArticle, new: RegisteredArticle) -> Iterator[CustomProcedureError]:
        """Yield custom procedures, and generated ones that were edited by hand, that do not take what commands of a new
        definition call them with."""
        for operation in PREFIXES:
            passed = arguments(new, operation)
            if passed == arguments(old, operation):
                continue
            name = self._called(new, operation)
            known = None if name is None else self._known([name])[name]
            if name is None or known is None or (generates(new.propagation(operation)) and not known.edited):
                continue
            problem = custom_problem(known.stored, passed)
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

    def _known(self, names: Sequence[ProcedureName]) -> dict[ProcedureName, _Known]:
        """Read all of these from the catalogue, and from the table of those that were made."""
        if not names:
            return {}
        stored = self._scripter.stored(self._session, names)
        query = sa.select(OBJECTS.c.object_name, OBJECTS.c.object_text).where(
            OBJECTS.c.object_name.in_([it.name for it in names])
        )
        texts = {row.object_name: row.object_text for row in self._session.execute(query)}
        return {it: _Known(stored.get(it), texts.get(it.name), self._scripter.made) for it in names}

    def _set_up(self, article: RegisteredArticle, generated: Procedure, known: _Known) -> list[str]:
        name = generated.name
        if known.registered == generated.create and known.stored is not None:
            unchanged = known.stored.body == generated.body
            return [] if unchanged else [f"left procedure {name.name} alone: it was edited by hand"]
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
