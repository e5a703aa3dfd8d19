"""Settings that a DBA gave our roles, at each end, stop nothing: our sessions set what they need."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from conftest import DatabasesFactory
from support.databases import Databases
from support.equality import differing_rows
from support.every_type import settable
from support.in_process import deliver_stored, read_log_into_store
from support.least_rights import with_login
from support.site import Site, execute
from support.spark_here import SparkHere
from tranrepl.admin.cleanup import clean_up
from tranrepl.connections import Connection
from tranrepl.postgres.session import connect

pytestmark = pytest.mark.new_sessions

_LIMIT = "300ms"
_SETTINGS = {
    "statement_timeout": _LIMIT,
    "transaction_timeout": _LIMIT,
    "lock_timeout": _LIMIT,
    "idle_in_transaction_session_timeout": _LIMIT,
    "idle_session_timeout": _LIMIT,
    "default_transaction_isolation": "serializable",
    "default_transaction_read_only": "on",
    "default_transaction_deferrable": "on",
    "client_encoding": "LATIN1",
    "DateStyle": "SQL, DMY",
    "IntervalStyle": "sql_standard",
    "TimeZone": "Asia/Tokyo",
    "bytea_output": "escape",
    "extra_float_digits": "0",
    "xmloption": "document",
    "quote_all_identifiers": "on",
    "standard_conforming_strings": "off",
    "backslash_quote": "on",
    "escape_string_warning": "on",
    "array_nulls": "off",
    "row_security": "off",
    "synchronous_commit": "off",
    "plan_cache_mode": "force_custom_plan",
    "jit": "on",
    "client_min_messages": "error",
    "check_function_bodies": "off",
    "gin_fuzzy_search_limit": "1",
    "exit_on_error": "on",
    "search_path": "",
}
_LOCKED_SECONDS = 0.6
"""Longer than any of the limits."""
_TABLES = (
    "CREATE TYPE mood AS ENUM ('glad', 'sad')",
    (
        "CREATE TABLE vendor (id int PRIMARY KEY, name text, at timestamptz, ratio float8, span interval, "
        "picture bytea, numbers int[], mood mood, kind regclass, facts jsonb)"
    ),
    "CREATE TABLE line (vendor int, number int, price numeric(9, 2), PRIMARY KEY (vendor, number))",
)
_ROW = (
    "n, 'é€ ' || n, '2026-02-01 03:04:05+00'::timestamptz + n * interval '1 day', n / 3.0, "
    "n * interval '1 month 1 hour', '\\x00ff5c', ARRAY[n, NULL], 'sad', 'pg_class'::regclass, '{\"a\": 1}'"
)


@pytest.fixture
def owners(databases: DatabasesFactory) -> Databases:
    return databases()


@pytest.fixture
def roles(owners: Databases) -> Iterator[Mapping[str, Connection]]:
    """Yield a superuser for each end, whose settings are still the server's."""
    suffix = uuid4().hex[:8]
    ends = ("publisher", "subscriber", "distribution")
    for end in ends:
        execute(getattr(owners, end), f"CREATE ROLE {end}_{suffix} SUPERUSER LOGIN PASSWORD '{suffix}'")
    yield {end: with_login(getattr(owners, end), f"{end}_{suffix}", suffix) for end in ends}
    for end in ends:
        execute(getattr(owners, end), f"DROP OWNED BY {end}_{suffix}", f"DROP ROLE {end}_{suffix}")


def _give(owners: Databases, role: Connection, settings: Mapping[str, str]) -> None:
    for name, value in settable(owners.publisher, settings).items():
        execute(owners.publisher, f"ALTER ROLE {role.login} SET {name} = '{value}'")


@contextmanager
def _locked(owner: Connection, *tables: str) -> Iterator[None]:
    """Lock these tables against everybody else for a while."""
    session = psycopg.connect(**owner.libpq_parameters("test"))  # type: ignore[arg-type]
    session.execute(f"LOCK TABLE {', '.join(tables)} IN ACCESS EXCLUSIVE MODE".encode())

    def release() -> None:
        time.sleep(_LOCKED_SECONDS)
        session.close()

    releasing = threading.Thread(target=release)
    releasing.start()
    yield
    releasing.join()


def _site(
    owners: Databases, roles: Mapping[str, Connection], tmp_path: Path, subscription: Mapping[str, object]
) -> Site:
    """Return a site whose jobs log in as `roles`, the test itself as the owner."""
    site = Site(
        owners,
        tmp_path / "store",
        [{"source": "public.vendor", "filter": "ratio < 1e9"}, {"source": "public.line"}],
        SparkHere(),
        [{"name": "reporting", "connection": "subscriber", "sync_type": "automatic", **subscription}],
    )
    site.connections.update(roles)
    return site


_ENDS = ("publisher", "subscriber", "distribution")


@pytest.mark.parametrize("ends", [_ENDS, *(pytest.param((it,), marks=pytest.mark.slow) for it in _ENDS)], ids="+".join)
def test_settings_of_a_role_stop_nothing(
    owners: Databases, roles: Mapping[str, Connection], tmp_path: Path, ends: tuple[str, ...]
) -> None:
    for end in ends:
        _give(owners, roles[end], _SETTINGS)
    ways: list[Mapping[str, object]] = [{}]
    if ends == ("subscriber",):
        ways += [{"apply": "serial"}, {"subscription_streams": 2, "stream_assignment": "dependencies"}]
    first = _site(owners, roles, tmp_path, {})
    first.at_publisher(*_TABLES, f"INSERT INTO vendor SELECT {_ROW} FROM generate_series(1, 50) n")
    first.at_subscriber(_TABLES[0])
    with _locked(owners.publisher, "vendor"):
        first.set_up()
    with _locked(owners.publisher, "vendor"), _locked(owners.subscriber, "vendor"):
        first.take_snapshot()
    assert differing_rows(first) == {}
    for turn, way in enumerate(ways, 1):
        site = _site(owners, roles, tmp_path, way)
        # At the Publisher, more than can be read within the limits.
        _change(site, turn, 200_000 if "publisher" in ends else 2000)
        with _locked(owners.distribution, "mspublications", "msrepl_batches"):
            read_log_into_store(site).raise_error()
        with _locked(owners.subscriber, "line"):
            deliver_stored(site).raise_error()
        assert differing_rows(site) == {}
    with _locked(owners.publisher, "line"), _locked(owners.subscriber, "line"):
        first.validate().raise_error()
    with _locked(owners.distribution, "msrepl_batches"):
        assert clean_up(first.topology).batches == len(ways)


def _change(site: Site, turn: int, lines: int) -> None:
    site.at_publisher(
        f"INSERT INTO line SELECT {turn}, n, n / 7.0 FROM generate_series(1, {lines}) n",
        f"INSERT INTO vendor SELECT {_ROW} FROM generate_series({1000 * turn}, {1000 * turn + 20}) n",
        "UPDATE vendor SET picture = '\\x0001', numbers = '{NULL}' WHERE id % 3 = 0",
        f"UPDATE line SET price = -1 WHERE vendor = {turn} AND number % 100 = 0",
        f"DELETE FROM vendor WHERE id = {turn}",
    )


def test_a_session_begins_without_waiting_for_serializable_transactions(
    owners: Databases, roles: Mapping[str, Connection]
) -> None:
    _give(owners, roles["publisher"], _SETTINGS)
    execute(owners.publisher, "CREATE TABLE busy (id int)")
    with psycopg.connect(**owners.publisher.libpq_parameters("test")) as other:  # type: ignore[arg-type]
        other.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
        other.execute("INSERT INTO busy VALUES (1)")
        connect(roles["publisher"], "test").close()
