"""What is undone to a savepoint, where SQLAlchemy reaches the database."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from tranrepl.errors import ConfigurationError, DataError, ErrorKind, ReplicationError
from tranrepl.subscriber.base.database import SqlDatabase, translated_errors
from tranrepl.subscriber.batching.steps import BulkStep, MismatchError
from tranrepl.subscriber.bulk_attempts import Bulk


class TransactionEndedError(Exception):
    """An error ended the whole transaction, or left nothing to do but to end it: no savepoint of it is there."""

    def __init__(self, problem: ReplicationError) -> None:
        super().__init__(f"error {problem.report.shown_number}")
        self.problem = problem


def require_transaction(session: sa.Connection, database: SqlDatabase, problem: ReplicationError) -> None:
    """Raise TransactionEndedError where the problem has cost the open transaction."""
    if not database.in_transaction(session):
        raise TransactionEndedError(problem)


def roll_back(
    session: sa.Connection, database: SqlDatabase, where: str, savepoint: sa.NestedTransaction, error: DataError
) -> None:
    """Undo the command that is skipped. Raises ConfigurationError where its error has undone more than that."""
    if database.in_transaction(session):
        with translated_errors(where, database):
            savepoint.rollback()
        return
    problem = {
        "kind": ErrorKind.CONFIGURATION,
        "message": f"{error.message}; it cannot be skipped: with it the whole transaction was rolled back",
        "remedy": "a procedure or trigger whose errors are skipped leaves the transaction open where it fails",
    }
    raise error.report.model_copy(update=problem).to_exception() from error


def why_undone(session: sa.Connection, database: SqlDatabase, where: str, bulk: Bulk, step: BulkStep) -> str | None:
    """Apply the step; return None where it was done. Otherwise nothing of it stays. Raises what serial apply would meet
    too, as a lost connection, and TransactionEndedError."""
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
        require_transaction(session, database, problem)
        why = f"error {problem.report.shown_number}"
    else:
        with translated_errors(where, database):
            savepoint.commit()
        return None
    if savepoint is not None:
        with translated_errors(where, database):
            savepoint.rollback()
    return why
