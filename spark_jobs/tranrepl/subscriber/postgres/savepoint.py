"""Work inside an open transaction that is done whole, or undone where another way may do what it could not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import LiteralString

import psycopg

from tranrepl.errors import ConfigurationError, DataError
from tranrepl.postgres.session import Session, translate, translated_errors
from tranrepl.subscriber.batching.steps import MismatchError

_INSUFFICIENT_RESOURCES = "53"
"""Class of SQLSTATE. What a statement over many rows has no memory for, one row at a time may have."""


def why_undone(
    session: Session,
    where: str,
    work: Callable[[], object],
    before: Sequence[LiteralString] = (),
    after: Sequence[LiteralString] = (),
) -> str | None:
    """Do the work between the statements `before` and `after` it; None where it was done. Otherwise nothing of it
    stays. Raises what another way would meet too, as a lost connection."""
    with translated_errors(where):
        session.execute("; ".join(["SAVEPOINT tranrepl_bulk", *before]))
    try:
        work()
    except MismatchError as mismatch:
        why = str(mismatch)
    except psycopg.Error as error:
        problem = translate(where, error)
        lacking = (error.sqlstate or "").startswith(_INSUFFICIENT_RESOURCES)
        if not lacking and not isinstance(problem, (DataError, ConfigurationError)):
            raise problem from error
        why = f"error {problem.report.shown_number}"
    else:
        with translated_errors(where):
            session.execute("; ".join(["RELEASE SAVEPOINT tranrepl_bulk", *after]))
        return None
    with translated_errors(where):
        session.execute("ROLLBACK TO SAVEPOINT tranrepl_bulk; RELEASE SAVEPOINT tranrepl_bulk")
    return why
