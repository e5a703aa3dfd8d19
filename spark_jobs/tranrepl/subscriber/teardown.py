"""Results of a teardown at a Subscriber, and the statements for a Subscriber that is not reached.

All that is a publication's in one database goes at once, whatever its subscriptions are called. Never a user's table or
row: tables that setup made are the user's since they have rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from tranrepl.errors import TransientError
from tranrepl.model.names import TableName
from tranrepl.subscriber.replication_tables import ARTICLES, OBJECTS, SNAPSHOTS, WATERMARKS
from tranrepl.subscriber.subscription import SubscriptionKey


def statements_left(key: SubscriptionKey) -> list[str]:
    """Return the statements, in order, which every database takes. The first one says which procedures are to be
    dropped: several publications may share one."""
    procedures = sa.select(OBJECTS.c.object_name).where(_is_mine(OBJECTS, key))
    deletes = [
        sa.delete(it).where(_is_mine(it, key), it.c.publisher_system == key.publisher_system)
        for it in (WATERMARKS, SNAPSHOTS, ARTICLES)
    ]
    return [
        f"{_text(procedures)};  -- DROP PROCEDURE each that no other publication calls",
        *(f"{_text(it)};" for it in (*deletes, sa.delete(OBJECTS).where(_is_mine(OBJECTS, key)))),
    ]


def _is_mine(table: sa.Table, key: SubscriptionKey) -> sa.ColumnElement[bool]:
    return sa.and_(table.c.publisher_db == key.publisher_db, table.c.publication == key.publication)


def _text(statement: sa.Select[tuple[str]] | sa.Delete) -> str:
    return " ".join(str(statement.compile(compile_kwargs={"literal_binds": True})).split())


LOCK_SECONDS = 5
"""How long teardown waits for a delivery to end its transaction."""

PublicationKey = tuple[str, str, str]
"""The Publisher's system identifier and database, and the publication."""
Destinations = Mapping[PublicationKey, frozenset[TableName]]
"""Destination tables of the publications that the distribution database knows."""


@dataclass(frozen=True, slots=True)
class ModelRow:
    """What a row of the model's tables says of whose it is."""

    publisher: str
    publisher_system: str
    publisher_db: str
    publication: str

    @property
    def key(self) -> PublicationKey:
        return self.publisher_system, self.publisher_db, self.publication


@dataclass(frozen=True, slots=True)
class SharedProcedure:
    """A generated procedure that another publication calls, or may call: it is that one's from now on."""

    name: str
    new_owner: ModelRow


@dataclass(frozen=True, slots=True)
class SubscriberRemoval:
    """What goes and what is left."""

    rows: int
    """How many rows of watermarks and snapshots."""
    procedures: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    """Registered, and dropped by somebody: only their rows go."""
    edited: tuple[str, ...] = ()
    shared: tuple[SharedProcedure, ...] = ()
    created: tuple[str, ...] = ()
    """Articles whose tables setup made, as far as the database knows."""
    tables: bool = False
    """The model's tables go too: nobody else has a row there."""

    @property
    def removed(self) -> tuple[str, ...]:
        """What is removed, in words."""
        words = [f"procedure {name}" for name in self.procedures]
        if self.rows or self.gone:
            words.append("the publication's rows of msreplication_subscriptions, _snapshots and _objects")
        if self.tables:
            kept = ", all but _objects" if self.edited else ""
            words.append(f"these tables themselves{kept}: no other publication has rows there")
        return tuple(words)

    def stays(self, drop: Callable[[str], str], destinations: Mapping[str, Sequence[TableName]]) -> tuple[str, ...]:
        """Say what stays; `drop` gives the statement that drops a procedure. `destinations`: the tables of articles, by
        all names that these had."""
        tables = dict.fromkeys(
            f"table {', '.join(map(str, destinations[it]))}" if it in destinations else f"table of article {it}"
            for it in self.created
        )
        return (
            *(
                f"procedure {it}, which was edited by hand, and its row of msreplication_objects; {drop(it)}; removes "
                "it, and tearing down again the row"
                for it in self.edited
            ),
            *(f"procedure {it.name}: publication {it.new_owner.publication} uses it, or may" for it in self.shared),
            *(f"{it}, which setup created, with its rows" for it in tables),
        )


def being_delivered(where: str) -> TransientError:
    return TransientError(
        f"{where}: a job is delivering to it",
        remedy="wait for its end, or end it; then tear down again",
    )
