"""Scripts that were written into a publication's log: no other message of the log is one."""

from __future__ import annotations

import sqlalchemy as sa

from tranrepl.distributor.database.connection import DatabaseConnection
from tranrepl.distributor.database.publications import PublicationRecord
from tranrepl.distributor.tables import mspublications


class Scripts:
    """The digests of a publication's scripts."""

    def __init__(self, database: DatabaseConnection) -> None:
        self._database = database

    def written(self, record: PublicationRecord) -> tuple[str, ...]:
        """Return the digests of all scripts."""
        with self._database.transaction() as connection:
            return _digests(connection, record)

    def add(self, record: PublicationRecord, digest: str) -> None:
        """Write down a script's digest, before the log has the script."""
        mine = mspublications.c.publication_id == record.publication_id
        with self._database.transaction() as connection:
            connection.execute(sa.select(mspublications.c.publication_id).where(mine).with_for_update())
            known = dict.fromkeys([*_digests(connection, record), digest])
            connection.execute(mspublications.update().where(mine).values(scripts=list(known)))


def _digests(connection: sa.Connection, record: PublicationRecord) -> tuple[str, ...]:
    mine = mspublications.c.publication_id == record.publication_id
    return tuple(connection.scalar(sa.select(mspublications.c.scripts).where(mine)) or ())
