"""Steps tried in bulk: all of a step, or nothing, which is counted with its reason; and the savepoints that undo them
where SQLAlchemy reaches the database."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Protocol

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from tranrepl.errors import ConfigurationError, DataError, ErrorKind, ReplicationError
from tranrepl.subscriber.applier_options import Applied
from tranrepl.subscriber.base.database import SqlDatabase, translated_errors
from tranrepl.subscriber.batching.steps import BulkStep, MismatchError


class Bulk(Protocol):
    """Applies steps in bulk, in one session. Errors of the database are raised as its driver does."""

    def prepare(self, step: BulkStep) -> None:
        """Make what the step is staged in. Before the savepoint that may undo the step."""
        ...

    def apply(self, step: BulkStep) -> None:
        """Apply inside the open transaction. Raises MismatchError: then nothing of the step may stay."""
        ...

    def take_stage_seconds(self) -> float:
        """Return how long staging took since the last call."""
        ...


class BulkAttempts:
    """Tries steps in bulk, and counts what came of them."""

    def __init__(self, bulk: Bulk, why_undone: Callable[[BulkStep], str | None]) -> None:
        """Set how a step is tried: `why_undone` applies one by `bulk` within a savepoint and returns None where it was
        done, else why nothing of it stays. It raises what applying serially would meet too."""
        self._bulk = bulk
        self._why_undone = why_undone
        self._in_bulk, self._fallbacks = 0, Counter[str]()

    def apply(self, step: BulkStep) -> bool:
        """Return whether the step was applied; nothing of it otherwise."""
        done = self.count(self._why_undone(step))
        self._in_bulk += len(step.commands) if done else 0
        return done

    def count(self, why_undone: str | None) -> bool:
        """Count why something was undone, if it was; return whether it was done."""
        self._fallbacks.update(() if why_undone is None else (why_undone,))
        return why_undone is None

    def take_applied(self) -> Applied:
        """Return what was applied since it was asked last."""
        applied = Applied(self._in_bulk, self._fallbacks, self._bulk.take_stage_seconds())
        self._in_bulk, self._fallbacks = 0, Counter()
        return applied


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
