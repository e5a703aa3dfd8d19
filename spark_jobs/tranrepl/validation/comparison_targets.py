"""The articles at both ends of a sync point, ready to be compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise

from psycopg import sql

from tranrepl.errors import ConfigurationError
from tranrepl.jobs.validation_report import Comparison
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.catalogue import TableDescription
from tranrepl.model.commands import Operation
from tranrepl.model.names import TableName
from tranrepl.postgres.catalogue import describe_tables, qualified
from tranrepl.postgres.session import Session, connect, translated_errors
from tranrepl.publisher.postgres.exported_snapshot import hold_tables, snapshot_session
from tranrepl.subscriber.dialects import dialect_of
from tranrepl.subscriber.generic.apply import translated_errors as translated_sql_errors
from tranrepl.subscriber.generic.dialect import SqlDialect
from tranrepl.subscriber.generic.target import column_names, target
from tranrepl.subscriber.mariadb.database import MariaDb
from tranrepl.subscriber.postgres.procedures import Target
from tranrepl.subscriber.postgres.subscriber import PostgresSubscriber
from tranrepl.validation.comparison import ComparedArticle, ComparedEnd
from tranrepl.validation.forms import mariadb_sides, postgres_sides
from tranrepl.validation.reading import HeldRead, Reader, SnapshotRead, exported_at_subscriber, held_sessions
from tranrepl.validation.sides import Checksum, Pages, Side
from tranrepl.validation.sync_point import HeldSyncPoint, SyncPoint

_SMALLEST_PART = 128 * 1024 * 1024
"""Bytes."""


@dataclass(frozen=True, slots=True)
class ComparisonTargets:
    reader: Reader
    compared: tuple[ComparedArticle, ...]
    notices: tuple[str, ...] = ()
    """Articles that cannot be compared."""


@contextmanager
def open_comparison_targets(
    sync_point: SyncPoint, point: HeldSyncPoint, articles: Sequence[RegisteredArticle]
) -> Iterator[ComparisonTargets]:
    """Open the snapshots, while delivery is held.

    Raises ConfigurationError where the Subscriber's kind has no checksums, or a table is not as it was set up.
    """
    with (
        connect(sync_point.publisher, "tranrepl validation", autocommit=True) as publisher,
        snapshot_session(sync_point.publisher, point.snapshot.name, "tranrepl validation") as holding,
    ):
        hold_tables(holding, articles)
        cores = sync_point.spark.sparkContext.defaultParallelism
        with translated_errors(f"Publisher {sync_point.publisher.database}"):
            published = describe_tables(publisher, [it.source for it in articles])
        opener = _Opener(sync_point, point, publisher, published, _part_bytes(publisher, articles, cores))
        dialect = dialect_of(sync_point.opened.connection)
        if isinstance(sync_point.opened.subscriber, PostgresSubscriber):
            with opener.postgres(sync_point.opened.subscriber, articles) as targets:
                yield targets
        elif isinstance(dialect, SqlDialect):
            with opener.mariadb(dialect, articles) as targets:
                yield targets


@dataclass(frozen=True, slots=True)
class _Opener:
    sync_point: SyncPoint
    point: HeldSyncPoint
    publisher: Session
    published: Mapping[TableName, TableDescription]
    part_bytes: int

    @property
    def where(self) -> str:
        return self.sync_point.opened.subscriber.where

    @contextmanager
    def postgres(
        self, subscriber: PostgresSubscriber, articles: Sequence[RegisteredArticle]
    ) -> Iterator[ComparisonTargets]:
        connection = self.sync_point.opened.connection
        targets: list[Target] = []
        notices: list[str] = []
        for article in articles:
            try:
                targets.append(subscriber.target(article))
            except ConfigurationError as error:
                notices.append(_not_compared(article, error))
        tables = [it.article.destination for it in targets]
        with (
            connect(connection, "tranrepl validation", autocommit=True) as session,
            exported_at_subscriber(connection, tables, self.where) as snapshot,
        ):
            checksum_by = self._checksum(session)
            read = SnapshotRead(connection, snapshot, "", self.where)
            compared = []
            for it in targets:
                here, there = postgres_sides(it.article, it.table, checksum_by)
                end = self._end(session, it.article.destination, there, read)
                types = {column.name: column.type_name for column in it.columns}
                what = self._what(it.article, types, [column.name for column in it.table.columns])
                compared.append(ComparedArticle(it.article, self._publisher_end(it.article, here), end, what))
            yield ComparisonTargets(Reader(self.sync_point.spark), tuple(compared), tuple(notices))

    @contextmanager
    def mariadb(self, dialect: SqlDialect, articles: Sequence[RegisteredArticle]) -> Iterator[ComparisonTargets]:
        connection = self.sync_point.opened.connection
        compared: list[ComparedArticle] = []
        notices: list[str] = []
        with ExitStack() as stack:
            session, database = stack.enter_context(dialect.reading(connection))
            if not isinstance(database, MariaDb):
                raise ConfigurationError(
                    f"{self.where}: rows of {dialect.capabilities.title} cannot be compared",
                    remedy="allowed: a Subscriber in PostgreSQL, MariaDB or MySQL",
                )
            sessions = self.sync_point.spark.sparkContext.defaultParallelism
            held = stack.enter_context(held_sessions(dialect, connection, sessions, self.where))
            for article in articles:
                try:
                    with translated_sql_errors(self.where, database), session.begin():
                        found = target(session, database, article, self.where)
                        names = column_names(session, database, article.destination)
                except ConfigurationError as error:
                    notices.append(_not_compared(article, error))
                    continue
                here, there = mariadb_sides(article, found, database.quoted)
                end = ComparedEnd(there, HeldRead(""))
                types = {column.name: column.type.spelling for column in found.columns}
                what = self._what(article, types, names)
                compared.append(ComparedArticle(article, self._publisher_end(article, here), end, what))
            yield ComparisonTargets(Reader(self.sync_point.spark, held), tuple(compared), tuple(notices))

    def _what(self, article: RegisteredArticle, types: Mapping[str, str], there: Sequence[str]) -> Comparison:
        """Describe what is compared: `types` of the article's columns at the Subscriber, and all columns `there`."""
        compared = {column.name: column.type_name for column in article.columns}
        published = self.published.get(article.source)
        here = [] if published is None else [column.name for column in published.columns]
        return Comparison(
            columns=tuple(compared),
            converted={name: types[name] for name, it in compared.items() if types[name] != it},
            unpublished=tuple(name for name in here if name not in compared),
            own=tuple(name for name in there if name not in compared and name not in here),
            row_filter=article.filter,
        )

    def _publisher_end(self, article: RegisteredArticle, side: Side) -> ComparedEnd:
        where = f"Publisher {self.sync_point.publisher.database}, article {article.source}"
        read = SnapshotRead(self.sync_point.publisher, self.point.snapshot.name, "", where, article.filter is not None)
        return self._end(self.publisher, article.source, side, read)

    def _checksum(self, subscriber: Session) -> Checksum:
        """Return the native checksum where both servers' hash functions give the same numbers for the same values, else
        MD5."""
        numbers = [session.execute(_PROBE).fetchone() for session in (self.publisher, subscriber)]
        return Checksum.NATIVE if numbers[0] == numbers[1] else Checksum.MD5

    def _end(self, session: Session, table: TableName, side: Side, read: SnapshotRead) -> ComparedEnd:
        with translated_errors(read.where):
            row = session.execute(_LARGEST, [qualified(table).as_string(session)]).fetchone()
        size, page, cached = row or (0, 1, False)
        parts = max(1, round(size / self.part_bytes))
        bounds = [None, *(size // page * part // parts for part in range(1, parts)), None]
        return ComparedEnd(
            side, replace(read, cached=cached), tuple(Pages(first, end) for first, end in pairwise(bounds))
        )


def _part_bytes(publisher: Session, articles: Sequence[RegisteredArticle], cores: int) -> int:
    """Return how much of a table is read at a time: as much as keeps all cores busy, both ends together. A whole table
    is read faster than its parts are, in a few pages of the cache that are used again and again."""
    tables = [qualified(it.source).as_string(publisher) for it in articles]
    with translated_errors(f"Publisher {publisher.info.dbname}"):
        row = publisher.execute(_TOTAL, [tables]).fetchone()
    total = 2 * int(row[0]) if row else 0
    return max(_SMALLEST_PART, total // cores)


def _not_compared(article: RegisteredArticle, error: ConfigurationError) -> str:
    """Say why an article is not compared: custom procedures may keep rows in any way they like. Raises the error for an
    article without."""
    operations = (Operation.INSERT, Operation.UPDATE, Operation.DELETE)
    if all(article.propagation(it).procedure is None for it in operations):
        raise error
    return f"article {article.source} is not compared, it has custom procedures: {error.message}"


# Each hash function that is used; texts hash by their bytes, in the server's encoding.
_PROBE = sql.SQL(
    "SELECT current_setting('server_encoding'), hashtextextended('tranrepl' COLLATE \"C\", 1), "
    "hashbpcharextended('a'::char(2) COLLATE \"C\", 1), hashint2extended(1::smallint, 1), hashint4extended(1, 1), "
    "hashint8extended(1, 1), hash_numeric_extended(1.5::numeric(9, 2), 1), time_hash_extended('12:30', 1), "
    "uuid_hash_extended('00000000-0000-0000-0000-000000000001', 1), timestamp_hash_extended('2000-02-29 12:30', 1)"
)

_TOTAL = "SELECT coalesce(sum(pg_catalog.pg_relation_size(t::regclass)), 0)::bigint FROM unnest(%s::text[]) t"

# A partition has pages of its own: a range of them is one of every partition's.
_LARGEST = (
    "SELECT greatest(pg_catalog.pg_relation_size(c.oid), max(pg_catalog.pg_relation_size(p.relid))), "
    "current_setting('block_size')::bigint, "
    "greatest(pg_catalog.pg_relation_size(c.oid), sum(pg_catalog.pg_relation_size(p.relid))) "
    "<= pg_size_bytes(current_setting('effective_cache_size')) FROM pg_catalog.pg_class c "
    "LEFT JOIN pg_catalog.pg_partition_tree(c.oid) p ON true WHERE c.oid = %s::regclass GROUP BY c.oid"
)
