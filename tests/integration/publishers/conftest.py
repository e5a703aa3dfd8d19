"""A Publisher of each kind, new for every test."""

from __future__ import annotations

import pytest

from conftest import DatabaseFactory
from support.publishers import PublisherSite, postgres_under_test

KINDS = ("postgres",)


@pytest.fixture(params=KINDS)
def site(request: pytest.FixtureRequest, database: DatabaseFactory) -> PublisherSite:
    """Every database that a Publisher may be in."""
    match request.param:
        case "postgres":
            return PublisherSite(postgres_under_test(database("publisher")))
        case kind:
            raise ValueError(f"{kind}: how does a test get a database of it?")
