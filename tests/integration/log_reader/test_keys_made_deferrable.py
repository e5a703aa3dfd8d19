"""Keys that become DEFERRABLE, or stop being so, between or within the transactions that are read at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import DatabasesFactory
from support.in_process import replicate_stored
from support.site import Site
from tranrepl.publisher.postgres import log_messages, log_range, whole_transactions

_DEFERRABLE = "ALTER TABLE held ADD CONSTRAINT later UNIQUE (place) DEFERRABLE"
_AT_ONCE = "ALTER TABLE held DROP CONSTRAINT later"
_SWAP = "SET CONSTRAINTS ALL DEFERRED; UPDATE held SET place = 301 - id"
_MANY = "INSERT INTO free SELECT n, 'row ' || n FROM generate_series({0}, {0} + 4000) n"
_SERIAL = {"name": "reporting", "connection": "subscriber", "apply": "serial"}


@pytest.fixture
def site(databases: DatabasesFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """Return a table whose places are unique at the Subscriber, always; buffers hold some hundred rows."""
    monkeypatch.setattr(log_messages, "FETCH_BYTES", 10_000)
    monkeypatch.setattr(log_range, "HELD_BYTES", 20_000)
    monkeypatch.setattr(whole_transactions, "MOST_HELD_BYTES", 100_000)
    site = Site(databases(), tmp_path / "store", ["public.held", "public.free"], None, [_SERIAL], replicate_ddl=True)
    site.at_publisher(
        "CREATE TABLE held (id integer PRIMARY KEY, place integer)",
        "CREATE TABLE free (id integer PRIMARY KEY, note text)",
    )
    site.set_up()
    site.at_publisher("INSERT INTO held SELECT n, n FROM generate_series(1, 300) n")
    replicate_stored(site)
    site.at_subscriber("ALTER TABLE held ADD UNIQUE (place)")
    return site


def _in_one(*statements: str) -> str:
    return f"BEGIN; {'; '.join(statements)}; COMMIT"


def test_a_key_made_deferrable_before_a_large_transaction_is_held(site: Site) -> None:
    site.at_publisher(_DEFERRABLE, _in_one(_MANY.format(1), _SWAP, _MANY.format(9000)))
    replicate_stored(site)
    assert site.differences() == []


def test_a_key_made_deferrable_in_a_large_transaction_is_held(site: Site) -> None:
    site.at_publisher(_in_one(_MANY.format(1), _DEFERRABLE, _SWAP, _MANY.format(9000)))
    replicate_stored(site)
    assert site.differences() == []


def test_a_key_deferrable_no_more_is_not_held(site: Site) -> None:
    site.at_publisher(_DEFERRABLE)
    replicate_stored(site)
    site.at_publisher(_AT_ONCE, "INSERT INTO held SELECT n, n FROM generate_series(1000, 9000) n")
    replicate_stored(site)
    assert site.differences() == []
