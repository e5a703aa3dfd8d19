"""The exported snapshot and the log divide the transactions between them: each is in one of the two."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path

import psycopg
import pytest

from conftest import DatabasesFactory
from support.in_process import read_commands
from support.site import Site
from tranrepl.connections import Connection
from tranrepl.distributor.database import DistributionDatabase
from tranrepl.errors import TransientError
from tranrepl.model.article import RegisteredArticle
from tranrepl.postgres.shared_snapshot import snapshot_session
from tranrepl.publisher.postgres.exported_snapshot import exported_snapshot
from tranrepl.publisher.postgres.snapshot_session import PostgresSnapshotSession, hold_tables

pytestmark = pytest.mark.new_sessions


def _site(databases: DatabasesFactory, tmp_path: Path, filter_: str | None = None) -> Site:
    site = Site(databases(), tmp_path / "store", [{"source": "public.entry", "filter": filter_}])
    site.at_publisher("CREATE TABLE entry (id bigint PRIMARY KEY, kind regclass, ratio float8)")
    site.set_up()
    return site


def _article(site: Site) -> RegisteredArticle:
    with DistributionDatabase(site.databases.distribution) as database:
        (article,) = database.articles.registered(database.publications.get("purchasing"))
    return article


def _session(connection: Connection) -> psycopg.Connection[tuple[object, ...]]:
    return psycopg.connect(**connection.libpq_parameters("writer"))  # type: ignore[arg-type]


def _read(site: Site, name: str) -> str:
    article = _article(site)
    with snapshot_session(site.databases.publisher, name, "reader") as session:
        hold_tables(session, [article])
        source = PostgresSnapshotSession(session)
        chunks = [chunk for chosen in source.ranges(article, None) for chunk in source.lines(chosen)]
        return b"".join(chunks).decode()


@contextmanager
def _writers(site: Site, ids: Iterator[int]) -> Iterator[None]:
    """Commit small transactions, some with savepoints, some prepared first, without a pause."""
    stop = threading.Event()

    def write(number: int) -> None:
        with _session(site.databases.publisher) as session:
            session.autocommit = True
            for turn in count():
                if stop.is_set():
                    return
                session.execute("BEGIN")
                session.execute("INSERT INTO entry VALUES (%s)", [next(ids)])
                session.execute("SAVEPOINT here")
                session.execute("INSERT INTO entry VALUES (%s)", [next(ids)])
                if turn % 3 == 0:
                    session.execute("ROLLBACK TO here")
                if turn % 5 == 0:
                    session.execute(f"PREPARE TRANSACTION 'entry {number}'")
                    session.execute(f"COMMIT PREPARED 'entry {number}'")
                else:
                    session.execute("COMMIT")

    with ThreadPoolExecutor(3) as executor:
        writing = [executor.submit(write, number) for number in range(3)]
        try:
            yield
        finally:
            stop.set()
        for it in writing:
            it.result()


def test_every_transaction_is_in_the_snapshot_or_after_it(databases: DatabasesFactory, tmp_path: Path) -> None:
    site, ids = _site(databases, tmp_path), count(1)
    seen: list[tuple[bytes, set[int]]] = []
    with _writers(site, ids):
        for _ in range(5):
            with exported_snapshot(site.databases.publisher, 30) as snapshot:
                time.sleep(0.05)
                rows = {int(line.split("\t")[0]) for line in _read(site, snapshot.name).splitlines()}
                seen.append((snapshot.xact_seqno, rows))
    commands = read_commands(site).commands
    committed = {
        int(image.split("\t")[0]): seqno
        for seqno, image in zip(commands["xact_seqno"].to_pylist(), commands["after"].to_pylist(), strict=True)
    }
    for watermark, rows in seen:
        assert rows == {id_ for id_, seqno in committed.items() if seqno <= watermark}
    assert 0 < len(seen[0][1]) < len(seen[-1][1]) < len(committed)


def test_what_was_open_when_it_began_is_waited_for(databases: DatabasesFactory, tmp_path: Path) -> None:
    site = _site(databases, tmp_path)
    said: list[str] = []
    with ExitStack() as stack:
        prepared = stack.enter_context(_session(site.databases.publisher))
        prepared.autocommit = True
        prepared.execute("BEGIN")
        prepared.execute("INSERT INTO entry VALUES (1)")
        prepared.execute("PREPARE TRANSACTION 'held'")
        with (
            pytest.raises(TransientError, match=r"after waiting 1 seconds for prepared transaction 'held' \(for 00:"),
            exported_snapshot(site.databases.publisher, 1, said.append),
        ):
            pass
        assert site.at_publisher("SELECT count(*) FROM pg_replication_slots WHERE temporary") == [(0,)]

        writer = stack.enter_context(_session(site.databases.publisher))
        writer.execute("INSERT INTO entry VALUES (2)")
        pid = writer.info.backend_pid
        executor = stack.enter_context(ThreadPoolExecutor(1))
        executor.submit(_commit_one_by_one, prepared, writer)
        with exported_snapshot(site.databases.publisher, 30, said.append) as snapshot:
            assert [line.split("\t")[0] for line in _read(site, snapshot.name).splitlines()] == ["1", "2"]
    assert "prepared transaction 'held'" in said[0]
    assert f"a transaction of process {pid} (postgres, writer)" in said[-1]
    with pytest.raises(TransientError, match="is gone"):
        _read(site, snapshot.name)


def _commit_one_by_one(
    prepared: psycopg.Connection[tuple[object, ...]], writer: psycopg.Connection[tuple[object, ...]]
) -> None:
    time.sleep(1.5)
    prepared.execute("COMMIT PREPARED 'held'")
    time.sleep(1.5)
    writer.commit()


@pytest.mark.parametrize("filter_", [None, "ratio > 0.5 OR kind = 'pg_class'::regclass"])
def test_rows_are_those_of_the_log_and_filtered_alike(
    databases: DatabasesFactory, tmp_path: Path, filter_: str | None
) -> None:
    site = _site(databases, tmp_path, filter_)
    site.at_publisher("INSERT INTO entry VALUES (1, 'entry', 0.1), (2, NULL, 0.1), (3, NULL, 1/3.0 + 0.5)")
    if filter_ is not None:
        # Names in values are qualified without a filter only.
        site.at_publisher("UPDATE entry SET kind = 'pg_class' WHERE id = 1")
    commands = read_commands(site).commands
    with exported_snapshot(site.databases.publisher, 30) as snapshot:
        rows = _read(site, snapshot.name)
    # What moves into the filter goes out as an INSERT.
    assert sorted(rows.splitlines()) == sorted(commands["after"].to_pylist())


def test_a_table_that_was_truncated_since_is_not_read_as_empty(databases: DatabasesFactory, tmp_path: Path) -> None:
    site = _site(databases, tmp_path)
    site.at_publisher("INSERT INTO entry VALUES (1)")
    with exported_snapshot(site.databases.publisher, 30) as snapshot:
        site.at_publisher("TRUNCATE entry")
        with pytest.raises(TransientError, match="was truncated or rewritten"):
            _read(site, snapshot.name)


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE entry ADD COLUMN extra integer DEFAULT 5",
        "ALTER TABLE entry DROP COLUMN ratio",
        "ALTER TABLE entry DROP COLUMN ratio, ADD COLUMN ratio float8 DEFAULT 5",
        "ALTER TABLE entry RENAME COLUMN ratio TO quotient",
    ],
)
def test_a_table_altered_after_its_snapshot_was_taken_is_not_read(
    statement: str, databases: DatabasesFactory, tmp_path: Path
) -> None:
    site = _site(databases, tmp_path)
    site.at_publisher("INSERT INTO entry VALUES (1, 'entry', 1)")
    with exported_snapshot(site.databases.publisher, 60) as exported:
        site.at_publisher(statement)
        with pytest.raises(TransientError, match="was altered while its snapshot began"):
            _read(site, exported.name)
