"""Values so large that a server, or a buffer of ours, does not take them in the form in which others travel."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from conftest import DatabasesFactory
from support.in_process import deliver_stored, read_log_into_store, replicate_stored
from support.remedies import reinitialize_all
from support.site import Site
from tranrepl.admin.reinitialization import Rows
from tranrepl.errors import ErrorKind
from tranrepl.publisher.postgres import log_range, oversized_messages, slot_messages
from tranrepl.publisher.postgres.lsn import lsn_number
from tranrepl.publisher.postgres.oversized_messages import LongMessage
from tranrepl.subscriber.batching import commit_batches
from tranrepl.subscriber.postgres import applier as postgres_applier, serial

_MEGABYTE = 1024 * 1024
_TEXT_REFUSED = (
    "ERROR:  string buffer exceeds maximum allowed length (1073741823 bytes)\n"
    "DETAIL:  Cannot enlarge string buffer containing 566231075 bytes by 566231042 more bytes."
)


def _large(letter: str, megabytes: int) -> str:
    return f"repeat('{letter}', {megabytes * _MEGABYTE})"


def test_what_comes_before_a_row_that_is_too_long_is_delivered(
    databases: DatabasesFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # However often one reads, the answer is the same, and nothing is read twice.
    site = Site(databases(), tmp_path / "store", ["public.t"])
    site.at_publisher("CREATE TABLE t (id integer PRIMARY KEY, note text, large bytea)")
    site.set_up()
    site.at_publisher("INSERT INTO t VALUES (1, 'before')", "UPDATE t SET note = 'before it' WHERE id = 1")
    before = lsn_number(str(site.at_publisher("SELECT pg_current_wal_insert_lsn()::text")[0][0]))
    site.at_publisher("INSERT INTO t SELECT n, 'x', repeat('y', 1000 * n)::bytea FROM generate_series(2, 3) n")
    ((table,),) = site.at_publisher("SELECT 't'::regclass::oid::bigint")
    read_range = slot_messages._read_range

    def refuse_later(slot: str, copy: str, up_to: int) -> str:
        if up_to > before:
            raise OSError(_TEXT_REFUSED)
        return read_range(slot, copy, up_to)

    def found(*_: object) -> LongMessage:
        return LongMessage(before + 8, 5, before, (int(str(table)),))

    monkeypatch.setattr(slot_messages, "_read_range", refuse_later)
    monkeypatch.setattr(log_range, "find_long_message", found)
    for commands in (2, 0):
        result = read_log_into_store(site)
        assert result.error is not None
        assert (result.commands, result.error.kind, result.error.article) == (commands, ErrorKind.DATA, "public.t")
        assert int(result.error.xact_seqno or "", 16) == before + 8
    deliver_stored(site).raise_error()
    assert site.at_subscriber("SELECT id, note FROM t") == [(1, "before it")]


def test_a_log_without_a_long_message_has_none(databases: DatabasesFactory, tmp_path: Path) -> None:
    site = Site(databases(), tmp_path / "store", ["public.t"])
    site.at_publisher("CREATE TABLE t (id integer PRIMARY KEY, note text)")
    site.set_up()
    site.at_publisher("INSERT INTO t SELECT n, repeat('x', 1000) FROM generate_series(1, 5000) n")
    slot, start, up_to = site.at_publisher(
        "SELECT slot_name, confirmed_flush_lsn::text, pg_current_wal_flush_lsn()::text "
        "FROM pg_replication_slots WHERE database = current_database()"
    )[0]
    publisher = site.databases.publisher
    first, last = lsn_number(str(start)), lsn_number(str(up_to))
    assert oversized_messages.find_long_message(publisher, str(slot), first, last) is None


@pytest.mark.parametrize("apply", ["auto", "serial"])
def test_a_command_that_no_buffer_takes_is_named(
    apply: str, databases: DatabasesFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Arrow's offsets overflow where commands are made into text.
    subscription = {"name": "reporting", "connection": "subscriber", "apply": apply}
    site = Site(databases(), tmp_path / "store", ["public.t"], subscriptions=[subscription])
    site.at_publisher("CREATE TABLE t (id integer PRIMARY KEY, note text)")
    site.set_up()
    site.at_publisher("INSERT INTO t SELECT n, repeat('x', n % 4 * 1000) FROM generate_series(1, 3) n")
    read_log_into_store(site).raise_error()

    def overflow(*_: object) -> memoryview:
        raise pa.ArrowInvalid("offset overflow while concatenating arrays")

    with monkeypatch.context() as patch:
        patch.setattr(commit_batches, "_LONG", 0)
        patch.setattr(serial, "copy_text", overflow)
        patch.setattr(postgres_applier, "fold_text", overflow)
        error = deliver_stored(site).error
    assert error is not None
    assert (error.kind, error.database_code, error.article, error.key) == (
        ErrorKind.DATA,
        "54000",
        "public.t",
        "id = 3",
    )
    assert "tranrepl skip" in (error.remedy or "")
    deliver_stored(site).raise_error()
    assert site.differences() == []


@pytest.mark.slow
def test_a_row_that_is_too_long_for_a_message(databases: DatabasesFactory, tmp_path: Path) -> None:
    """Deliver what was committed before it, and name the row."""
    site = Site(databases(), tmp_path / "store", ["public.t"])
    site.at_publisher(
        "CREATE TABLE t (id integer PRIMARY KEY, a text, b text)",
        f"INSERT INTO t SELECT 7, {_large('a', 260)}, {_large('b', 260)}",
    )
    site.set_up()
    site.at_publisher("INSERT INTO t VALUES (8, 'before')")
    before = str(site.at_publisher("SELECT pg_current_wal_lsn()::text")[0][0])
    site.at_publisher(
        f"UPDATE t SET a = {_large('c', 260)}, b = {_large('d', 260)} WHERE id = 7", "INSERT INTO t VALUES (9, 'after')"
    )
    error = read_log_into_store(site).error
    assert error is not None
    assert (error.kind, error.database_code, error.article) == (ErrorKind.DATA, "54000", "public.t")
    assert int(error.xact_seqno or "", 16) > lsn_number(before)
    assert "tranrepl reinitialize FILE" in (error.remedy or "")
    deliver_stored(site).raise_error()
    assert site.at_subscriber("SELECT id, a FROM t") == [(8, "before")]
    # The way past it.
    site = Site(site.databases, tmp_path / "store", [{"source": "public.t", "columns": ["id"]}])
    reinitialize_all(site, Rows.KEPT)
    site.at_publisher("INSERT INTO t VALUES (10, 'later')")
    replicate_stored(site)
    assert site.at_subscriber("SELECT id, a FROM t ORDER BY id") == [(8, "before"), (10, None)]
