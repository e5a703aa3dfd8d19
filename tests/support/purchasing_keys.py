"""Keys of the rows in a purchasing department's tables: those that are there, and the next one."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import psycopg
from psycopg import sql

Session = psycopg.Connection[tuple[Any, ...]]


def keys(session: Session, table: str, column: str) -> list[int]:
    """Return the keys in ascending order."""
    names = sql.SQL("SELECT DISTINCT {0} FROM {1} ORDER BY {0}").format(
        sql.Identifier(column), sql.Identifier("purchasing", table)
    )
    return [int(value) for (value,) in session.execute(names)]


def next_key(session: Session, table: str, column: str) -> int:
    """Return the key after the largest, 1 in an empty table."""
    names = sql.SQL("SELECT coalesce(max({}), 0) + 1 FROM {}").format(
        sql.Identifier(column), sql.Identifier("purchasing", table)
    )
    return int(session.execute(names).fetchall()[0][0])


def some(random: Random, ids: Sequence[int], limit: int) -> list[int]:
    """Return at most so many of them, at random."""
    return random.sample(ids, k=min(limit, len(ids)))
