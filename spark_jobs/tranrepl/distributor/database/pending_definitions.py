"""Definitions of articles that setup wrote down and the log reader has not come to yet."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import sqlalchemy as sa

from tranrepl.distributor.database.connection import DatabaseConnection
from tranrepl.distributor.database.publications import PublicationRecord, count_articles_changed
from tranrepl.distributor.tables import mspublications
from tranrepl.model.names import TableName
from tranrepl.model.pending_definitions import PendingDefinitions


class Pending:
    """What `pending_definitions` of a publication holds."""

    def __init__(self, database: DatabaseConnection) -> None:
        self._database = database

    def of(self, record: PublicationRecord) -> tuple[PendingDefinitions, ...]:
        """Return the pending definitions whose messages are, or may be, in the log, in the order of the messages."""
        with self._database.reading() as connection:
            return read_pending(connection, record.publication_id)

    def add(self, record: PublicationRecord, definitions: PendingDefinitions) -> None:
        """Write definitions down, before the log has their message."""
        with self._database.transaction() as connection:
            known = read_pending(connection, record.publication_id, locked=True)
            others = [it for it in known if it.digest != definitions.digest]
            _write(connection, record.publication_id, [*others, definitions])

    def keep(self, record: PublicationRecord, tables: Collection[int]) -> None:
        """Forget definitions of other tables than these: their articles end, or begin again."""
        with self._database.transaction() as connection:
            known = read_pending(connection, record.publication_id, locked=True)
            kept = [(it, tuple(of for of in it.articles if of.source_object_id in tables)) for it in known]
            _write(connection, record.publication_id, [it.model_copy(update={"articles": of}) for it, of in kept])

    def remove(self, record: PublicationRecord, definitions: PendingDefinitions) -> None:
        """Forget definitions whose message could not be written."""
        with self._database.transaction() as connection:
            known = read_pending(connection, record.publication_id, locked=True)
            _write(connection, record.publication_id, [it for it in known if it.digest != definitions.digest])

    def written(self, record: PublicationRecord, definitions: PendingDefinitions) -> None:
        """Note that the log has the message: from now on the file is registered as it is."""
        with self._database.transaction() as connection:
            known = read_pending(connection, record.publication_id, locked=True)
            in_log = definitions.model_copy(update={"in_log": True})
            _write(connection, record.publication_id, [in_log if it.digest == in_log.digest else it for it in known])


def read_pending(
    connection: sa.Connection, publication_id: int, *, locked: bool = False
) -> tuple[PendingDefinitions, ...]:
    """Return a publication's pending definitions in the order of their messages, as they are to be changed where the
    publication's row is to be `locked`."""
    query = sa.select(mspublications.c.pending_definitions).where(mspublications.c.publication_id == publication_id)
    found = connection.scalar(query.with_for_update() if locked else query)
    return tuple(PendingDefinitions.model_validate(it) for it in found or ())


def join_pending(
    connection: sa.Connection,
    publication_id: int,
    joining: Collection[str],
    destinations: Mapping[int, Mapping[str, TableName]],
) -> None:
    """Give pending definitions, by source tables, the destinations at subscriptions that are new."""
    known = read_pending(connection, publication_id, locked=True)
    joined = [
        (it, tuple(of.joined_by(joining, destinations.get(of.source_object_id, {})) for of in it.articles))
        for it in known
    ]
    _write(connection, publication_id, [it.model_copy(update={"articles": of}) for it, of in joined])


def forget_pending(connection: sa.Connection, record: PublicationRecord, digest: str) -> None:
    """Forget definitions that are in force with this transaction, and those of earlier messages."""
    known = read_pending(connection, record.publication_id, locked=True)
    digests = [it.digest for it in known]
    if digest in digests:
        # A continuous log reader that goes by the file of before ends.
        count_articles_changed(connection, record.publication_id)
        _write(connection, record.publication_id, known[digests.index(digest) + 1 :])


def _write(connection: sa.Connection, publication_id: int, definitions: Sequence[PendingDefinitions]) -> None:
    written = [it.model_dump(mode="json") for it in definitions] or sa.null()
    mine = mspublications.c.publication_id == publication_id
    connection.execute(mspublications.update().where(mine).values(pending_definitions=written))
