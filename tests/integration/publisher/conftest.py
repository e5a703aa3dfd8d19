"""A MariaDB server of a file's own, to publish from."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.mariadb import MariaDbServer
from support.publishers import publishing_mariadb


@pytest.fixture(
    scope="module",
    params=["mariadb", *(pytest.param(it, marks=pytest.mark.slow) for it in ("mariadb-11.8", "mysql-9.7"))],
)
def mariadb_shop(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDbServer]:
    with publishing_mariadb(tmp_path_factory.mktemp("mariadb"), request.param) as server:
        server.execute("CREATE DATABASE shop")
        yield server
