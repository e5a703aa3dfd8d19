"""Errors of a session that SQLAlchemy opened, as errors of ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import SQLAlchemyError

from tranrepl.subscriber.base.database import SqlDatabase


@contextmanager
def translated_errors(where: str, database: SqlDatabase) -> Iterator[None]:
    """Turn SQLAlchemy's error, or a driver's, into one of ours."""
    try:
        yield
    except SQLAlchemyError as error:
        raise database.translate(where, error) from error
