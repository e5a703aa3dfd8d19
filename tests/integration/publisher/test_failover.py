"""The Publisher's server crashes under load and its standby is promoted, as how-to/publisher-failover.md says: a reader
that runs all the time goes on by itself, over one connection with both hosts."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import pytest

from conftest import DatabasesFactory
from support.checkout import CHECKOUT
from support.embedded_postgres import PostgresServer
from support.item_site import DATABASE, command, item_site, run
from support.processes import free_port, unprivileged
from support.server_copies import catch_up
from support.shell import run_submitted_jobs_here
from support.site import Site, execute
from support.spark_here import SparkHere
from tranrepl.connections import Connection, from_environment
from tranrepl.errors import ReplicationError, TransientError

pytestmark = pytest.mark.new_sessions

_PAGE = CHECKOUT / "docs" / "how-to" / "publisher-failover.md"
_BLOCK = re.compile(r"^```(?:sh|sql)\n(.*?)^```", re.DOTALL | re.MULTILINE)
_VARIABLE = "AIRFLOW_CONN_PUBLISHER"
_PATIENCE_SECONDS = 120.0
_WRITERS = 2
_IDS = 40
_ALL = "SELECT * FROM item ORDER BY id"


@dataclass(frozen=True)
class _Examples:
    """The page's blocks in their order."""

    base_backup: str
    at_standby: str
    at_publisher: str
    connection: str
    ready: str
    promotion: str


@pytest.fixture(scope="module")
def page() -> _Examples:
    return _Examples(*_BLOCK.findall(_PAGE.read_text(encoding="utf-8")))


@pytest.fixture
def site(own_server: PostgresServer, databases: DatabasesFactory, tmp_path: Path) -> Site:
    return item_site(own_server, databases(), tmp_path)


@pytest.fixture
def standby(
    page: _Examples, own_server: PostgresServer, site: Site, server_folder: Path, tmp_path: Path
) -> Iterator[PostgresServer]:
    with _base_backup(page.base_backup, own_server, server_folder / f"{tmp_path.name}_standby") as standby:
        execute(standby.connection(DATABASE), *_statements(page.at_standby, "standby"))
        site.at_publisher(*_statements(page.at_publisher, "Publisher"))
        catch_up(own_server, standby)
        yield standby


def _base_backup(command: str, primary: PostgresServer, home: Path) -> PostgresServer:
    home.mkdir()
    home.chmod(0o777)
    settings = replace(primary.settings, home=home)
    places = {
        "host=db1 user=replicator dbname=shop": f"host=127.0.0.1 port={primary.port} user=postgres dbname={DATABASE}",
        "/var/lib/postgresql/standby": str(settings.data),
        "pg_basebackup": str(settings.bindir / "pg_basebackup"),
    }
    arguments = [places.get(it, it) for it in shlex.split(command.replace("\\\n", " "))]
    password = primary.connection(DATABASE).password or ""
    subprocess.run(unprivileged(arguments), check=True, env={**os.environ, "PGPASSWORD": password})
    access = json.loads(primary.settings.access.read_text(encoding="utf-8"))
    settings.access.write_text(json.dumps({**access, "port": free_port()}), encoding="utf-8")
    return PostgresServer(settings)


def _statements(block: str, where: str) -> list[str]:
    first, _, statements = block.partition("\n")
    assert first == f"-- at the {where}"
    return statements.strip().removesuffix(";").split(";")


def test_a_crash_under_load_loses_nothing_and_the_reader_goes_on(
    page: _Examples,
    own_server: PostgresServer,
    standby: PostgresServer,
    site: Site,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    exported = _both_hosts(page, own_server, standby)
    both = _connection(exported)
    site.databases = replace(site.databases, publisher=both)
    site.connections["publisher"] = both
    with _load(both) as load, _reader(site) as reader:
        _until_ready(page, standby)
        _until_more(load, 50)
        own_server.kill()
        _until_more(reader.failed, 1)
        execute(standby.connection(DATABASE), *_statements(page.promotion, "standby"))
        _until_more(load, 50)
        _until_more(reader.succeeded, 2)
    spark: Any = SparkHere()
    run_submitted_jobs_here(spark, monkeypatch)
    for verb in ("run", "status"):
        outcome = command(site, tmp_path, verb, publisher=exported)
        assert outcome.status == 0, outcome
    assert site.at_subscriber(_ALL) == site.at_publisher(_ALL)
    assert set(load) <= {number for (number,) in site.at_subscriber("SELECT id FROM item")}
    assert [str(it) for it in reader.failed if not isinstance(it, TransientError)] == []


def test_a_uri_says_the_same_as_json(page: _Examples) -> None:
    (uri,) = re.findall(r"`(postgres://[^`]+)`", _PAGE.read_text(encoding="utf-8"))
    fields = _with_ports(_fields(page), "5432,5433")
    assert _connection(uri).libpq_parameters("test") == _connection(json.dumps(fields)).libpq_parameters("test")


def _both_hosts(page: _Examples, primary: PostgresServer, standby: PostgresServer) -> str:
    """Return what the page exports, with the two servers of this test for its own."""
    one = primary.connection(DATABASE)
    fields = _with_ports(_fields(page), f"{primary.port},{standby.port}")
    here = {"host": "127.0.0.1,127.0.0.1", "login": one.login, "password": one.password, "schema": DATABASE}
    return json.dumps({**fields, **here})


def _fields(page: _Examples) -> dict[str, Any]:
    name, _, text = page.connection.removeprefix("export ").partition("=")
    assert name == _VARIABLE
    fields: dict[str, Any] = json.loads("".join(shlex.split(text)))
    return fields


def _with_ports(fields: Mapping[str, Any], ports: str) -> dict[str, Any]:
    """As the page says where the servers' ports differ."""
    return {**fields, "port": None, "extra": {**fields["extra"], "port": ports}}


def _connection(value: str) -> Connection:
    return from_environment("publisher", {_VARIABLE: value})


@contextmanager
def _load(connection: Connection) -> Iterator[list[int]]:
    """Applications that insert, update and delete, several rows a transaction, and connect again when they are thrown
    out. Yields the rows whose insert was committed and which nobody deletes."""
    ended, committed = threading.Event(), list[int]()

    def write(writer: int) -> None:
        random, number = Random(writer), writer
        while not ended.is_set():
            with (
                suppress(psycopg.OperationalError),
                psycopg.connect(**connection.libpq_parameters("load")) as session,  # type: ignore[arg-type]
            ):
                while not ended.is_set():
                    number += _WRITERS
                    _write(session, random, 1000 + number, random.randrange(_IDS) * _WRITERS + writer)
                    committed.append(1000 + number)
            time.sleep(0.05)

    threads = [threading.Thread(target=write, args=[writer]) for writer in range(_WRITERS)]
    for it in threads:
        it.start()
    try:
        yield committed
    finally:
        ended.set()
        for it in threads:
            it.join()


def _write(session: psycopg.Connection[tuple[object, ...]], random: Random, new: int, own: int) -> None:
    """One transaction; `own` are ids that no other writer has."""
    session.execute("INSERT INTO item VALUES (%s, 'load')", [new])
    session.execute(
        "INSERT INTO item VALUES (%s, '') ON CONFLICT (id) DO UPDATE SET note = left(item.note || '.', 20)", [own]
    )
    if random.random() < 0.3:
        session.execute("DELETE FROM item WHERE id = %s", [own])
    session.commit()


@dataclass
class _Runs:
    failed: list[ReplicationError] = field(default_factory=list)
    succeeded: list[float] = field(default_factory=list)


@contextmanager
def _reader(site: Site) -> Iterator[_Runs]:
    """Run one job after the other, as a schedule starts them, while the block lasts."""
    ended, runs = threading.Event(), _Runs()

    def run_again() -> None:
        while not ended.wait(0.05):
            try:
                run(site)
                runs.succeeded.append(time.monotonic())
            except ReplicationError as error:
                runs.failed.append(error)

    thread = threading.Thread(target=run_again)
    thread.start()
    try:
        yield runs
    finally:
        ended.set()
        thread.join()


def _until_ready(page: _Examples, standby: PostgresServer) -> None:
    """Wait until the slot can be read after a promotion."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    (asked,) = _statements(page.ready, "standby")
    while not [ready for _, ready in execute(standby.connection(DATABASE), asked) if ready]:
        assert time.monotonic() < deadline, "the slot is not synchronised"
        time.sleep(0.2)


def _until_more(those: list[int] | list[float] | list[ReplicationError], more: int) -> None:
    deadline, wanted = time.monotonic() + _PATIENCE_SECONDS, len(those) + more
    while len(those) < wanted:
        assert time.monotonic() < deadline
        time.sleep(0.05)
