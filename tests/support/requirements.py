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
    """Of a SQL Server."""

    SINGLE_USER = auto()
    """`ALTER DATABASE … SET SINGLE_USER WITH ROLLBACK IMMEDIATE`"""


_BABELFISH: Mapping[Requirement, str] = {
    Requirement.SINGLE_USER: "Babelfish refuses ALTER DATABASE … SET SINGLE_USER",
}
"""What Babelfish 4.3 lacks, and how it shows."""


def lacking(connection: Connection) -> Mapping[Requirement, str]:
    """Return what the connection's server lacks, with the reason; it is asked what it is."""
    if connection.kind != "mssql":
        return {}
    ((version,),) = mssql_execute(connection, "select cast(serverproperty('BabelfishVersion') as nvarchar(30))")
    return {} if version is None else _BABELFISH


def require(connection: Connection, requirement: Requirement) -> None:
    """Skip the test where the connection's server lacks this."""
    reason = lacking(connection).get(requirement)
    if reason is not None:
        pytest.skip(reason)
