"""Which replica identities tables had before setup changed them: what teardown puts back.

They are the tables', whichever publications have these as articles.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from tranrepl.distributor.database import DistributionDatabase, PublicationRecord
from tranrepl.distributor.tables import mspublications, msreplica_identities
from tranrepl.model.catalogue import OldRowSetting


def remember_identities(
    database: DistributionDatabase,
    record: PublicationRecord,
    identities: Mapping[int, OldRowSetting],
    new: Collection[int],
) -> None:
    """Record what replica identities tables have, by oid, before any of them is set to FULL. One that is FULL already
    is remembered only where its article is `new`, and nothing else is known of it: then it was not setup that made it
    so."""
    table = msreplica_identities
    statement = insert(table).values(publisher_system=record.publisher_system, publisher_db=_publisher_db(record))
    renewed = {name: statement.excluded[name] for name in ("replica_identity", "index_name")}
    rows = {
        is_full: [
            {"source_object_id": object_id, "replica_identity": it.kind, "index_name": it.index}
            for object_id, it in identities.items()
            if it.is_full == is_full and (object_id in new or not is_full)
        ]
        for is_full in (False, True)
    }
    with database.transaction() as connection:
        if rows[False]:
            renewing = statement.on_conflict_do_update(index_elements=list(table.primary_key), set_=renewed)
            connection.execute(renewing, rows[False])
        if rows[True]:
            connection.execute(statement.on_conflict_do_nothing(), rows[True])


def remembered_identities(connection: sa.Connection, record: PublicationRecord) -> dict[int, OldRowSetting]:
    """Return the recorded replica identities of all tables of the Publisher's database, by oid."""
    rows = connection.execute(sa.select(msreplica_identities).where(of_publisher(record)))
    return {row.source_object_id: OldRowSetting(row.replica_identity, row.index_name) for row in rows}


def of_publisher(record: PublicationRecord) -> sa.ColumnElement[bool]:
    """Return the condition for rows of the database that the publication is of."""
    return sa.and_(
        msreplica_identities.c.publisher_system == record.publisher_system,
        msreplica_identities.c.publisher_db == _publisher_db(record),
    )


def _publisher_db(record: PublicationRecord) -> sa.ScalarSelect[str]:
    return (
        sa.select(mspublications.c.publisher_db)
        .where(mspublications.c.publication_id == record.publication_id)
        .scalar_subquery()
    )
