"""Random histories of DDL and DML, with jobs and kills among them: all ends are equal by content and by shape."""

from __future__ import annotations

import os
from collections.abc import Callable
from random import Random
from uuid import uuid4

import pytest

from support.databases import shared_databases
from support.embedded_postgres import PostgresServer
from support.history_player import player
from support.history_site import history_site
from support.mariadb import MariaDbServer
from support.mariadb_histories import mariadb_history_site, mariadb_player
from support.publishers import SERVERS
from support.schema_histories import random_history

EXAMPLES = int(os.environ.get("TRANREPL_FUZZ_EXAMPLES", "3"))
NAMES = os.environ.get("TRANREPL_FUZZ_PUBLISHERS", "mariadb mysql-9.7").split()
SEED = os.environ.get("TRANREPL_FUZZ_SEED", "9")


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("number", range(EXAMPLES))
def test_all_subscribers_are_equal_after_any_history(
    postgres: PostgresServer, mariadb: MariaDbServer, tmp_path_factory: pytest.TempPathFactory, number: int
) -> None:
    history = random_history(Random(f"{SEED} {number}"))
    schema = f"history_{uuid4().hex[:8]}"
    mariadb.execute(f"CREATE DATABASE {schema}")
    try:
        with shared_databases(postgres, schema) as ends:
            at = history_site(ends, tmp_path_factory.mktemp("history"), mariadb, schema, history.options)
            with player(at) as (played, session):
                try:
                    played.play(history)
                    differences = at.differences(session)
                    assert not differences, "\n".join(differences)
                except BaseException as error:
                    error.add_note("\n".join([str(history.options), *played.told]))
                    raise
    finally:
        mariadb.execute(f"DROP DATABASE {schema}")


@pytest.mark.slow
@pytest.mark.parametrize("name", [it for it in SERVERS if it in NAMES])
@pytest.mark.parametrize("number", range(EXAMPLES))
def test_all_subscribers_of_mariadb_are_equal_after_any_history(
    postgres: PostgresServer,
    mariadb: MariaDbServer,
    publishing: Callable[[str], MariaDbServer],
    tmp_path_factory: pytest.TempPathFactory,
    name: str,
    number: int,
) -> None:
    history = random_history(Random(f"{SEED} {number}"))
    schema, server = f"history_{uuid4().hex[:8]}", publishing(name)
    mariadb.execute(f"CREATE DATABASE {schema}_copy")
    try:
        with shared_databases(postgres, schema) as ends:
            folder = tmp_path_factory.mktemp("history")
            at = mariadb_history_site(ends, folder, server, mariadb, schema, history.options)
            with mariadb_player(at, server) as played:
                try:
                    played.play(history)
                    at.require_equal()
                except BaseException as error:
                    error.add_note("\n".join([str(history.options), *played.told]))
                    raise
    finally:
        mariadb.execute(f"DROP DATABASE {schema}_copy")
