"""Publishers of every kind, set up and read below Spark: what the compliance suite for Publishers asks of one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import psycopg
import pytest

from support.mariadb import MariaDbServer
from support.site import execute
from support.unpacked_servers import UnpackedMariaDbServer, UnpackedMySqlServer
from tranrepl.connections import Connection
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.commands import Operation
from tranrepl.model.names import TableName
from tranrepl.model.position import Position
from tranrepl.publisher.changes import NOT_IN_LOG, Buffer, Cells, Changes
from tranrepl.publisher.log_range import Limits, LogPart
from tranrepl.publisher.publisher import Probe, Publisher, Tables
from tranrepl.publisher.registry import open_publisher
from tranrepl.settings.publication import Article
from tranrepl.settings.registration import registered_article

PUBLICATION = "purchasing"
NO_LIMITS = Limits(1_000_000, 1_000_000_000)
Rows = list[tuple[Any, ...]]
Values = tuple[str | None, ...]
ABSENT = "(not in the log)"


class Session(Protocol):
    """A transaction of the test's own, rolled back unless it is committed."""

    def execute(self, statement: str) -> object: ...

    def commit(self) -> object: ...

    def rollback(self) -> object: ...


@dataclass(frozen=True, slots=True)
class PublisherUnderTest:
    """A database to publish from, in terms that every database has. Each kind fills in what differs.

    A table has `id`, an integer, as its key, and `name` and `note`, which are texts.
    """

    kind: str
    connection: Connection
    execute: Callable[..., Rows]
    """Run statements, each its own transaction; the rows of the last one."""
    session: Callable[[], AbstractContextManager[Session]]
    catalogue: Callable[[], object]
    """All that set-up may change at the server, to be compared."""
    schema: str
    lose_log: Callable[[Publisher], object]
    """Let log be lost that was not read."""
    whole_old_rows: Mapping[str, Any]
    """The settings of an article whose old rows are in the log with all their columns."""
    keeps_log: bool = True
    """The server keeps the log for the publication until it is confirmed. Otherwise it keeps its log for a time,
    whoever has read it."""
    rows_in: tuple[str, ...] = ()
    """What follows a table's columns where it is partitioned, and then what makes each partition, `{}` for its name."""

    def table(self, name: str) -> TableName:
        return TableName(self.schema, name)

    def create(self, name: str, *, key: bool = True) -> None:
        primary = " PRIMARY KEY" if key else ""
        columns = f"(id integer NOT NULL{primary}, name varchar(40), note varchar(40))"
        partitioned, *partitions = self.rows_in or ("",)
        self.execute(f"CREATE TABLE {name} {columns} {partitioned}", *(it.format(name) for it in partitions))

    def rows(self, name: str) -> dict[str, Values]:
        """Return the rows by key, as texts."""
        found = self.execute(f"SELECT id, name, note FROM {name}")
        return {str(row[0]): tuple(None if it is None else str(it) for it in row) for row in found}


@dataclass(frozen=True, slots=True)
class Change:
    """A change as it was read, its values as texts; None where the operation has no such image."""

    xact_seqno: bytes
    operation: Operation
    table: str
    before: Values | None
    after: Values | None


@dataclass(slots=True)
class PublisherSite:
    """A publication at a Publisher under test."""

    server: PublisherUnderTest
    articles: list[RegisteredArticle] = field(default_factory=list)
    begins: Position | None = None
    """Where reading begins: where the log was kept from when the publication was set up first."""

    @contextmanager
    def opened(self) -> Iterator[Publisher]:
        with open_publisher(self.server.connection, PUBLICATION, "test") as publisher:
            yield publisher

    def described(self, publisher: Publisher, *tables: str, **settings: Any) -> Tables:
        articles = [Article.model_validate({"source": self.server.table(it), **settings}) for it in tables]
        found = publisher.describe([it.source for it in articles])
        return [(it, found[it.source]) for it in articles]

    def set_up(self, *tables: str, **settings: Any) -> list[str]:
        """Publish the tables; return what was done."""
        with self.opened() as publisher:
            described = self.described(publisher, *tables, **settings)
            problems = [
                problem for article, table in described for problem in publisher.article_problems(article, table)
            ]
            assert problems == []
            done = publisher.set_up(described)
            self.begins = self.begins or publisher.kept_from()
            # What set-up changed of a table is in its description.
            described = self.described(publisher, *tables, **settings)
        self.articles = [
            registered_article(article, table).model_copy(update={"article_id": number})
            for number, (article, table) in enumerate(described, start=1)
        ]
        return done

    def start(self, publisher: Publisher) -> Position:
        """Return from where the log is kept for the publication."""
        assert self.begins is not None, "set it up first"
        return publisher.kept_from() if self.server.keeps_log else self.begins

    def probe(self, publisher: Publisher, up_to: Position) -> Probe:
        return publisher.probe(self.articles, self.start(publisher), up_to)

    def parts(
        self,
        publisher: Publisher,
        start: Position | None = None,
        up_to: Position | None = None,
        limits: Limits = NO_LIMITS,
    ) -> list[LogPart]:
        first, last = start or self.start(publisher), up_to or publisher.end_of_log()
        return list(publisher.log_range(self.articles, first, last, limits).between(first, last).changes())

    def read(self, publisher: Publisher, start: Position | None = None, up_to: Position | None = None) -> list[Change]:
        """Return all changes between the two: from where the log is kept for the publication, and to its end."""
        return [it for part in self.parts(publisher, start, up_to) for it in changes_of(part.changes)]


def changes_of(changes: Changes | None) -> list[Change]:
    """Flatten a part's changes, in the log's order."""
    if changes is None:
        return []
    placed = [(int(place), it, at) for it in changes.sets for at, place in enumerate(it.places)]
    found = []
    for place, it, at in sorted(placed, key=lambda one: one[0]):
        seqno = changes.transactions.xact_seqno(int(changes.transactions.of(np.array([place]))[0]))
        images = [_texts(changes.buffer, image, at) for image in (it.before, it.after)]
        found.append(Change(seqno or b"", it.operation, it.article.source.table, *images))
    return found


def _texts(buffer: Buffer, image: Cells | None, at: int) -> Values | None:
    if image is None:
        return None
    texts: list[str | None] = []
    for start, length in zip(image.starts[at].tolist(), image.lengths[at].tolist(), strict=True):
        value = buffer.bytes[start : start + length].tobytes().decode() if length >= 0 else None
        texts.append(ABSENT if length == NOT_IN_LOG else value)
    return tuple(texts)


def replayed(changes: Sequence[Change], rows: dict[str, Values] | None = None) -> dict[str, Values]:
    """Return the rows of one table, by key, after these changes. A row that is not as it must be fails."""
    found = dict(rows or {})
    for it in changes:
        if it.operation is Operation.TRUNCATE:
            found.clear()
        if it.before is not None:
            removed = found.pop(it.before[0] or "")
            assert all(old in (ABSENT, value) for old, value in zip(it.before, removed, strict=True))
        if it.after is not None:
            key = it.after[0] or ""
            assert key not in found, f"{key} comes twice"
            found[key] = it.after
    return found


@dataclass(slots=True)
class Registered:
    """What is registered of a log: a `RegisteredLog` that no database keeps."""

    position: Position
    start: Position | None
    timeline: int | None
    last: bytes | None = None
    last_commit_time: datetime | None = None
    proof: str | None = None

    def renew(self) -> None:
        pass

    def latest_snapshot(self) -> bytes | None:
        return None

    def delivered(self) -> str:
        return "Nothing was delivered yet"


_POSTGRES_CATALOGUE = (
    "SELECT coalesce(jsonb_agg(found ORDER BY found::text), '[]')::text FROM ("
    "SELECT to_jsonb(p) - 'oid' AS found FROM pg_publication p UNION ALL "
    "SELECT to_jsonb(r) - 'oid' FROM pg_publication_rel r UNION ALL "
    "SELECT jsonb_build_array(slot_name, plugin) FROM pg_replication_slots WHERE database = current_database() "
    "UNION ALL SELECT jsonb_build_array(oid::regclass::text, relreplident) FROM pg_class WHERE relnamespace = "
    "'public'::regnamespace UNION ALL SELECT jsonb_build_array(tgname) FROM pg_trigger "
    "UNION ALL SELECT jsonb_build_array(evtname) FROM pg_event_trigger) AS all_found"
)


def postgres_under_test(connection: Connection) -> PublisherUnderTest:
    @contextmanager
    def session() -> Iterator[Session]:
        parameters: Any = connection.libpq_parameters("test")
        with psycopg.connect(**parameters) as opened:
            try:
                yield opened
            finally:
                opened.rollback()

    return PublisherUnderTest(
        "postgres",
        connection,
        lambda *statements: execute(connection, *statements),
        session,
        lambda: execute(connection, _POSTGRES_CATALOGUE),
        "public",
        # Nobody has registered what is confirmed.
        lambda publisher: publisher.confirm(publisher.end_of_log()),
        {"replica_identity": "full"},
    )


def partitioned_under_test(connection: Connection) -> PublisherUnderTest:
    """Return a Publisher some of whose partitions have their columns in another order than their table."""
    return replace(
        postgres_under_test(connection),
        rows_in=(
            "PARTITION BY RANGE (id)",
            "CREATE TABLE {0}_low PARTITION OF {0} FOR VALUES FROM (MINVALUE) TO (2) PARTITION BY LIST (id)",
            "CREATE TABLE {0}_one PARTITION OF {0}_low FOR VALUES IN (1)",
            "CREATE TABLE {0}_other PARTITION OF {0}_low DEFAULT",
            "CREATE TABLE {0}_high (note varchar(40), gone int, name varchar(40), id integer NOT NULL)",
            "ALTER TABLE {0}_high DROP COLUMN gone",
            "ALTER TABLE {0} ATTACH PARTITION {0}_high FOR VALUES FROM (2) TO (MAXVALUE)",
        ),
    )


def of_another_kind(connection: Connection) -> Connection:
    return replace(connection, kind="teradata")


_LOG_OPTIONS = (
    *("--log-bin=mariadb-bin", "--binlog-format=ROW", "--binlog-row-metadata=FULL", "--server-id=1"),
    *("--sync-binlog=1", "--innodb-flush-log-at-trx-commit=1"),
)
_OPTIONS_OF = {
    "mariadb": ("--gtid-strict-mode=1",),
    "mysql": ("--gtid-mode=ON", "--enforce-gtid-consistency=ON", "--binlog-expire-logs-auto-purge=OFF"),
}
SERVERS: Mapping[str, type[MariaDbServer]] = {
    "mariadb": MariaDbServer,
    "mariadb-11.8": UnpackedMariaDbServer,
    "mysql-9.7": UnpackedMySqlServer,
}
"""Servers of the two families."""
of_mariadb = pytest.mark.parametrize("mariadb_shop", ["mariadb"], indirect=True)
"""For a test that speaks of what MariaDB alone has."""


@contextmanager
def publishing_mariadb(home: Path, name: str = "mariadb", options: Sequence[str] = ()) -> Iterator[MariaDbServer]:
    """Start a server of `SERVERS` that can publish. `options` win over ours. Skips the test where there is none."""
    of = SERVERS[name]
    of.require()
    with of(home, (*_LOG_OPTIONS, *_OPTIONS_OF[of.kind], *options)) as server:
        if server.kind == "mysql":
            # A validation compares by MD5.
            server.execute("INSTALL COMPONENT 'file://component_classic_hashing'")
        yield server


_numbers = count(1)


def new_mariadb_database(server: MariaDbServer) -> str:
    name = f"publisher{next(_numbers)}"
    server.execute(f"CREATE DATABASE {name} CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
    return name


def mariadb_under_test(server: MariaDbServer, database: str) -> PublisherUnderTest:
    connection = server.connection(database, "publisher")

    def run(*statements: str) -> Rows:
        return server.execute(*statements, database=database)

    @contextmanager
    def session() -> Iterator[Session]:
        with server.connect(database) as opened:
            opened.autocommit(False)
            yield _MariaDbSession(opened)

    def lose_log(_: Publisher) -> None:
        ((lost, *_others),) = run(server.end_of_log)
        # A file that was read or written just now stays for a moment.
        while lost in [name for name, *_ in run("SHOW BINARY LOGS")]:
            run("FLUSH BINARY LOGS")
            ((file, *_others),) = run(server.end_of_log)
            run(f"PURGE BINARY LOGS TO '{file}'")

    def catalogue() -> object:
        messages = run("SHOW DATABASES LIKE 'tranrepl'") and run("SELECT kind, publication FROM tranrepl.message")
        return run("SHOW TABLES"), messages

    return PublisherUnderTest(
        server.kind,
        connection,
        run,
        session,
        catalogue,
        database,
        lose_log,
        {},
        keeps_log=False,
    )


@dataclass(frozen=True, slots=True)
class _MariaDbSession:
    session: Any

    def execute(self, statement: str) -> object:
        with self.session.cursor() as cursor:
            return cursor.execute(statement)

    def commit(self) -> None:
        self.session.commit()

    def rollback(self) -> None:
        self.session.rollback()
