"""Sessions of the distribution database that the server has ended between two transactions."""

from __future__ import annotations

import pytest

from conftest import DatabaseFactory
from support.databases import migrated_template
from support.embedded_postgres import PostgresServer
from tranrepl.distributor.database import DistributionDatabase, connection

pytestmark = pytest.mark.new_sessions

_END = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = %s"


@pytest.mark.parametrize("asked_after", [connection._ASKED_AFTER_SECONDS, -1.0])
def test_a_transaction_after_that_has_another_session(
    asked_after: float, database: DatabaseFactory, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_ASKED_AFTER_SECONDS", asked_after)
    with DistributionDatabase(database("distribution", template=migrated_template)) as distribution:
        first = distribution.distribution_id()
        assert distribution.distribution_id() == first
        with postgres.connect() as session:
            assert session.execute(_END, [distribution.name]).fetchall() == [(True,)]
        assert distribution.distribution_id() == first
        with distribution.transaction():
            pass
