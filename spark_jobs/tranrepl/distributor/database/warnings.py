"""Early warnings that were reported, so that each is reported once."""

from __future__ import annotations

from collections.abc import Collection

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from tranrepl.distributor.database.connection import DatabaseConnection
from tranrepl.distributor.database.publications import PublicationRecord
from tranrepl.distributor.tables import msrepl_warnings

ReportedWarning = tuple[str, str]
"""The subscription, empty for the Publisher's log, and the kind of warning."""


class Warnings:
    """What `msrepl_warnings` holds."""

    def __init__(self, database: DatabaseConnection) -> None:
        self._database = database

    def take_new(
        self, record: PublicationRecord, current: Collection[ReportedWarning], unknown: Collection[str] = ()
    ) -> frozenset[ReportedWarning]:
        """Return those that were not reported since they last ceased, each to one of several callers; forget those that
        have ceased, except of a kind of which it is `unknown` now."""
        key = sa.tuple_(msrepl_warnings.c.subscription, msrepl_warnings.c.warning)
        mine = msrepl_warnings.c.publication_id == record.publication_id
        with self._database.transaction() as connection:
            passed = key.not_in(list(current)) & msrepl_warnings.c.warning.not_in(list(unknown))
            connection.execute(msrepl_warnings.delete().where(mine, passed))
            if not current:
                return frozenset()
            rows = [
                {"publication_id": record.publication_id, "subscription": subscription, "warning": warning}
                # In one order, so that two callers do not wait for each other.
                for subscription, warning in sorted(current)
            ]
            new = connection.execute(
                insert(msrepl_warnings)
                .values(rows)
                .on_conflict_do_nothing()
                .returning(msrepl_warnings.c.subscription, msrepl_warnings.c.warning)
            )
            return frozenset((row.subscription, row.warning) for row in new)
