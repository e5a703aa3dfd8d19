"""The verb metrics."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import Metric
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.registry import Collector

from tranrepl.admin.metrics import metric_families, usable_files
from tranrepl.admin.status import PublicationStatus
from tranrepl.cli.app import app
from tranrepl.cli.output import err, failing_clearly, print_error, remember_file
from tranrepl.cli.status import Answer, Files, ask_status, settings_files
from tranrepl.errors import ConfigurationError, ReplicationError


@app.command(epilog="Example: [bold]tranrepl metrics dags/publications --listen 127.0.0.1:9187[/]")
def metrics(
    files: Files,
    listen: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Answer HTTP requests there until Ctrl-C.", show_default=False),
    ] = None,
) -> None:
    """Give what status shows as OpenMetrics, for Prometheus and its like.

    Prints them once; a file that cannot be used ends with exit status 1. With
    --listen, each request queries the servers and reads the files and folders
    again. tranrepl_settings_file_usable is 0 for a file that cannot be used.
    There is no log-in: listen on loopback, or behind a proxy that has one.
    """
    with failing_clearly():
        settings_files(files)
        if listen is not None:
            _serve(files, *_address(listen))
            return
    measured = _Measured(files)
    sys.stdout.write(_text(measured))
    for path, found in measured.answers.items():
        if isinstance(found, ReplicationError):
            remember_file(path)
            print_error(found)
    raise typer.Exit(any(isinstance(it, ReplicationError) for it in measured.answers.values()))


@dataclass(eq=False)
class _Measured(Collector):
    """Asks for the status of the files whenever metrics are collected."""

    files: Sequence[Path]

    def __post_init__(self) -> None:
        self.answers: dict[Path, Answer] = {}

    def collect(self) -> Iterable[Metric]:
        answers = ask_status(settings_files(self.files))
        self.answers = answers
        known = {path: it for path, it in answers.items() if isinstance(it, PublicationStatus)}
        return [*metric_families(known.values()), usable_files((str(path), path in known) for path in answers)]


def _registry(measured: _Measured) -> CollectorRegistry:
    # Without `auto_describe` nothing is asked for when it is registered.
    registry = CollectorRegistry(auto_describe=False)
    registry.register(measured)
    return registry


def _text(measured: _Measured) -> str:
    text: bytes = generate_latest(_registry(measured))  # type: ignore[no-untyped-call]
    return text.decode()


def _address(listen: str) -> tuple[str, int]:
    host, separator, port = listen.rpartition(":")
    if not separator or not host or not port.isdecimal() or int(port) > 65535:
        raise ConfigurationError(f"--listen {listen}: no HOST:PORT", remedy="as in --listen 127.0.0.1:9187")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _serve(files: Sequence[Path], host: str, port: int) -> None:
    try:
        server, thread = start_http_server(port, host, _registry(_Measured(files)))
    except OSError as error:
        raise ConfigurationError(
            f"cannot listen on {host}:{port}: {error.strerror}", remedy="choose another host or port"
        ) from error
    stopped = threading.Event()

    def stop(_signal: int, _frame: FrameType | None) -> None:
        stopped.set()

    for it in (signal.SIGINT, signal.SIGTERM):
        signal.signal(it, stop)
    err.print(f"metrics on http://{host}:{server.server_port}/metrics, until Ctrl-C", highlight=False, markup=False)
    stopped.wait()
    server.shutdown()
    server.server_close()
    thread.join()
