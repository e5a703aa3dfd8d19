"""Generated procedures at a Subscriber: created, replaced, and left alone where somebody edited them.

Source: `MSreplication_objects`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from tranrepl.subscriber.base.model_database import ModelDatabase, execute_ddl
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

    def __init__(self, session: sa.Connection, database: ModelDatabase, key: SubscriptionKey, where: str) -> None:
        self._session = session
        self._database = database
        self._key = key
        self._where = where

    def set_up(self, wanted: Sequence[GeneratedProcedure]) -> list[str]:
        """Create or regenerate procedures; one that was edited by hand, and is called as before, is left alone. Return
        what was done."""
        registered = self._registered([it.name for it in wanted])
        as_made = self._database.as_made(self._session, registered)
        done = []
        for it in wanted:
            if registered.get(it.name) != it.create or it.name not in as_made:
                self._replace(it)
                done.append(f"created procedure {it.name} at {self._where}")
            elif not as_made[it.name]:
                done.append(_left_alone(it))
        return done

    def edited(self, names: Sequence[str]) -> set[str]:
        """Return the names of those that were edited by hand."""
        as_made = self._database.as_made(self._session, self._registered(names))
        return {name for name, is_as_made in as_made.items() if not is_as_made}

    def follow(self, wanted: Sequence[GeneratedProcedure]) -> list[str]:
        """Regenerate procedures for another definition of their article. One that was edited by hand is left alone:
        that it takes what it is called with has been found before."""
        edited = self.edited([it.name for it in wanted])
        for it in wanted:
            if it.name in edited:
                self._register(it)
        left = [_left_alone(it) for it in wanted if it.name in edited]
        return [*left, *self.set_up([it for it in wanted if it.name not in edited])]

    def _registered(self, names: Sequence[str]) -> dict[str, str]:
        """Return the statements that made them last, by name."""
        if not names:
            return {}
        query = sa.select(OBJECTS.c.object_name, OBJECTS.c.object_text).where(OBJECTS.c.object_name.in_(names))
        return {row.object_name: row.object_text for row in self._session.execute(query)}

    def _replace(self, wanted: GeneratedProcedure) -> None:
        for statement in self._database.drops(self._session, wanted.name):
            execute_ddl(self._session, statement)
        execute_ddl(self._session, wanted.create)
        self._register(wanted)

    def _register(self, wanted: GeneratedProcedure) -> None:
        self._session.execute(sa.delete(OBJECTS).where(OBJECTS.c.object_name == wanted.name))
        self._session.execute(
            sa.insert(OBJECTS).values(
                publisher=self._key.publisher,
                publisher_db=self._key.publisher_db,
                publication=self._key.publication,
                article=wanted.article,
                object_name=wanted.name,
                object_type="P",
                object_text=wanted.create,
            )
        )


def _left_alone(wanted: GeneratedProcedure) -> str:
    return f"left procedure {wanted.name} alone: it was edited by hand"
