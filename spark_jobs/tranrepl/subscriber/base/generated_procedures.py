"""Procedures at a Subscriber: generated ones are created, replaced, and left alone where somebody edited them; custom
ones are checked.

Source: `MSreplication_objects`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from tranrepl.errors import CustomProcedureError
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.call_syntax import Argument, arguments
from tranrepl.model.commands import Operation
from tranrepl.printable import named
from tranrepl.subscriber.base.database import SqlDatabase
from tranrepl.subscriber.base.execution import execute_ddl
from tranrepl.subscriber.base.procedures import (
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
class GeneratedProcedure:
    """A procedure as setup makes it; `create` is the whole statement."""

    article: str
    name: str
    create: str


class GeneratedProcedures:
    """One subscription's generated procedures, read and made in whatever transaction is open."""

    def __init__(self, session: sa.Connection, database: SqlDatabase, key: SubscriptionKey, where: str) -> None:
        self._session = session
        self._database = database
        self._key = key
        self._where = where

    def set_up(self, wanted: Sequence[GeneratedProcedure]) -> list[str]:
        """Create or regenerate procedures; one that was edited by hand, and is called as before, is left alone. Return
        what was done."""
        registered = self._registered([it.name for it in wanted])
        as_made = self._database.as_made(self._session, registered)
        made = [it for it in wanted if registered.get(it.name) != it.create or it.name not in as_made]
        new = {it.name: it for it in made}
        drops = self._database.drops(self._session, new)
        for it in made:
            for statement in drops[it.name]:
                execute_ddl(self._session, statement)
            execute_ddl(self._session, it.create)
        self._register(made)
        created = [f"created {named(new, 'procedure')} at {self._where}"] if new else []
        return created + [_left_alone(it) for it in wanted if it.name not in new and not as_made[it.name]]

    def edited(self, names: Sequence[str]) -> set[str]:
        """Return the names of those that were edited by hand."""
        as_made = self._database.as_made(self._session, self._registered(names))
        return {name for name, is_as_made in as_made.items() if not is_as_made}

    def follow(self, wanted: Sequence[GeneratedProcedure]) -> list[str]:
        """Regenerate procedures for another definition of their article. One that was edited by hand is left alone:
        that it takes what it is called with has been found before."""
        edited = self.edited([it.name for it in wanted])
        left = [it for it in wanted if it.name in edited]
        self._register(left)
        return [*map(_left_alone, left), *self.set_up([it for it in wanted if it.name not in edited])]

    def _registered(self, names: Sequence[str]) -> dict[str, str]:
        """Return the statements that made them last, by name."""
        if not names:
            return {}
        query = sa.select(OBJECTS.c.object_name, OBJECTS.c.object_text).where(OBJECTS.c.object_name.in_(names))
        return {row.object_name: row.object_text for row in self._session.execute(query)}

    def _register(self, procedures: Sequence[GeneratedProcedure]) -> None:
        if not procedures:
            return
        names = [it.name for it in procedures]
        self._session.execute(sa.delete(OBJECTS).where(OBJECTS.c.object_name.in_(names)))
        rows = [
            {
                "publisher": self._key.publisher,
                "publisher_db": self._key.publisher_db,
                "publication": self._key.publication,
                "article": it.article,
                "object_name": it.name,
                "object_type": "P",
                "object_text": it.create,
            }
            for it in procedures
        ]
        self._session.execute(sa.insert(OBJECTS), rows)


def _left_alone(wanted: GeneratedProcedure) -> str:
    return f"left procedure {wanted.name} alone: it was edited by hand"


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
