"""A log read range by range, by sessions that take turns or by tasks side by side, is the log."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from conftest import DatabasesFactory
from support.databases import Databases
from support.in_process import read_log_into_store
from support.observed import slot_position, stored_commands
from support.site import Site
from tranrepl.connections import Connection
from tranrepl.distributor.database import DistributionDatabase
from tranrepl.distributor.database.batches import Batches
from tranrepl.errors import ErrorKind, TransientError
from tranrepl.jobs.results import JobResult
from tranrepl.log_reader import reading
from tranrepl.log_reader.reading import read_log
from tranrepl.publisher.log_range import LogRange
from tranrepl.publisher.log_read import LogRead
from tranrepl.publisher.postgres import slot_messages
from tranrepl.publisher.postgres.lsn import position_of
from tranrepl.publisher.postgres.slot_messages import LOG_PAGE, range_ends

_SESSIONS = 3
_CHANGES = 300


def _overlapping_transactions(publisher: Connection) -> None:
    """Write transactions of one to hundreds of rows, some wide, some rolled back: they span pages and ranges."""
    chance = random.Random(5)
    sessions = [psycopg.connect(**publisher.libpq_parameters("test")) for _ in range(_SESSIONS)]  # type: ignore[arg-type]
    for change in range(_CHANGES):
        session = chance.choice(sessions)
        rows, width = chance.choice((1, 1, 1, 30)), chance.choice((1, 10, 3 * LOG_PAGE))
        # Of digests, which do not compress.
        session.execute(
            "INSERT INTO t SELECT %s + n, (SELECT string_agg(sha512((n + m)::text::bytea)::text, '') "
            "FROM generate_series(1, %s) m) FROM generate_series(1, %s) n",
            [1000 * change, 1 + width // 130, rows],
        )
        if chance.random() < 0.3:
            chance.choice((session.commit, session.commit, session.rollback))()
    for session in sessions:
        session.commit()
        session.close()


# Two publications of it deliver to one table.
_ARTICLE = {"source": "public.t", "truncate": "ignore"}


def _site(databases: Databases, tmp_path: Path, **settings: Any) -> Site:
    site = Site(databases, tmp_path / "store", [_ARTICLE], **settings)
    site.at_publisher("CREATE TABLE t (id int PRIMARY KEY, text text)")
    site.set_up()
    return site


@pytest.fixture
def site(databases: DatabasesFactory, tmp_path: Path) -> Site:
    return _site(databases(), tmp_path)


@pytest.fixture
def two_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut the log in two ranges, however short it is."""
    monkeypatch.setattr(slot_messages, "_WORTH_TWO_SESSIONS", 0)


@pytest.mark.slow
def test_a_log_read_in_many_ranges_is_the_same_log(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    _overlapping_transactions(site.databases.publisher)
    slot, start, up_to = site.at_publisher(
        "SELECT slot_name, confirmed_flush_lsn - '0/0'::pg_lsn, pg_current_wal_flush_lsn() - '0/0'::pg_lsn "
        "FROM pg_replication_slots WHERE database = current_database()"
    )[0]
    publisher, first, last = site.databases.publisher, int(str(start)), int(str(up_to))

    def messages(ends: list[int], *, many_tables: bool = False) -> list[bytes]:
        read = slot_messages.slot_messages(publisher, str(slot), first, ends, many_tables=many_tables)
        # Where another session decodes, it announces the table again.
        return [it for batch in read for it in batch.to_pylist() if it[:1] != b"R"]

    at_once = messages([last])
    # A session knows types by another database of the server, where that may be.
    for other in ("postgres", "none"):
        monkeypatch.setattr(slot_messages, "_MAINTENANCE_DATABASE", other)
        slot_messages._database.cache_clear()
        assert messages([last], many_tables=True) == at_once
    monkeypatch.setattr(slot_messages, "_WORTH_TWO_SESSIONS", 0)
    for pages in (7, 64):
        ends = range_ends(first, last, pages * LOG_PAGE)
        assert len(ends) > 2
        assert messages(ends) == at_once


def _twin(site: Site, tmp_path: Path) -> Site:
    """Return another publication of the same table: read in one piece, its log gives what the ranges must give."""
    twin = Site(site.databases, tmp_path / "twin", [_ARTICLE], publication="twin")
    twin.set_up()
    return twin


def _read_at_once(site: Site) -> JobResult:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slot_messages, "_WORTH_TWO_SESSIONS", 1 << 40)
        return read_log_into_store(site)


def _commands(site: Site) -> list[tuple[object, ...]]:
    """Return all that is registered, in order."""
    return [(it.xact_seqno, it.command_id, it.operation, it.command) for it in stored_commands(site)]


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("read_batch_size", [1_000_000, 5])
@pytest.mark.usefixtures("two_ranges")
def test_ranges_stored_side_by_side_are_the_same_log(
    read_batch_size: int, databases: DatabasesFactory, tmp_path: Path
) -> None:
    site = _site(databases(), tmp_path, log_reader={"read_batch_size": read_batch_size})
    twin = _twin(site, tmp_path)
    _overlapping_transactions(site.databases.publisher)
    at_once, by_range = _read_at_once(twin), read_log_into_store(site)
    assert (by_range.error, by_range.transactions, by_range.commands) == (None, at_once.transactions, at_once.commands)
    assert by_range.commands_by_article == at_once.commands_by_article
    assert by_range.batches > max(at_once.batches, by_range.transactions // read_batch_size)
    assert _commands(site) == _commands(twin)
    assert len(list(Path(site.publication.distributor.store).glob("[!_]*"))) == by_range.batches
    assert read_log_into_store(site).commands == 0


@pytest.mark.usefixtures("two_ranges")
def test_spark_reads_two_ranges_in_two_tasks(databases: DatabasesFactory, tmp_path: Path, spark: Any) -> None:
    site = _site(databases(), tmp_path, spark=spark)
    twin = _twin(site, tmp_path)
    _overlapping_transactions(site.databases.publisher)
    by_range = site.read_log()
    assert (by_range.error, by_range.batches) == (None, 2)
    _read_at_once(twin)
    assert _commands(site) == _commands(twin)


@pytest.mark.usefixtures("two_ranges")
def test_a_log_is_divided_no_more_once_a_schema_change_was_read(databases: DatabasesFactory, tmp_path: Path) -> None:
    site = _site(databases(), tmp_path, replicate_ddl=True)
    changes = [f"ALTER TABLE t ADD COLUMN added_{n} int DEFAULT {n}" for n in range(6)]
    changes += [f"ALTER TABLE t RENAME added_{n} TO renamed_{n}" for n in range(3)]
    changes += [f"ALTER TABLE t DROP COLUMN added_{n}" for n in range(3, 6)]
    for number, change in enumerate(changes):
        site.at_publisher(f"INSERT INTO t SELECT {100 * number} + n, 'a' FROM generate_series(1, 50) n", change)
    read = read_log_into_store(site)
    # The two ranges that were divided before, and the rest: not a batch for each change.
    assert (read.error, read.schema_changes) == (None, len(changes))
    assert read.batches <= 3
    assert read.commands == 51 * len(changes)
    site.at_publisher(*(f"INSERT INTO t SELECT -{sign}000 - n FROM generate_series(1, 500) n" for sign in (1, 2, 3, 4)))
    assert read_log_into_store(site).batches == 2


@pytest.mark.usefixtures("two_ranges")
def test_where_the_second_range_cannot_be_read_the_first_one_stays(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    twin = _twin(site, tmp_path)
    _overlapping_transactions(site.databases.publisher)
    start = slot_position(site)

    def lost(plan: LogRange) -> Generator[pa.RecordBatch, None, LogRead]:
        if plan.start > position_of(start):
            raise TransientError("the connection is lost")
        return (yield from read_log(plan))

    with monkeypatch.context() as patch:
        patch.setattr(reading, "read_log", lost)
        stopped = read_log_into_store(site)
    assert stopped.error is not None
    assert (stopped.error.kind, stopped.batches) == (ErrorKind.TRANSIENT, 1)
    assert 0 < stopped.commands == len(_commands(site))
    assert len(list(Path(site.publication.distributor.store).glob("[!_]*"))) == 1
    assert read_log_into_store(site).error is None
    _read_at_once(twin)
    assert _commands(site) == _commands(twin)


@pytest.mark.parametrize("inserted", [(10, 5000), (5000, 10)], ids=["in the first", "in the second"])
@pytest.mark.usefixtures("two_ranges")
def test_a_table_altered_in_either_range_stops_there(inserted: tuple[int, int], site: Site) -> None:
    before, after = inserted
    site.at_publisher(f"INSERT INTO t SELECT n, 'before' FROM generate_series(1, {before}) n")
    site.at_publisher("ALTER TABLE t DROP COLUMN text")
    site.at_publisher(f"INSERT INTO t SELECT -n FROM generate_series(1, {after}) n")
    for commands in (before, 0):
        result = read_log_into_store(site)
        assert result.error is not None
        assert "was altered" in result.error.message
        assert result.commands == commands
    assert len(_commands(site)) == before


@contextmanager
def _overtaken_once_registered(other: Callable[[], JobResult]) -> Iterator[None]:
    """Start another log reader as soon as the first registration is committed, before its caller hears of it."""
    begin, register = DistributionDatabase.transaction, Batches.register
    registering: list[Batches] = []
    results: list[JobResult] = []

    def registers(batches: Batches, *arguments: Any, **named: Any) -> Any:
        registering.append(batches)
        return register(batches, *arguments, **named)

    @contextmanager
    def overtaken(database: DistributionDatabase) -> Iterator[Any]:
        with begin(database) as connection:
            yield connection
        if registering == [database.batches] and not results:
            results.append(other())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DistributionDatabase, "transaction", overtaken)
        patch.setattr(Batches, "register", registers)
        yield
    assert [(it.error, it.batches) for it in results] == [(None, 1)]


@pytest.mark.usefixtures("two_ranges")
def test_who_is_overtaken_between_two_ranges_registers_no_more(site: Site, tmp_path: Path) -> None:
    twin = _twin(site, tmp_path)
    _overlapping_transactions(site.databases.publisher)
    with _overtaken_once_registered(lambda: _read_at_once(site)):
        result = read_log_into_store(site)
    assert result.error is not None
    assert (result.error.kind, result.batches) == (ErrorKind.FENCED, 1)
    _read_at_once(twin)
    assert _commands(site) == _commands(twin)


def test_a_publisher_that_refuses_temporary_files_is_told_what_to_do(site: Site) -> None:
    database = site.databases.publisher.database
    site.at_publisher(f"ALTER DATABASE \"{database}\" SET temp_file_limit = '1MB'")
    site.at_publisher("INSERT INTO t SELECT n, repeat('x', 200) FROM generate_series(1, 60000) n")
    refused = read_log_into_store(site).error
    assert refused is not None
    assert refused.kind is ErrorKind.CONFIGURATION
    assert "temp_file_limit" in (refused.remedy or "")
    site.at_publisher(f'ALTER DATABASE "{database}" RESET temp_file_limit')
    assert read_log_into_store(site).commands == 60000
