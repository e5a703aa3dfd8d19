"""Scripts that were written into a publication's log: no other message of the log is one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

import sqlalchemy as sa

from tranrepl.distributor.database.connection import DatabaseConnection
from tranrepl.distributor.database.publications import PublicationRecord
from tranrepl.distributor.tables import mspublications


class Scripts:
    """The digests of a publication's scripts."""

    def __init__(self, database: DatabaseConnection) -> None:
        self._database = database

    def written(self, record: PublicationRecord) -> tuple[str, ...]:
        """Return the digests of all scripts that are not registered as commands yet."""
        with self._database.reading() as connection:
            return _digests(connection, record)

    def add(self, record: PublicationRecord, digest: str) -> None:
        """Write down a script's digest, before the log has the script."""
        mine = mspublications.c.publication_id == record.publication_id
        with self._database.transaction() as connection:
            connection.execute(sa.select(mspublications.c.publication_id).where(mine).with_for_update())
            # A script that is written twice runs twice.
            known = [*_digests(connection, record), digest]
            connection.execute(mspublications.update().where(mine).values(scripts=known))

    def remove(self, record: PublicationRecord, digest: str) -> None:
        """Forget a script that could not be written: nobody else's message is to be taken for it."""
        with self._database.transaction() as connection:
            forget_digests(connection, record, [digest])


def forget_digests(connection: sa.Connection, record: PublicationRecord, digests: Collection[str]) -> None:
    """Forget scripts that become commands in this transaction: the log is not read again where they were. Each digest
    is forgotten as often as it is given."""
    if not digests:
        return
    mine = mspublications.c.publication_id == record.publication_id
    connection.execute(sa.select(mspublications.c.publication_id).where(mine).with_for_update())
    left = Counter(_digests(connection, record)) - Counter(digests)
    connection.execute(mspublications.update().where(mine).values(scripts=list(left.elements())))


def _digests(connection: sa.Connection, record: PublicationRecord) -> tuple[str, ...]:
    mine = mspublications.c.publication_id == record.publication_id
    return tuple(connection.scalar(sa.select(mspublications.c.scripts).where(mine)) or ())
