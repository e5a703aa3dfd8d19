"""The `tranrepl` command as a person runs it, in a process of its own or in this one, with connections of its own."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.testing
import yaml
from typer.main import get_command

from support.processes import NO_AIRFLOW
from tranrepl.cli.verbs import app
from tranrepl.connections import from_environment
from tranrepl.distribution import job as distribution_job
from tranrepl.jobs.requests import DistributionRequest, LogReaderRequest, SnapshotRequest, ValidationRequest
from tranrepl.jobs.results import JobResult
from tranrepl.log_reader import job as log_reader_job
from tranrepl.snapshot import job as snapshot_job
from tranrepl.spark.application import SparkApplication
from tranrepl.validation import job as validation_job

COMMAND = Path(sys.executable).parent / "tranrepl"
_NO_AIRFLOW = {"AIRFLOW_HOME": NO_AIRFLOW}

# To make the commands from their functions' signatures takes longer than most verbs.
typer.testing._get_command = cache(get_command)  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a person sees."""

    status: int
    out: str
    err: str

    @property
    def errors(self) -> list[str]:
        """Each error's text, with the line that says what to do."""
        if not self.err.startswith("error: "):
            return []
        return self.err.removesuffix("\n").removeprefix("error: ").split("\nerror: ")


def tranrepl(
    *arguments: str | Path, environment: Mapping[str, str], cwd: Path | None = None, timeout: float = 600
) -> Outcome:
    """Run it with nothing of ours in its environment but what is given."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "TRANREPL"))}
    process = subprocess.run(
        [str(COMMAND), *map(str, arguments)],
        env={**inherited, **_NO_AIRFLOW, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        timeout=timeout,
    )
    return Outcome(process.returncode, process.stdout, process.stderr)


@contextmanager
def in_a_terminal(
    *arguments: str | Path, environment: Mapping[str, str], columns: int = 100, answer: str = ""
) -> Iterator[Iterator[str]]:
    """Run `tranrepl` in a terminal of its own, where `answer` is typed. Yields what it shows, as it comes, with the
    terminal's control codes.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "TRANREPL"))}
    process = subprocess.Popen(
        [str(COMMAND), *map(str, arguments)],
        env={**inherited, "TERM": "xterm-256color", **environment},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    os.write(ours, answer.encode())
    try:
        yield _shown(ours)
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def _shown(terminal: int) -> Iterator[str]:
    # Linux says EIO where the other end is closed.
    with suppress(OSError):
        while some := os.read(terminal, 65_536):
            yield some.decode(errors="replace")


def typed(*arguments: str | Path, environment: Mapping[str, str]) -> Outcome:
    """Run `tranrepl` within this process: where many are run, starting Python is what takes the time."""
    ours = {name: None for name in os.environ if name.startswith(("AIRFLOW", "TRANREPL"))}
    result = typer.testing.CliRunner().invoke(
        app, list(map(str, arguments)), env={**ours, **_NO_AIRFLOW, **environment}
    )
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Outcome(result.exit_code, result.stdout, result.stderr)


def publication_file(folder: Path, articles: list[Any], **changes: Any) -> Path:
    """Write a publication's file; `changes` replace whole keys."""
    document = {
        "publication": "purchasing",
        "publisher": {"connection": "publisher"},
        "distributor": {"connection": "distribution", "store": str(folder / "store")},
        "articles": articles,
        "subscriptions": [{"name": "reporting", "connection": "subscriber", "sync_type": "replication_support_only"}],
        **changes,
    }
    path = folder / "purchasing.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    return path


_JOBS: dict[type, Any] = {
    LogReaderRequest: log_reader_job,
    SnapshotRequest: snapshot_job,
    DistributionRequest: distribution_job,
    ValidationRequest: validation_job,
}


def run_submitted_jobs_here(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the shell's verbs run their jobs on this Spark; connections are read from the environment, as a job's are."""

    def submit(request: Any, master: str) -> JobResult:
        connections = {it: from_environment(it) for it in request.connection_ids()}
        result: JobResult = _JOBS[type(request)].run(spark, request, connections)
        return result

    monkeypatch.setattr("tranrepl.cli.agents.submit", submit)
    monkeypatch.setattr(SparkApplication, "submit", lambda _application, request: submit(request, ""))
    monkeypatch.setattr("tranrepl.cli.validate.submit", submit)
