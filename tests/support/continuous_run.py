"""`tranrepl run FILE --continuous` as a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import yaml

from support.databases import connection_environment
from support.shell import COMMAND
from support.site import Site


def written(site: Site, folder: Path, **changes: object) -> Path:
    """Write the site's publication to a file; `changes` replace whole keys."""
    path = folder / "purchasing.yaml"
    path.write_text(yaml.safe_dump({**site.publication.model_dump(mode="json"), **changes}), encoding="utf-8")
    return path


def start_continuously(site: Site, file: Path, output: IO[bytes]) -> subprocess.Popen[bytes]:
    """Start it. What it says goes to `output`."""
    environment: Mapping[str, str] = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "TRANREPL"))},
        **connection_environment(site.connections.values()),
    }
    with _interruptible():
        return subprocess.Popen(
            [str(COMMAND), "run", str(file), "--continuous", "--master", "local[1]"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
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
