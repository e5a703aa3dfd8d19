"""Reading articles' rows in an exported snapshot of a PostgreSQL Publisher, from any session."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import errors, pq, sql
from psycopg.errors import UndefinedTable

from tranrepl.connections import Connection
from tranrepl.errors import ConfigurationError, ReplicationError, TransientError
from tranrepl.model.article import RegisteredArticle
from tranrepl.postgres.catalogue import describe_table, qualified
from tranrepl.postgres.comparison_forms import select_rows_of_keys
from tranrepl.postgres.composed_sql import condition_sql
from tranrepl.postgres.session import Session, translate, translated_errors
from tranrepl.postgres.shared_snapshot import snapshot_session
from tranrepl.postgres.table_locks import lock, with_all_locks
from tranrepl.publisher.postgres.oversized_messages import reaches_the_limit
from tranrepl.publisher.postgres.partitions import partitioned, partitions, whole_table
from tranrepl.publisher.postgres.rights import read_problems
from tranrepl.publisher.postgres.table_ranges import (
    key_bounds_at,
    range_condition,
    table_of,
    table_ranges,
    table_sizes,
)
from tranrepl.publisher.postgres.unconverted_text import AS_IT_IS, is_unconverted, refuse_unreadable_lines
from tranrepl.publisher.snapshot import Key, TableRange, UnregisteredError, Values, key_ranges, renamed_or_dropped

_CHUNK_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class PostgresSnapshotSource:
    connection: Connection
    name: str
    """The name of the exported snapshot."""

    @contextmanager
    def session(self, application_name: str) -> Iterator[PostgresSnapshotSession]:
        with snapshot_session(self.connection, self.name, application_name) as session:
            yield PostgresSnapshotSession(session)


@dataclass(frozen=True, slots=True)
class PostgresSnapshotSession:
    session: Session

    def hold(self, articles: Iterable[RegisteredArticle]) -> None:
        hold_tables(self.session, articles)

    def ranges(self, article: RegisteredArticle, bytes_each: int | None) -> Sequence[TableRange]:
        found = table_ranges(article, table_sizes(self.session, article), bytes_each)
        bounds = key_bounds_at(self.session, article, [it.first_page for it in found])
        return found if bounds is None else key_ranges(article, bounds)

    def lines(self, chosen: TableRange) -> Iterator[bytes]:
        try:
            yield from copied_lines(self.session, chosen)
        except ReplicationError as error:
            if reaches_the_limit(error):
                raise _too_long(error, chosen) from error
            raise
        _refuse_unheld(self.session, chosen)

    def rows_of_keys(self, article: RegisteredArticle, keys: Sequence[Values]) -> dict[Key, Values]:
        with translated_errors(f"Publisher {self.session.info.dbname}"):
            return rows_of_keys(self.session, article, keys)


def hold_tables(session: Session, articles: Iterable[RegisteredArticle]) -> None:
    """Keep the articles' tables from being rewritten or truncated until a snapshot session ends, either of which would
    hide rows from the snapshot.

    Raises TransientError where that has happened already, where its columns are not the registered ones or it was
    renamed or dropped, or another session keeps a table locked.
    """
    where, held = f"Publisher {session.info.dbname}", list(articles)

    def hold_all() -> None:
        for article in held:
            _hold(session, where, article)

    with translated_errors(where):
        with_all_locks(session, hold_all)


def _hold(session: Session, where: str, article: RegisteredArticle) -> None:
    try:
        lock(session, article.source, only=True)
    except UndefinedTable as error:
        raise renamed_or_dropped(where, article) from error
    # The function reads the catalogue of now, the query that of the snapshot.
    row = session.execute(
        "SELECT pg_catalog.to_regclass(%s)::oid::bigint = c.oid::bigint, "
        "pg_catalog.pg_relation_filenode(c.oid) IS NOT DISTINCT FROM nullif(c.relfilenode, 0) "
        "FROM pg_catalog.pg_class c WHERE c.oid = %s",
        [qualified(article.source).as_string(session), article.source_object_id],
    ).fetchone()
    _refuse_replaced(where, article, row)
    refuse_altered(session, where, article)
    if partitioned([article]):
        _hold_partitions(session, where, article)


def _hold_partitions(session: Session, where: str, article: RegisteredArticle) -> None:
    """Hold the partitions that the snapshot shows. With the lock of their table, none is detached from here on; one
    that is attached is in no query of ours."""
    below = partitions(session, [article.source_object_id])
    # One that was made after setup has no right of its table's.
    for problem in read_problems(session, where, [it.table for it in below]):
        raise problem
    for it in below:
        try:
            with session.transaction():
                lock(session, it.table, only=True)
        except UndefinedTable:
            held = False
        else:
            row = session.execute(
                "SELECT pg_catalog.to_regclass(%s)::oid::bigint = c.oid::bigint "
                "AND pg_catalog.pg_relation_filenode(c.oid) = c.relfilenode "
                "AND %s::oid IN (SELECT pg_catalog.pg_partition_ancestors(c.oid)) "
                "FROM pg_catalog.pg_class c WHERE c.oid = %s",
                [qualified(it.table).as_string(session), article.source_object_id, it.object_id],
            ).fetchone()
            held = row == (True,)
        if not held:
            raise TransientError(
                f"{where}: partition {it.table} of table {article.source} was detached, dropped, truncated or "
                "rewritten while its snapshot began",
                article=str(article.source),
            )


def _refuse_replaced(where: str, article: RegisteredArticle, row: tuple[Any, ...] | None) -> None:
    if row is None or row[0] is not True:
        raise renamed_or_dropped(where, article)
    if row[1] is not True:
        raise TransientError(
            f"{where}: table {article.source} was truncated or rewritten while its snapshot began",
            article=str(article.source),
        )


_AS_IN_SNAPSHOT = """
SELECT n.nspname = %s AND c.relname = %s
       AND pg_catalog.pg_relation_filenode(c.oid) IS NOT DISTINCT FROM nullif(c.relfilenode, 0)
  FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 WHERE c.oid = pg_catalog.to_regclass(%s)
"""


def _refuse_unheld(session: Session, read: TableRange) -> None:
    """Raise TransientError where the range may lack rows, or have others, because the session that held its table had
    ended before it was read: a later snapshot may keep it. This one holds the table since."""
    where, table = f"Publisher {session.info.dbname}", table_of(read)
    with translated_errors(where):
        values = [table.schema, table.table, qualified(table).as_string(session)]
        if session.execute(_AS_IN_SNAPSHOT, values).fetchone() != (True,):
            raise TransientError(
                f"{where}: table {table} was truncated, rewritten or replaced before it was copied", article=read.name
            )
        refuse_altered(session, where, read.article)


def range_query(chosen: TableRange) -> sql.Composed:
    """Return a SELECT of the range's published columns and rows, in the order of the article's columns.

    A row filter may hold per cent signs: it is executed without parameters, or by a RawCursor. It may name its table,
    also where that is read as one of its partitions.
    """
    article, narrowed = chosen.article, range_condition(chosen)
    conditions = [] if narrowed is None else [narrowed]
    if article.filter is not None:
        conditions.append(condition_sql(article.filter))
    columns = sql.SQL(", ").join(sql.Identifier(column.name) for column in article.columns)
    where = sql.SQL(" AND ").join(sql.SQL("({})").format(it) for it in conditions)
    return sql.SQL("SELECT {} FROM ONLY {} AS {} WHERE {}").format(
        columns,
        qualified(table_of(chosen)),
        sql.Identifier(article.source.table),
        where if conditions else sql.SQL("true"),
    )


def rows_of_keys(session: Session, article: RegisteredArticle, keys: Sequence[Values]) -> dict[Key, Values]:
    """Return published rows by their keys, those that are there, in the log's text form; `keys` are values of the key's
    columns."""
    described = describe_table(session, article.source)
    if described is None:
        return {}
    found = {it.name: it for it in described.columns}
    lacking = [it.name for it in article.columns if it.name not in found]
    if lacking:
        raise ConfigurationError(f"table {article.source} lacks the registered column {', '.join(lacking)}")
    table, condition = whole_table(article)
    conditions = [] if condition is None else [condition]
    if article.filter is not None:
        conditions.append(condition_sql(article.filter))
    columns = [found[it.name] for it in article.columns]
    query = select_rows_of_keys(table, columns, article.key_positions, keys, conditions)
    return {tuple(row[at] for at in article.key_positions): list(row) for row in session.execute(query).fetchall()}


def copied_lines(session: Session, chosen: TableRange) -> Iterator[bytes]:
    """Yield the range's rows in COPY's text form, whole rows, about `_CHUNK_BYTES` at a time.

    libpq gives row by row; all that is done with one is to put it beside the others.
    """
    statement = sql.SQL("COPY ({}) TO STDOUT").format(range_query(chosen))
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


def _too_long(problem: ReplicationError, failed: TableRange) -> ReplicationError:
    """Return the error with the article, and with a way on: a row is longer than COPY's text may be."""
    report = problem.report
    return report.model_copy(
        update={
            "message": f"{report.message}: a row of {failed.name} is longer, as text, than the 1 GB that COPY takes",
            "article": failed.name,
            "remedy": report.remedy or "leave the column out (`columns` of the article), or shorten the value",
        }
    ).to_exception()


def _failed(session: Session, result: pq.abc.PGresult) -> ReplicationError:
    error = psycopg.errors.error_from_result(result, encoding="utf-8")
    return translate(f"Publisher {session.info.dbname}", error)


# What a query gives of a domain is what the domain is made of.
_COLUMNS = """
WITH RECURSIVE given AS (
  SELECT attnum AS number, atttypid AS type, atttypmod AS modifier FROM pg_catalog.pg_attribute
   WHERE attrelid = %(table)s AND attnum > 0 AND NOT attisdropped
  UNION ALL SELECT g.number, t.typbasetype, t.typtypmod FROM given g JOIN pg_catalog.pg_type t ON t.oid = g.type
   WHERE t.typtype = 'd')
SELECT a.attnum, a.attname::text, a.atttypid::bigint, a.atttypmod, g.type::bigint, g.modifier
  FROM given g JOIN pg_catalog.pg_type t ON t.oid = g.type AND t.typtype <> 'd'
  JOIN pg_catalog.pg_attribute a ON a.attrelid = %(table)s AND a.attnum = g.number
 ORDER BY a.attnum
"""


def refuse_altered(session: Session, where: str, article: RegisteredArticle) -> None:
    """Raise UnregisteredError where the columns that the snapshot has are not those that are registered, TransientError
    where they are not those that the table has now. The table is locked by then."""
    seen = session.execute(_COLUMNS, {"table": article.source_object_id}).fetchall()
    registered = {(it.ordinal, it.name, it.type_oid, it.type_modifier) for it in article.columns}
    if not registered.issubset(column[:4] for column in seen):
        raise UnregisteredError(
            f"{where}: the columns of table {article.source} are not those that are registered", str(article.source)
        )
    try:
        with session.transaction():
            unaltered = _numbers_now(session, article) == [it.ordinal for it in article.columns]
            unaltered = unaltered and _columns_now(session, article) == [
                (name, *given) for _, name, _, _, *given in seen
            ]
    except errors.UndefinedColumn:
        unaltered = False
    if not unaltered:
        raise TransientError(
            f"{where}: table {article.source} was altered while its snapshot began", article=str(article.source)
        )


def _numbers_now(session: Session, article: RegisteredArticle) -> list[int]:
    """Return the numbers of the published columns. Others may be no business of this login."""
    columns = sql.SQL(", ").join(sql.Identifier(it.name) for it in article.columns)
    query = sql.SQL("SELECT {} FROM ONLY {} WHERE false").format(columns, qualified(article.source))
    result = session.execute(query).pgresult
    return [] if result is None else [result.ftablecol(at) for at in range(result.nfields)]


def _columns_now(session: Session, article: RegisteredArticle) -> list[tuple[str, int, int]]:
    """Return name, type and modifier of each column, as a query gives them."""
    query = sql.SQL("SELECT (NULL::{}).* WHERE false").format(qualified(article.source))
    result = session.execute(query).pgresult
    if result is None:
        return []
    return [((result.fname(at) or b"").decode(), result.ftype(at), result.fmod(at)) for at in range(result.nfields)]
