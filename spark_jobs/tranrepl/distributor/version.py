"""Which version of tranrepl made the distribution database's tables.

Source: `MSrepl_version`.
"""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from tranrepl import __version__
from tranrepl.distributor.schema import schema_of
from tranrepl.distributor.tables import msrepl_version
from tranrepl.errors import ConfigurationError, newer_version
from tranrepl.remedies import RUN_SETUP

REVISION = "0001"
"""Alembic's revision of the tables that this version has."""


@dataclass(frozen=True, slots=True)
class DatabaseVersion:
    """Alembic's revision of the tables, and the version of tranrepl that made them or migrated them last."""

    revision: str
    version: str

    def __str__(self) -> str:
        return f"revision {self.revision} ({self.version})"

    def require_not_newer(self, where: str) -> None:
        """Raise ConfigurationError where a newer version than this one made the tables."""
        if self.revision > REVISION:
            raise newer_version(where, self.version)


def read_version(connection: sa.Connection) -> DatabaseVersion | None:
    """Return the version as it is written down; None where it is not. The table must be there."""
    row = connection.execute(sa.select(msrepl_version.c.revision, msrepl_version.c.version)).first()
    return None if row is None else DatabaseVersion(*row)


def find_version(connection: sa.Connection) -> DatabaseVersion | None:
    """Return the version of the tables that are there; None where there are none."""
    is_there = sa.inspect(connection).has_table(msrepl_version.name, schema_of(connection))
    return read_version(connection) if is_there else None


def require_current(connection: sa.Connection, where: str) -> None:
    """Raise ConfigurationError where another version made the tables. They must be there."""
    refuse_another(read_version(connection), where)


def refuse_another(found: DatabaseVersion | None, where: str) -> None:
    """Raise ConfigurationError where this is not the version of the tables that are there."""
    if found is None or found.revision < REVISION:
        raise ConfigurationError(f"{where} is not set up for this version", remedy=RUN_SETUP)
    found.require_not_newer(where)


def this_version() -> DatabaseVersion:
    return DatabaseVersion(REVISION, __version__)


def write_version(connection: sa.Connection) -> None:
    """Write down that this version made the tables."""
    made_by = this_version()
    connection.execute(msrepl_version.delete())
    connection.execute(msrepl_version.insert().values(revision=made_by.revision, version=made_by.version))
