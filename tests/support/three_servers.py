"""A publication's three databases, each at a server of its own that can be stopped or killed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from support.databases import Databases
from support.embedded_postgres import PostgresServer, ServerSettings


@dataclass(frozen=True, slots=True)
class ThreeServers:
    publisher: PostgresServer
    subscriber: PostgresServer
    distribution: PostgresServer

    @property
    def databases(self) -> Databases:
        return Databases(
            self.publisher.connection("publisher"),
            self.subscriber.connection("subscriber"),
            self.distribution.connection("distribution"),
        )

    @property
    def all(self) -> list[PostgresServer]:
        return [self.publisher, self.subscriber, self.distribution]


@contextmanager
def three_servers(folder: Path) -> Iterator[ThreeServers]:
    """Start them, with empty databases."""
    with ExitStack() as stack:
        started = []
        for role in ("publisher", "subscriber", "distribution"):
            server = stack.enter_context(PostgresServer(ServerSettings(folder / role, fsync=False)))
            server.make_logins_cheap()
            server.create_database(role)
            started.append(server)
        yield ThreeServers(*started)
