"""How statements are executed at a Subscriber: several together, in bulk, and with SQLAlchemy's execution options by
which a database's folder knows what a statement does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import sqlalchemy as sa

BulkInsert = Callable[[pa.StringArray], None]
"""Inserts images of whole rows, inside the open transaction. Raises MismatchError where they are not all there then as
they should be, and what the database says as SQLAlchemy does."""


@dataclass(frozen=True, slots=True)
class BoundStatement:
    executable: sa.Executable
    parameters: Mapping[str, Any]
    must_meet: bool
    """Zero rows is an error."""


CALLS_PROCEDURE = "tranrepl_calls_procedure"
"""True: it calls a procedure, which may answer with rows of its own and with messages."""
SETS_IDENTITY = "tranrepl_sets_identity"
"""Schema and name of a table: it inserts values of an identity column there."""


def execute_ddl(session: sa.Connection, statement: str) -> None:
    """Execute DDL as it is written: no parameters, and no marks for them."""
    session.exec_driver_sql(statement, execution_options={"no_parameters": True})
