"""What keeps a PostgreSQL server from publishing at all."""

from __future__ import annotations

import os
from collections.abc import Iterator

from psycopg.errors import InsufficientPrivilege, UndefinedObject

from tranrepl.error_numbers import Codes
from tranrepl.errors import ConfigurationError
from tranrepl.postgres.session import Session, translated_errors, version_problems
from tranrepl.publisher.postgres.free_slots import MORE_SLOTS, free_slots
from tranrepl.publisher.postgres.replication_session import right_to_read
from tranrepl.publisher.postgres.slot import ReplicationSlot, SlotState


def server_problems(session: Session, slot: ReplicationSlot) -> Iterator[ConfigurationError]:
    """Yield what keeps the server from publishing, each with its remedy."""
    yield from version_problems(session, slot.where)
    with translated_errors(slot.where):
        row = session.execute("SHOW wal_level").fetchone()
    wal_level = row[0] if row else None
    if wal_level != "logical":
        yield ConfigurationError(
            f"{slot.where}: wal_level is {wal_level!r}",
            remedy="allowed: logical. ALTER SYSTEM SET wal_level = 'logical'; then restart the server",
        )
    else:
        yield from _right_problems(session, slot.where)
    found = slot.find()
    if found is not None and found.state is SlotState.INVALIDATED:
        yield slot.invalidated(found)
    yield from _slot_problems(session, slot.where, 1 if found is None else 0)


def _right_problems(session: Session, where: str) -> Iterator[ConfigurationError]:
    """Yield a problem where our role may not read the log: that is tried, for not every server has the right as an
    attribute. It is asked for before a slot of this name is looked for, and there is none."""
    try:
        session.execute(
            "SELECT count(*) FROM pg_catalog.pg_logical_slot_peek_binary_changes(%s, NULL, 1)",
            [f"tranrepl_none_{os.urandom(8).hex()}"],
        )
    except UndefinedObject:
        return
    except InsufficientPrivilege as error:
        yield ConfigurationError(
            f"{where}: role {session.info.user} may not read the log",
            **Codes.POSTGRES.value.numbered(error.sqlstate),
            remedy=right_to_read(session.info.user),
        )


def _slot_problems(session: Session, where: str, missing: int) -> Iterator[ConfigurationError]:
    """Yield a problem where the publication's slot does not fit in, or beside it the temporary copy that a log reader
    reads."""
    free = free_slots(session, where).free
    if free < missing + 1:
        yield ConfigurationError(
            f"{where}: {free} replication slots are free, {missing + 1} are needed", remedy=MORE_SLOTS
        )
