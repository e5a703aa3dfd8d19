"""What a test asks of a server that another one, which speaks its language, may lack.

A real SQL Server lacks none of it, and runs every test.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto

import pytest

from support.subscribers import mssql_execute
from tranrepl.connections import Connection


class Requirement(Enum):
    """What a test needs of a SQL Server."""

    SINGLE_USER = auto()
    """`ALTER DATABASE … SET SINGLE_USER WITH ROLLBACK IMMEDIATE`"""
    BRACKETS_IN_NAMES = auto()
    """A closing bracket in a quoted name."""
    FILTERED_INDEXES = auto()
    """The catalogue says which indexes are of some rows only."""
    TEMPORAL_TABLES = auto()
    """`SYSTEM_VERSIONING`"""
    CLR_TYPES = auto()
    """`geography`, `hierarchyid`"""
    GRANTS_TO_CREATE = auto()
    """Rights to create tables and procedures may be granted."""
    RIGHTS_ON_SCHEMAS = auto()
    """`has_perms_by_name` says which rights on a schema were granted."""
    VIEW_DEFINITION = auto()
    """The right to see definitions may be granted."""
    BLANKS_ADDED = auto()
    """Texts that differ in blanks at the end are equal."""
    LOCK_TIMEOUT_NUMBER = auto()
    """A statement that has waited too long for a row is error 1222."""
    COLLATIONS_OF_ALTERED_COLUMNS = auto()
    """`ALTER TABLE … ALTER COLUMN` may say a collation, without which a text gets another one."""
    NOT_FOR_REPLICATION = auto()
    """The catalogue says which constraints, triggers and identities are NOT FOR REPLICATION."""


_BABELFISH: Mapping[Requirement, str] = {
    Requirement.SINGLE_USER: "Babelfish refuses ALTER DATABASE … SET SINGLE_USER",
    Requirement.BRACKETS_IN_NAMES: "Babelfish takes [a]]b] for a syntax error",
    Requirement.FILTERED_INDEXES: "Babelfish's sys.indexes has a filter for none",
    Requirement.TEMPORAL_TABLES: "Babelfish has no tables with a history",
    Requirement.CLR_TYPES: "Babelfish has neither geography nor hierarchyid",
    Requirement.GRANTS_TO_CREATE: "Babelfish refuses GRANT CREATE TABLE, and GRANT ALTER ON SCHEMA",
    Requirement.RIGHTS_ON_SCHEMAS: "Babelfish's has_perms_by_name denies rights on schemas that were granted",
    Requirement.VIEW_DEFINITION: "Babelfish refuses GRANT VIEW DEFINITION",
    Requirement.BLANKS_ADDED: "Babelfish tells texts apart that differ in blanks at the end",
    Requirement.LOCK_TIMEOUT_NUMBER: "Babelfish gives that error its general number, 33557097",
    Requirement.COLLATIONS_OF_ALTERED_COLUMNS: "Babelfish refuses COLLATE in ALTER TABLE … ALTER COLUMN",
    Requirement.NOT_FOR_REPLICATION: "Babelfish passes over NOT FOR REPLICATION, where a setting allows it",
}
"""What Babelfish 4.4 lacks, and how it shows."""
_ALLOWING = tuple(
    f"exec sp_babelfish_configure 'escape_hatch_{it}', 'ignore'" for it in ("rowversion", "for_replication")
)


def lacking(connection: Connection) -> Mapping[Requirement, str]:
    """Return what the connection's server lacks, with the reason; it is asked what it is."""
    if connection.kind != "mssql":
        return {}
    ((version,),) = mssql_execute(connection, "select cast(serverproperty('BabelfishVersion') as nvarchar(30))")
    return {} if version is None else _BABELFISH


def allowing(connection: Connection) -> tuple[str, ...]:
    """Return what a session of the connection's server executes before it may create columns of the type `rowversion`,
    and whatever is declared NOT FOR REPLICATION; nothing for a SQL Server."""
    return _ALLOWING if lacking(connection) else ()


def require(connection: Connection, requirement: Requirement) -> None:
    """Skip the test where the connection's server lacks this."""
    reason = lacking(connection).get(requirement)
    if reason is not None:
        pytest.skip(reason)
