"""Whose rows of the model's tables, and whose generated procedures, are found at a Subscriber.

Several publications may deliver to one database, and to one table: they share its generated procedures, and
`MSreplication_objects` names one of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tranrepl.subscriber.capabilities import NameLimit
from tranrepl.subscriber.procedure_names import PREFIXES, procedure_name
from tranrepl.subscriber.subscription import SubscriptionKey
from tranrepl.subscriber.teardown import Destinations, ModelRow, SharedProcedure, SubscriberRemoval


@dataclass(frozen=True, slots=True)
class RegisteredProcedure:
    """A row of `MSreplication_objects`, and whether the procedure is there as it was made."""

    name: str
    publisher: str
    publisher_db: str
    publication: str
    exists: bool
    edited: bool
    """Its text is another one than was made."""


@dataclass(frozen=True, slots=True)
class ModelTables:
    """Which of the model's tables exist."""

    subscriptions: bool
    """Those of watermarks and of snapshots, or one of them."""
    objects: bool


def is_ours(row: ModelRow, key: SubscriptionKey) -> bool:
    """Return whether the row is this publication's."""
    return row.key == (key.publisher_system, key.publisher_db, key.publication)


def removal_at(
    key: SubscriptionKey,
    rows: Sequence[ModelRow],
    registered: Sequence[RegisteredProcedure],
    known: Destinations,
    procedure_names: NameLimit,
    tables: ModelTables,
    created: Iterable[str] = (),
) -> SubscriberRemoval:
    """Return what teardown removes of what is there. `rows`: of watermarks and snapshots, everybody's; `known`: without
    this publication."""
    others = list(dict.fromkeys(row for row in rows if not is_ours(row, key)))
    mine = [it for it in registered if _is_ours(it, key, others)]
    shared: list[SharedProcedure] = []
    for it in mine:
        new_owner = _new_owner(it.name, others, known, procedure_names)
        shared += [SharedProcedure(it.name, new_owner)] if new_owner is not None and it.exists else []
    kept = {it.name for it in shared}
    free = [it for it in mine if it.name not in kept]
    edited = tuple(it.name for it in free if it.exists and it.edited)
    return SubscriberRemoval(
        rows=sum(is_ours(row, key) for row in rows),
        procedures=tuple(it.name for it in free if it.exists and not it.edited),
        gone=tuple(it.name for it in free if not it.exists),
        edited=edited,
        shared=tuple(shared),
        created=tuple(created),
        tables=not others
        and len(mine) == len(registered)
        and (tables.subscriptions or (tables.objects and not edited)),
    )


def _is_ours(it: RegisteredProcedure, key: SubscriptionKey, others: Iterable[ModelRow]) -> bool:
    """Return whether a row that does not say which server the Publisher is belongs to this one: it does unless another
    one, of a publication and a database of the same names, was reached at that address."""
    if (it.publisher_db, it.publication) != (key.publisher_db, key.publication):
        return False
    return not any(
        (row.publisher, row.publisher_db, row.publication) == (it.publisher, it.publisher_db, it.publication)
        for row in others
    )


def _new_owner(
    name: str, others: Iterable[ModelRow], known: Destinations, procedure_names: NameLimit
) -> ModelRow | None:
    """Return another publication that calls the procedure; of one that is of another distribution database nobody can
    tell."""
    for row in others:
        tables = known.get(row.key)
        if tables is None or any(
            procedure_name(it, table, procedure_names) == name for table in tables for it in PREFIXES
        ):
            return row
    return None
