"""Registered batches: what makes a folder of the store exist.

A batch's row and the log reader's watermark are written in one transaction, under a comparison with the watermark that
the batch was read from.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from tranrepl.distributor.database.connection import DatabaseConnection
from tranrepl.distributor.database.pending_definitions import forget_pending
from tranrepl.distributor.database.publications import PublicationRecord, at_position, overtaken
from tranrepl.distributor.database.schema_changes import (
    StoredSchemaChange,
    StoredScript,
    register_schema_changes,
    register_scripts,
    remove_schema_changes,
)
from tranrepl.distributor.database.scripts import forget_digests
from tranrepl.distributor.database.tracer_tokens import StoredToken, register_tokens
from tranrepl.distributor.notifications import REGISTERED, notify
from tranrepl.distributor.tables import mspublications, msrepl_batches, msrepl_replaced_folders
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.position import Position, seqnos_of_one_place

MOST_DEFINITIONS = 1000
"""More are not noted of a batch, nor read by themselves."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Commands of whole transactions, in one folder of the store."""

    folder: str
    first_xact_seqno: bytes
    last_xact_seqno: bytes
    first_commit_time: datetime
    last_commit_time: datetime
    transactions: int
    commands: int
    log_bytes: int
    """Bytes of the log messages it was made of: what its commands weigh, roughly. None of what setup stored."""
    clock_difference: int | None = None
    """µs by which the Publisher's clock was ahead of the distribution database's when it was read."""
    entry_time: datetime | None = None
    """When it was registered, by the distribution database's clock; None where it is not yet."""
    article_ids: tuple[int, ...] | None = None
    """Definitions that its commands have; None where they are many, or nobody has noted them."""


def definitions_of(batches: Iterable[Batch]) -> frozenset[int] | None:
    """Return the definitions that commands of the batches have; None where they are many, or not known."""
    found: set[int] = set()
    for it in batches:
        if it.article_ids is None:
            return None
        found.update(it.article_ids)
    return frozenset(found) if len(found) <= MOST_DEFINITIONS else None


class Batches:
    """What `msrepl_batches` holds. Ages are measured by the database's own clock, which wrote the times."""

    def __init__(self, database: DatabaseConnection) -> None:
        self._database = database

    def register(
        self,
        record: PublicationRecord,
        batch: Batch | None,
        end: Position,
        schema_changes: Sequence[StoredSchemaChange] = (),
        definitions: Sequence[RegisteredArticle] = (),
        scripts: Sequence[StoredScript] = (),
        tokens: Sequence[StoredToken] = (),
        *,
        proof: str | None,
        redefined: str | None = None,
        same_articles: bool = False,
    ) -> PublicationRecord:
        """Register what was read after `record.registered_to`, in one transaction with the watermark, with the schema
        changes, scripts and tracer tokens in it, and with the definitions that the changes made. `proof`: the
        Publisher's of `end`; `redefined`: the digest of pending definitions that are in force then. Who waits for a
        batch is notified.

        Without a batch (the log held no published change) only the watermark moves. Returns the record as it is then,
        from which the next batch may have been read already. Raises FencedError where another log reader was faster;
        with `same_articles`, also where articles were changed since the record was read.
        """
        read = mspublications.c.articles_version == record.articles_version if same_articles else sa.true()
        xact_seqno = batch.last_xact_seqno if batch else record.registered_xact_seqno
        commit_time = batch.last_commit_time if batch else record.registered_commit_time
        with self._database.transaction() as connection:
            moved = connection.execute(
                mspublications.update()
                .where(at_position(record), read)
                .values(
                    registered_to=end.value,
                    registered_proof=proof,
                    registered_xact_seqno=xact_seqno,
                    registered_commit_time=commit_time,
                )
            )
            if moved.rowcount != 1:
                raise overtaken(self._database.where, record)
            if batch is not None:
                connection.execute(msrepl_batches.insert().values(**_values(record, batch)))
            register_schema_changes(connection, record, schema_changes, definitions)
            register_scripts(connection, record, scripts)
            forget_digests(connection, record, [it.digest for it in scripts])
            register_tokens(connection, record, tokens)
            if redefined is not None:
                forget_pending(connection, record, redefined)
            if batch is not None:
                notify(connection, record.publication_id, REGISTERED)
        return replace(
            record,
            registered_to=end,
            registered_proof=proof,
            registered_xact_seqno=xact_seqno,
            registered_commit_time=commit_time,
        )

    def after(self, record: PublicationRecord, xact_seqno: bytes, limit: int | None = None) -> list[Batch]:
        """Return registered batches that hold transactions after `xact_seqno`, in commit order: all, or the first."""
        with self._database.reading() as connection:
            rows = connection.execute(
                sa.select(msrepl_batches)
                .where(
                    msrepl_batches.c.publication_id == record.publication_id,
                    msrepl_batches.c.last_xact_seqno > xact_seqno,
                )
                .order_by(msrepl_batches.c.first_xact_seqno)
                .limit(limit)
            )
            known: dict[int, int] = {}
            return [_batch(row, known) for row in rows]

    def commands_after(self, record: PublicationRecord, xact_seqno: bytes) -> int:
        """Return how many commands the batches have that end after a transaction."""
        query = sa.select(sa.func.coalesce(sa.func.sum(msrepl_batches.c.commands), 0)).where(
            msrepl_batches.c.publication_id == record.publication_id, msrepl_batches.c.last_xact_seqno > xact_seqno
        )
        with self._database.reading() as connection:
            return int(connection.execute(query).scalar_one())

    def entered(self, record: PublicationRecord) -> list[tuple[Batch, datetime]]:
        """Return every registered batch in commit order, and when it was registered."""
        mine = msrepl_batches.c.publication_id == record.publication_id
        with self._database.reading() as connection:
            rows = connection.execute(sa.select(msrepl_batches).where(mine).order_by(msrepl_batches.c.first_xact_seqno))
            known: dict[int, int] = {}
            return [(_batch(row, known), row.entry_time) for row in rows]

    def replace(self, record: PublicationRecord, old: Sequence[Batch], new: Batch, entry_time: datetime) -> bool:
        """Register one batch in the place of consecutive ones whose commands it holds, in one transaction. Return False
        where they are not registered any more, with nothing done. Their folders are no batches then, and are kept for
        jobs that read them."""
        theirs = sa.and_(
            msrepl_batches.c.publication_id == record.publication_id,
            msrepl_batches.c.first_xact_seqno >= new.first_xact_seqno,
            msrepl_batches.c.last_xact_seqno <= new.last_xact_seqno,
        )
        with self._database.transaction() as connection:
            found = connection.execute(sa.select(msrepl_batches.c.folder).where(theirs).with_for_update()).scalars()
            if set(found) != {batch.folder for batch in old}:
                return False
            connection.execute(msrepl_batches.delete().where(theirs))
            connection.execute(msrepl_batches.insert().values(entry_time=entry_time, **_values(record, new)))
            replaced = [{"folder": it.folder, "publication_id": record.publication_id} for it in old]
            connection.execute(msrepl_replaced_folders.insert(), replaced)
        return True

    def around(self, record: PublicationRecord, xact_seqno: bytes) -> list[Batch]:
        """Return registered batches that may hold a transaction of this place in the log."""
        first, last = seqnos_of_one_place(xact_seqno)
        with self._database.reading() as connection:
            rows = connection.execute(
                sa.select(msrepl_batches).where(
                    msrepl_batches.c.publication_id == record.publication_id,
                    msrepl_batches.c.first_xact_seqno <= last,
                    msrepl_batches.c.last_xact_seqno >= first,
                )
            ).all()
        return [_batch(row) for row in rows]

    def first_older(self, record: PublicationRecord, xact_seqno: bytes, age: timedelta) -> Batch | None:
        """Return the first batch after `xact_seqno`, where it was registered so long ago; else None."""
        with self._database.reading() as connection:
            row = connection.execute(
                sa.select(msrepl_batches, (msrepl_batches.c.entry_time <= sa.func.now() - age).label("older"))
                .where(
                    msrepl_batches.c.publication_id == record.publication_id,
                    msrepl_batches.c.last_xact_seqno > xact_seqno,
                )
                .order_by(msrepl_batches.c.first_xact_seqno)
                .limit(1)
            ).one_or_none()
        return _batch(row) if row is not None and row.older else None

    def remove(self, record: PublicationRecord, last: bytes, age: timedelta) -> list[Batch]:
        """Forget batches that end with the transaction `last` or before and were registered so long ago.

        Their folders are no batches any more, and may be removed.
        """
        chosen = sa.and_(
            msrepl_batches.c.publication_id == record.publication_id,
            msrepl_batches.c.entry_time <= sa.func.now() - age,
            msrepl_batches.c.last_xact_seqno <= last,
        )
        with self._database.transaction() as connection:
            rows = connection.execute(msrepl_batches.delete().where(chosen).returning(msrepl_batches)).all()
            removed = sorted((_batch(row) for row in rows), key=lambda batch: batch.last_xact_seqno)
            if removed:
                connection.execute(
                    mspublications.update()
                    .where(mspublications.c.publication_id == record.publication_id)
                    .values(removed_xact_seqno=removed[-1].last_xact_seqno)
                )
                remove_schema_changes(connection, record, removed[-1].last_xact_seqno)
        return removed

    def note_unregistered(self, record: PublicationRecord, found: Collection[str], age: timedelta) -> set[str]:
        """Note which folders found in the store are no batches of any publication, as two may share a store. Return
        those that were noted, or were replaced by a merge, so long ago, and forget them: they may be removed."""
        left = msrepl_replaced_folders.c
        with self._database.transaction() as connection:
            batches = set(connection.execute(sa.select(msrepl_batches.c.folder)).scalars())
            # In order, as two clean-ups of one store may note the same ones.
            noted = [{"folder": it, "publication_id": record.publication_id} for it in sorted(set(found) - batches)]
            if noted:
                connection.execute(insert(msrepl_replaced_folders).on_conflict_do_nothing(), noted)
            mine = sa.and_(left.publication_id == record.publication_id, left.replaced_time <= sa.func.now() - age)
            gone = connection.execute(msrepl_replaced_folders.delete().where(mine).returning(left.folder)).scalars()
            return set(gone) - batches


def _values(record: PublicationRecord, batch: Batch) -> dict[str, Any]:
    """Return the row of a batch; the server says when it is registered."""
    known = {it.name: getattr(batch, it.name) for it in fields(batch) if it.name != "entry_time"}
    return {"publication_id": record.publication_id, **known}


def _batch(row: sa.Row[Any], known: dict[int, int] | None = None) -> Batch:
    """Return the batch of a row. `known` are numbers of definitions that other batches have: each is held once then."""
    shared = {} if known is None else known
    return Batch(
        row.folder,
        bytes(row.first_xact_seqno),
        bytes(row.last_xact_seqno),
        row.first_commit_time,
        row.last_commit_time,
        row.transactions,
        row.commands,
        row.log_bytes,
        row.clock_difference,
        row.entry_time,
        None if row.article_ids is None else tuple(shared.setdefault(it, it) for it in row.article_ids),
    )
