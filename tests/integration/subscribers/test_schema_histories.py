"""Random histories of DDL and DML, with jobs and kills among them: all ends are equal by content and by shape."""

from __future__ import annotations

import os
from random import Random
from uuid import uuid4

import pytest

from support.databases import shared_databases
from support.embedded_postgres import PostgresServer
from support.history_player import player
from support.history_site import history_site
from support.mariadb import MariaDbServer
from support.schema_histories import random_history

EXAMPLES = int(os.environ.get("TRANREPL_FUZZ_EXAMPLES", "3"))
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
            with player(at) as played:
                try:
                    played.play(history)
                    differences = at.differences(played.writers[0].session)
                    assert not differences, "\n".join(differences)
                except BaseException as error:
                    error.add_note("\n".join([str(history.options), *played.told]))
                    raise
    finally:
        mariadb.execute(f"DROP DATABASE {schema}")
