"""A step in bulk within a savepoint, where SQLAlchemy reaches the database."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from tranrepl.errors import ConfigurationError, DataError
from tranrepl.subscriber.batching.steps import BulkStep, MismatchError
from tranrepl.subscriber.bulk_attempts import Bulk
from tranrepl.subscriber.generic.database import SqlDatabase
from tranrepl.subscriber.generic.session_errors import translated_errors


def why_undone(session: sa.Connection, database: SqlDatabase, where: str, bulk: Bulk, step: BulkStep) -> str | None:
    """Apply the step; return None where it was done. Otherwise nothing of it stays. Raises what serial apply would meet
    too, as a lost connection."""
    savepoint: sa.NestedTransaction | None = None
    try:
        bulk.prepare(step)
        savepoint = session.begin_nested()
        bulk.apply(step)
    except MismatchError as mismatch:
        why = str(mismatch)
    except SQLAlchemyError as error:
        problem = database.translate(where, error)
        if not isinstance(problem, DataError | ConfigurationError):
            # It may have ended the transaction with its savepoints.
            raise problem from error
        why = f"error {problem.report.shown_number}"
    else:
        with translated_errors(where, database):
            savepoint.commit()
        return None
    if savepoint is not None:
        with translated_errors(where, database):
            savepoint.rollback()
    return why
