"""A Publisher of each kind, new for every test."""

from __future__ import annotations

import pytest

from conftest import DatabaseFactory
from support.embedded_postgres import PostgresServer
from support.mariadb import MariaDbServer
from support.publishers import (
    PublisherSite,
    mariadb_under_test,
    new_mariadb_database,
    partitioned_under_test,
    postgres_under_test,
)

KINDS = (
    *("postgres", "partitioned", "mariadb"),
    *(pytest.param(it, marks=pytest.mark.slow) for it in ("mariadb-11.8", "mysql-9.7")),
)
"""`partitioned`: PostgreSQL 15, where each table is partitioned."""


@pytest.fixture(params=KINDS)
def site(request: pytest.FixtureRequest, database: DatabaseFactory) -> PublisherSite:
    """Return a site for every kind of database that a Publisher may be in."""
    match request.param:
        case "postgres":
            return PublisherSite(postgres_under_test(database("publisher")))
        case "partitioned":
            server: PostgresServer = request.getfixturevalue("debian_postgres")
            return PublisherSite(partitioned_under_test(database("publisher", server)))
        case name:
            home: MariaDbServer = request.getfixturevalue("publishing")(name)
            return PublisherSite(mariadb_under_test(home, new_mariadb_database(home)))
