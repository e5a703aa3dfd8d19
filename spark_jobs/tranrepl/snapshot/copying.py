"""Copying ranges, COPY to COPY: what a task of the snapshot job does."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import psycopg
from psycopg import pq, sql
from pydantic import BaseModel, ConfigDict

from tranrepl.connections import Connection
from tranrepl.errors import ErrorReport, ReplicationError
from tranrepl.postgres.imported_snapshot import snapshot_session
from tranrepl.postgres.session import Session, translate
from tranrepl.publisher.postgres.exported_snapshot import article_query, set_search_path
from tranrepl.publisher.postgres.long_messages import reaches_the_limit
from tranrepl.publisher.postgres.unconverted_text import AS_IT_IS, is_unconverted, refuse_unreadable_lines
from tranrepl.snapshot.ranges import TableRange
from tranrepl.subscriber.dialect import ApplierOptions, SubscriptionKey
from tranrepl.subscriber.registry import dialect_of
from tranrepl.subscriber.snapshot import Loader

_CHUNK_BYTES = 256 * 1024


class CopiedRange(BaseModel):
    """What became of a range. Errors are in it, never raised: the caller decides by their class."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    article: str
    number: int
    error: ErrorReport | None = None


@dataclass(frozen=True, slots=True)
class RangeCopy:
    """Copies ranges of one snapshot. It travels pickled inside the function that Spark runs, passwords and all."""

    publisher: Connection
    subscriber: Connection
    key: SubscriptionKey
    exported: str
    """Name of the exported snapshot."""
    snapshot: str
    """Name under which the Subscriber was made ready."""
    options: ApplierOptions

    def __call__(self, ranges: Iterable[TableRange]) -> Iterator[CopiedRange]:
        left = deque(ranges)
        while left:
            try:
                with self._sessions() as (session, loader):
                    while left:
                        set_search_path(session, left[0].article)
                        loader.load(left[0].article, left[0].number, copied_chunks(session, left[0]))
                        done = left.popleft()
                        yield CopiedRange(article=done.name, number=done.number)
            except ReplicationError as problem:
                # Neither session is fit for another range.
                failed = left.popleft()
                yield CopiedRange(article=failed.name, number=failed.number, error=_of_range(problem, failed))

    @contextmanager
    def _sessions(self) -> Iterator[tuple[Session, Loader]]:
        dialect = dialect_of(self.subscriber)
        with (
            snapshot_session(self.publisher, self.exported, "tranrepl snapshot") as session,
            dialect.loader(self.subscriber, self.key, self.snapshot, self.options) as loader,
        ):
            yield session, loader


def copied_chunks(session: Session, chosen: TableRange) -> Iterator[bytes]:
    """Yield the range's rows in COPY's text form, whole rows, about `_CHUNK_BYTES` at a time.

    libpq gives row by row; all that is done with one is to put it beside the others.
    """
    statement = sql.SQL("COPY ({}) TO STDOUT").format(article_query(chosen.article, chosen.condition()))
    connection, query, unconverted = session.pgconn, statement.as_bytes(session), is_unconverted(session)
    if unconverted:
        session.execute(AS_IT_IS)
    started = connection.exec_(query)
    if started.status != pq.ExecStatus.COPY_OUT:
        raise _failed(session, started)
    chunk = bytearray()
    while True:
        length, row = connection.get_copy_data(0)
        if length < 0:
            break
        # Rows that were kept until the chunk is full would have Python's collector walk over them all the time.
        chunk += row
        if len(chunk) >= _CHUNK_BYTES:
            yield _readable(chosen, bytes(chunk), unconverted=unconverted)
            chunk.clear()
    yield _readable(chosen, bytes(chunk), unconverted=unconverted)
    ended = connection.get_result()
    if ended is not None and ended.status != pq.ExecStatus.COMMAND_OK:
        raise _failed(session, ended)
    with suppress(psycopg.Error):
        connection.get_result()
    if unconverted:
        session.execute("SET client_encoding = 'UTF8'")


def _readable(chosen: TableRange, chunk: bytes, *, unconverted: bool) -> bytes:
    if unconverted:
        refuse_unreadable_lines(chosen.article, chunk)
    return chunk


def _of_range(problem: ReplicationError, failed: TableRange) -> ErrorReport:
    """Return the error's report with the article, and with a remedy where a row is longer than COPY's text may be."""
    report = problem.report
    if not reaches_the_limit(problem):
        return report
    return report.model_copy(
        update={
            "message": f"{report.message}: a row of {failed.name} is longer, as text, than the 1 GB that COPY takes",
            "article": failed.name,
            "remedy": report.remedy or "leave the column out (`columns` of the article), or shorten the value",
        }
    )


def _failed(session: Session, result: pq.abc.PGresult) -> ReplicationError:
    error = psycopg.errors.error_from_result(result, encoding="utf-8")
    return translate(f"Publisher {session.info.dbname}", error)
