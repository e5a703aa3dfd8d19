"""A log that is followed gives what is committed, as it is read, and proves where it has come to."""

from __future__ import annotations

import select
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from support.continuous_reader import DUMPS
from support.publishers import Change, PublisherSite, Registered, changes_of
from tranrepl.model.position import Position
from tranrepl.publisher.log_range import LogPart
from tranrepl.publisher.log_stream import OpenLogStream, StreamEndedError
from tranrepl.publisher.mysql import dump, log_stream
from tranrepl.publisher.mysql.log_stream import OpenBinlogStream
from tranrepl.publisher.mysql.positions import position_of
from tranrepl.publisher.publisher import Publisher

_SECONDS = 30.0


def _insert(number: int, table: str = "t") -> str:
    return f"INSERT INTO {table} VALUES ({number}, 'x', NULL)"


@contextmanager
def _following(site: PublisherSite) -> Iterator[tuple[Publisher, OpenLogStream]]:
    with site.opened() as publisher:
        stream = publisher.log_stream(site.articles, site.start(publisher), None)
        assert stream is not None
        with stream.open() as opened:
            yield publisher, opened


def _next(stream: OpenLogStream, up_to: Position | None = None) -> LogPart:
    """Wait until something has arrived, and all up to there, and take it."""
    deadline = time.monotonic() + _SECONDS
    while stream.arrived_at is None:
        assert time.monotonic() < deadline, "nothing arrives"
        select.select([stream.fileno()], [], [], 1.0)
        stream.receive()
    while up_to is not None and isinstance(stream, OpenBinlogStream) and position_of(stream.cursor.place) < up_to:
        select.select([stream.fileno()], [], [], 1.0)
        stream.receive()
    part = stream.take()
    assert part is not None
    return part


def _passed(stream: OpenLogStream, up_to: Position) -> Position:
    """Wait until the stream has come so far without a change of ours."""
    deadline = time.monotonic() + _SECONDS
    while (read_to := stream.read_to) is None or read_to < up_to:
        assert time.monotonic() < deadline, "nothing arrives"
        assert stream.arrived_at is None
        select.select([stream.fileno()], [], [], 0.1)
        stream.receive()
    return read_to


def test_what_is_committed_arrives_as_it_is_read(site: PublisherSite) -> None:
    site.server.create("t")
    site.server.create("other")
    site.set_up("t")
    with _following(site) as (_, stream):
        found: list[Change] = []
        for statements in (
            [_insert(1), _insert(1, "other"), "UPDATE t SET name = 'y'"],
            ["INSERT INTO t SELECT id + 1, repeat('x', 40), note FROM t", "DELETE FROM t WHERE id = 1"],
        ):
            site.server.execute(*statements)
            expected = len(found) + 2
            while len(found) < expected:
                part = _next(stream)
                found += changes_of(part.changes)
                assert part.end is not None
                stream.confirm(part.end)
        with site.server.session() as session:
            session.execute(_insert(7))
            stream.receive()
            assert stream.arrived_at is None
            session.execute(_insert(8))
            session.commit()
        part = _next(stream)
        assert part.transactions == 1
        found += changes_of(part.changes)
    assert [it.operation.name for it in found] == ["INSERT", "UPDATE", "INSERT", "DELETE", "INSERT", "INSERT"]
    with site.opened() as publisher:
        if not site.server.keeps_log:
            assert found == site.read(publisher)


@pytest.fixture
def by_time(site: PublisherSite) -> PublisherSite:
    if site.server.keeps_log:
        pytest.skip("it proves its place by its slot")
    site.server.create("t")
    site.server.create("other")
    site.set_up("t")
    return site


def test_where_it_has_come_to_is_proved_as_it_would_be_read_again(by_time: PublisherSite) -> None:
    """Else the next start would take the server's own log for another one."""
    site = by_time
    rotate = "FLUSH BINARY LOGS"
    with _following(site) as (publisher, stream):
        last, position = None, site.start(publisher)
        proof = publisher.proof(position, None)
        assert proof is not None
        steps: list[tuple[list[str], bool]] = [
            ([_insert(1)], True),
            ([_insert(1, "other")], False),
            ([rotate, _insert(2, "other")], False),
            ([_insert(3, "other"), _insert(2), _insert(4, "other")], True),
            ([rotate], False),
            ([_insert(3)], True),
            ([rotate, rotate, _insert(4), rotate], True),
        ]
        for statements, is_ours in steps:
            site.server.execute(*statements)
            if is_ours:
                part = _next(stream)
                assert part.end is not None
                position, last = part.end, part.last_commit
            else:
                position = _passed(stream, publisher.end_of_log())
            proof = stream.proof(proof, last)
            assert proof == publisher.proof(position, last), statements
            stream.confirm(position)
            registered = Registered(position, site.begins, 1, last, proof=proof)
            publisher.require_unbroken(publisher.identity(), registered)


def test_a_file_that_ends_before_what_is_in_it_was_taken_changes_no_proof(by_time: PublisherSite) -> None:
    with _following(by_time) as (publisher, stream):
        proof = publisher.proof(by_time.start(publisher), None)
        by_time.server.execute(_insert(1))
        while stream.arrived_at is None:
            stream.receive()
        by_time.server.execute("FLUSH BINARY LOGS")
        part = _next(stream, publisher.end_of_log())
        assert part.end is not None
        proof = stream.proof(proof, part.last_commit)
        assert proof == publisher.proof(part.end, part.last_commit)
        stream.confirm(part.end)
        position = _passed(stream, publisher.end_of_log())
        assert stream.proof(proof, part.last_commit) == publisher.proof(position, part.last_commit)


def test_a_transaction_on_its_way_with_a_savepoint_is_none_that_has_arrived(
    by_time: PublisherSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dump, "_CHUNK", 4_000)
    monkeypatch.setattr(log_stream, "_AT_ONCE_BYTES", 1)
    with _following(by_time) as (_, stream), by_time.server.session() as session:
        for it in ("FLUSH BINARY LOGS", _insert(-1), "SAVEPOINT a", *map(_insert, range(200))):
            session.execute(it)
        session.commit()
        # The end of the file and some of the transaction are read at once.
        time.sleep(0.3)
        part = _next(stream)
    assert part.transactions == 1
    assert len(changes_of(part.changes)) == 201


def test_a_server_that_ends_the_session_ends_the_stream(by_time: PublisherSite) -> None:
    with _following(by_time) as (_, stream):
        by_time.server.execute(_insert(1))
        _next(stream)
        ((number,),) = by_time.server.execute(f"SELECT id {DUMPS}")
        by_time.server.execute(f"KILL {number}")
        with pytest.raises(StreamEndedError):
            _passed(stream, Position(b"\xff" * 8))


@pytest.mark.slow_after(2)
def test_a_server_that_is_idle_says_so_and_one_that_is_silent_is_gone(
    by_time: PublisherSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_stream, "_SILENT_SECONDS", 1.0)
    monkeypatch.setattr(dump, "HEARTBEAT_SECONDS", 0.2)
    with _following(by_time) as (_, stream):
        _idle(stream, 1.5)
    monkeypatch.setattr(dump, "HEARTBEAT_SECONDS", 10.0)
    with _following(by_time) as (_, stream), pytest.raises(StreamEndedError, match="said nothing"):
        _idle(stream, 1.5)


def _idle(stream: OpenLogStream, seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        select.select([stream.fileno()], [], [], 0.1)
        stream.receive()
