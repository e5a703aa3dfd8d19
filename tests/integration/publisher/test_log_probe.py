"""A probe of the log says whether a run has anything to read. It does not decode a large transaction for that, nor
decode again what the run before has read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from conftest import DatabasesFactory
from support.in_process import read_commands
from support.site import Site, execute
from tranrepl.jobs.requests import LogReaderRequest
from tranrepl.log_reader.opening import OpenLogReader, open_log_reader
from tranrepl.log_reader.without_spark import run_without_spark
from tranrepl.publisher.postgres import log_probe, message_secret, slot as slots

_ROWS = 60_000
_MUCH = f"SELECT n, repeat('x', 100) FROM generate_series(1, {_ROWS}) n"
SiteAt = Callable[[str], Site]


@pytest.fixture
def site_at(databases: DatabasesFactory, tmp_path: Path, request: pytest.FixtureRequest) -> SiteAt:
    """Return a factory of sites whose Publisher is on this server."""

    def create(server: str) -> Site:
        site = Site(databases(publisher=request.getfixturevalue(server)), tmp_path / "store", ["public.t"])
        site.at_publisher("CREATE TABLE t (id int PRIMARY KEY, word text)", "CREATE TABLE other (id int, word text)")
        site.set_up()
        return site

    return create


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Collect all probes of the log."""
    taken: list[Any] = []
    look = log_probe._look

    def remembered(*arguments: Any) -> Any:
        taken.append(look(*arguments))
        return taken[-1]

    monkeypatch.setattr(log_probe, "_look", remembered)
    return taken


def _opened(site: Site) -> AbstractContextManager[OpenLogReader]:
    return open_log_reader(site.topology)


def _is_there_any(site: Site) -> bool:
    with _opened(site) as opened:
        return opened.publisher.probe([], opened.start, opened.publisher.end_of_log()).found_change


@contextmanager
def _open_transaction(site: Site, statement: str) -> Iterator[psycopg.Connection[Any]]:
    parameters: dict[str, Any] = dict(site.databases.publisher.libpq_parameters("test"))
    with psycopg.connect(**parameters) as session:
        session.execute(statement.encode())
        # A commit of another's writes out the log up to here.
        site.at_publisher("SELECT pg_logical_emit_message(true, 'test', '')")
        yield session
        session.rollback()


@pytest.mark.parametrize("server", ["postgres", "debian_postgres"])
def test_a_large_transaction_is_found_by_its_first_changes(site_at: SiteAt, server: str, looks: list[Any]) -> None:
    site = site_at(server)
    site.at_publisher(f"INSERT INTO t {_MUCH}")
    assert _is_there_any(site)
    (look,) = looks
    assert 0 < look.messages < _ROWS
    assert len(read_commands(site).commands) == _ROWS


@pytest.mark.parametrize("server", ["postgres", "debian_postgres"])
def test_one_that_is_not_committed_is_not_there_yet(site_at: SiteAt, server: str) -> None:
    site = site_at(server)
    with _open_transaction(site, f"INSERT INTO t {_MUCH}") as session:
        assert not _is_there_any(site)
        site.at_publisher("INSERT INTO t VALUES (-1, 'another')")
        assert _is_there_any(site)
        assert len(read_commands(site).commands) == 1
        assert not _is_there_any(site)
        session.commit()
    assert _is_there_any(site)


def test_one_that_is_rolled_back_never_is(site_at: SiteAt) -> None:
    site = site_at("postgres")
    with _open_transaction(site, f"INSERT INTO t {_MUCH}"):
        pass
    assert not _is_there_any(site)


def test_one_of_other_tables_hides_nothing(site_at: SiteAt) -> None:
    site = site_at("postgres")
    site.at_publisher(f"INSERT INTO other {_MUCH}")
    assert not _is_there_any(site)
    site.at_publisher("INSERT INTO t VALUES (1, 'x')")
    assert _is_there_any(site)


_OTHERS_MESSAGES = [
    "SELECT pg_logical_emit_message(false, 'outbox', 'not transactional') FROM generate_series(1, 1100)",
    "SELECT pg_logical_emit_message(true, 'outbox', 'transactional')",
    "SELECT pg_logical_emit_message(true, 'tranrepl.schemata', 'tranrepl.schema')",
    "SELECT pg_logical_emit_message(false, 'outbox', 'the last one')",
]


@pytest.mark.parametrize("server", ["postgres", "debian_postgres"])
def test_messages_of_other_programs_are_passed_over(site_at: SiteAt, server: str, looks: list[Any]) -> None:
    site = site_at(server)
    for _ in range(3):
        site.at_publisher(*_OTHERS_MESSAGES)
    request = LogReaderRequest(publication=site.topology.publication)
    assert run_without_spark(request, site.topology) is not None
    # Not one by one.
    assert len(looks) < 10
    site.at_publisher(*_OTHERS_MESSAGES, "INSERT INTO t VALUES (1, 'x')")
    assert run_without_spark(request, site.topology) is None


@pytest.mark.parametrize("prefix", ["tranrepl.schema", "tranrepl.script"])
def test_a_message_of_ours_counts_as_a_change(site_at: SiteAt, prefix: str) -> None:
    site = site_at("postgres")
    site.at_publisher(f"SELECT pg_logical_emit_message(true, '{prefix}', '')")
    assert _is_there_any(site)


def test_a_message_of_ours_is_found_within_a_large_transaction(site_at: SiteAt, looks: list[Any]) -> None:
    site = site_at("postgres")
    site.at_publisher(
        "BEGIN", "SELECT pg_logical_emit_message(true, 'tranrepl.schema', '')", f"INSERT INTO other {_MUCH}", "COMMIT"
    )
    assert _is_there_any(site)
    assert looks[0].streamed is not None
    assert len(looks) == 1


_LONG_LOG = "SELECT pg_logical_emit_message(false, 'test', repeat('x', 1000000)) FROM generate_series(1, 40)"


def _before_confirmed(site: Site) -> int:
    """Return the bytes of log that each reading of the slot goes through before it comes to what is new."""
    ((distance,),) = execute(
        site.databases.publisher,
        "SELECT (confirmed_flush_lsn - restart_lsn)::bigint FROM pg_replication_slots "
        "WHERE database = current_database()",
    )
    return int(distance)


def _read_a_long_log(site: Site) -> None:
    """Read a long log that is read again: an advance moves `restart_lsn` no further than its first checkpoint."""
    site.at_publisher("INSERT INTO t VALUES (0, 'w')", "CHECKPOINT", _LONG_LOG)
    site.at_publisher("CHECKPOINT", "INSERT INTO t VALUES (1, 'x')")
    assert len(read_commands(site).commands) == 2
    assert _before_confirmed(site) > 40_000_000


@pytest.mark.parametrize("server", ["postgres", "debian_postgres"])
def test_the_log_of_the_run_before_is_passed_over_before_any_is_decoded(site_at: SiteAt, server: str) -> None:
    site = site_at(server)
    _read_a_long_log(site)
    with _opened(site):
        assert _before_confirmed(site) < 1_000_000
    site.at_publisher("INSERT INTO t VALUES (2, 'y')")
    assert _is_there_any(site)
    assert read_commands(site).texts() == ["{CALL [sp_MSins_publict] (2,'y')}"]


def test_what_takes_too_long_to_pass_over_is_decoded(site_at: SiteAt, monkeypatch: pytest.MonkeyPatch) -> None:
    site = site_at("postgres")
    _read_a_long_log(site)
    monkeypatch.setattr(slots, "_SECONDS", 0.001)
    assert not _is_there_any(site)
    site.at_publisher("INSERT INTO t VALUES (2, 'y')")
    assert _is_there_any(site)
    assert len(read_commands(site).commands) == 1


@pytest.mark.parametrize("server", ["postgres", "debian_postgres"])
def test_what_an_open_transaction_needs_is_not_passed_over(site_at: SiteAt, server: str) -> None:
    site = site_at(server)
    with _open_transaction(site, "INSERT INTO t VALUES (2, 'y')") as session:
        _read_a_long_log(site)
        assert not _is_there_any(site)
        assert _before_confirmed(site) > 40_000_000
        session.commit()
    assert len(read_commands(site).commands) == 1


@pytest.mark.parametrize("near", [3, 2**31, 2**32 - 1, 2**32, 2**33 + 7])
@pytest.mark.parametrize("distance", [-(2**31), -5, 0, 4, 2**31 - 1])
def test_an_id_is_that_of_its_time(near: int, distance: int) -> None:
    assert message_secret.whole_xid((near + distance) % 2**32, near) == near + distance
