"""Many statements in one message, COPY among them: the Subscriber goes from one to the next by itself.

A publication of many tables has a few small statements for each of them in every commit batch. One by one, each waits
for the interpreter, which is planning the next commit batch meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from psycopg import Error, errors, pq, sql
from psycopg.abc import PQGen
from psycopg.generators import copy_to, fetch, send
from psycopg.pq.abc import PGconn, PGresult
from psycopg.waiting import Wait

from tranrepl.postgres.session import Session
from tranrepl.subscriber.batching.steps import MismatchError

_MOST_STATEMENTS = 256
"""In a message: all of it is parsed before its first statement runs."""
_PIECE_BYTES = 128 * 1024
"""libpq takes larger ones, but more slowly."""
_FLUSHED_PIECES = 8


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement, and what it copies where it is COPY … FROM STDIN. `require` raises MismatchError where the number
    of rows that it met is wrong."""

    query: sql.Composable
    copied: memoryview | None = None
    require: Callable[[int], None] | None = None


def run_script(session: Session, statements: Sequence[Statement]) -> list[float]:
    """Run them in order, in an open transaction. Returns the seconds for which each took what it copies.

    Raises as the driver does, or as `require`, what the first one to fail raised. Of those after it, some may have
    run: what they did must be rolled back.
    """
    seconds: list[float] = []
    for first in range(0, len(statements), _MOST_STATEMENTS):
        message = statements[first : first + _MOST_STATEMENTS]
        seconds += session.wait(_run(session, message))
    return seconds


def _run(session: Session, statements: Sequence[Statement]) -> PQGen[list[float]]:
    connection, seconds = session.pgconn, list[float]()
    connection.send_query(sql.SQL("; ").join([it.query for it in statements]).as_bytes(session))
    yield from send(connection)
    problem: Exception | None = None
    for statement in statements:
        seconds.append(0.0)
        try:
            result = yield from fetch(connection)
            if result is not None and result.status == pq.ExecStatus.COPY_IN:
                started = time.perf_counter()
                yield from _copied(connection, statement.copied or memoryview(b""), ended=problem is not None)
                seconds[-1] = time.perf_counter() - started
                result = yield from fetch(connection)
            met = _rows_met(result)
            if problem is None and statement.require is not None:
                statement.require(met)
        except Error as error:
            # The Subscriber passes over the rest of the message.
            problem = problem or error
            break
        except MismatchError as mismatch:
            problem = mismatch
    try:
        while (yield from fetch(connection)) is not None:
            pass
    except Error as error:
        # The connection may have gone with the first one.
        problem = problem or error
    if problem is not None:
        raise problem
    return seconds


def _copied(connection: PGconn, content: memoryview, *, ended: bool) -> PQGen[None]:
    """Copy the content; `ended`: an earlier statement has failed, so that nothing more is copied."""
    for number, piece in enumerate(() if ended else _pieces(content)):
        yield from copy_to(connection, piece, flush=number % _FLUSHED_PIECES == 0)
    while connection.put_copy_end(b"an earlier statement has failed" if ended else None) == 0:
        yield Wait.W
    yield from send(connection)


def _pieces(content: memoryview) -> Iterator[memoryview]:
    for start in range(0, len(content), _PIECE_BYTES):
        yield content[start : start + _PIECE_BYTES]


def _rows_met(result: PGresult | None) -> int:
    if result is None:
        raise errors.OperationalError("the server ended its answers early")
    if result.status not in (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK):
        raise errors.error_from_result(result, encoding="utf-8")
    return result.command_tuples or 0
