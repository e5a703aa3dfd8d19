"""`tranrepl run FILE --continuous` as a process of its own, and a server of its own for each of its three databases."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import yaml

from support.databases import Databases, connection_environment
from support.embedded_postgres import PostgresServer, ServerSettings
from support.shell import COMMAND
from support.site import Site


def written(site: Site, folder: Path, **changes: object) -> Path:
    """Write the site's publication to a file; `changes` replace whole keys."""
    path = folder / "purchasing.yaml"
    path.write_text(yaml.safe_dump({**site.publication.model_dump(mode="json"), **changes}), encoding="utf-8")
    return path


def start_continuously(site: Site, file: Path, output: IO[bytes]) -> subprocess.Popen[bytes]:
    """Start it. What it says goes to `output`."""
    command = [str(COMMAND), "run", str(file), "--continuous", "--master", "local[1]"]
    return start(command, connection_environment(site.connections.values()), output)


def start(command: Sequence[str], environment: Mapping[str, str], output: IO[bytes]) -> subprocess.Popen[bytes]:
    """Start a command with nothing of ours in its environment but what is given."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "TRANREPL"))}
    with _interruptible():
        return subprocess.Popen(
            command, env={**inherited, **environment}, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let processes that are started heed SIGINT, also where a shell has started the tests in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def running_continuously(site: Site, file: Path, output: IO[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """Start it, and kill it at the end where it still runs."""
    process = start_continuously(site, file, output)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


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
