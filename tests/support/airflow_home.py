"""An Airflow of one's own: a folder, a database (SQLite by default), loopback and one environment's connections."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from support.databases import sqlalchemy_url
from support.processes import dying_with_owner
from tranrepl.connections import Connection

BIN = Path(sys.executable).parent

_COMMAND_SECONDS = 1200
_SPARK = {"conn_type": "spark", "host": "local[2]", "extra": {"deploy-mode": "client"}}

_LOGGED_ERROR = re.compile(r"^\S+ \[error +\] (.*?)\s*(?=^\d{4}-\d\d-\d\dT|\Z)", re.DOTALL | re.MULTILINE)
_TRACEBACK_FOLLOWS = "Task failed with exception"
"""Airflow's second entry of an error that the task has told in full."""

LineReader = Callable[[str], None]


def metadata_on(database: Connection) -> dict[str, str]:
    """Return the settings that keep Airflow's own tables in a PostgreSQL database.

    SQLite lets one write at a time. The driver is ours, for both of Airflow's connections; with `+psycopg2` and
    `+asyncpg`, which Airflow would take, two more packages were needed.
    """
    url = sqlalchemy_url(database).render_as_string(hide_password=False)
    return {"AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": url, "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_ASYNC": url}


def _ignore(line: str) -> None:
    """Ignore a line."""


class CommandError(Exception):
    """A command that ended with a status other than 0, with the errors it logged or the end of its output."""


@dataclass(frozen=True, slots=True)
class AirflowHome:
    """Where Airflow keeps its files, where it finds DAGs and plugins, and its further settings."""

    home: Path
    dags: Path
    plugins: Path
    connections: Mapping[str, str]
    """`AIRFLOW_CONN_<ID>` of the databases."""
    port: int = 8080
    settings: Mapping[str, str] = field(default_factory=dict)
    """Environment variables above all others."""

    @property
    def environment(self) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not _is_ours(name)}
        return {
            **inherited,
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "AIRFLOW_HOME": str(self.home),
            "AIRFLOW__CORE__DAGS_FOLDER": str(self.dags),
            "AIRFLOW__CORE__PLUGINS_FOLDER": str(self.plugins),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
            "AIRFLOW__CORE__PARALLELISM": "4",
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{self.port}/execution/",
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__PORT": str(self.port),
            "AIRFLOW__API__BASE_URL": f"http://127.0.0.1:{self.port}",
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{self.home}/airflow.db",
            "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps(_SPARK),
            # Spark listens where the machine's name leads, unless it is told.
            "SPARK_LOCAL_IP": "127.0.0.1",
            # The checkout's own code, whatever is installed.
            "PYTHONPATH": os.pathsep.join([str(self.plugins), str(self.plugins.with_name("spark_jobs"))]),
            **self.connections,
            **self.settings,
        }

    def shell_variables(self) -> dict[str, str]:
        """Return the variables by which `airflow` and `tranrepl` in another shell find this Airflow. Its ports are not
        among them: they are the servers' own.
        """
        ports = ("AIRFLOW__API__", "AIRFLOW__CORE__EXECUTION_API")
        return {
            name: value for name, value in self.environment.items() if _is_ours(name) and not name.startswith(ports)
        }

    def run(self, *arguments: str, log: Path, on_line: LineReader = _ignore) -> None:
        """Run one `airflow` command; what it prints goes to `log`, and line by line to `on_line`."""
        run_logged([str(BIN / "airflow"), *arguments], self.environment, log, on_line)


def run_logged(command: list[str], environment: Mapping[str, str], log: Path, on_line: LineReader = _ignore) -> None:
    """Run a command with its output in a file.

    Raises CommandError with the errors in the file, or its last lines.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        process = subprocess.Popen(
            dying_with_owner(command, signal.SIGTERM),
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        _follow(process, log, on_line)
    finally:
        process.terminate()
        status = process.wait()
    if status != 0:
        raise CommandError(_failure(command, status, log))


def _follow(process: subprocess.Popen[bytes], log: Path, on_line: LineReader) -> None:
    """Wait for the end, handing over each line as it comes."""
    deadline = time.monotonic() + _COMMAND_SECONDS
    with log.open(encoding="utf-8", errors="replace") as lines:
        while process.poll() is None and time.monotonic() < deadline:
            for line in lines:
                on_line(line)
            time.sleep(0.2)


def _failure(command: list[str], status: int, log: Path) -> str:
    name = " ".join([Path(command[0]).name, *command[1:]])
    text = log.read_text(encoding="utf-8", errors="replace")
    if errors := [it for it in _LOGGED_ERROR.findall(text) if not it.startswith(_TRACEBACK_FOLLOWS)]:
        told = "\n".join(dict.fromkeys(textwrap.shorten(line, 400) for it in errors[:3] for line in it.splitlines()))
        return f"{name}: exit status {status}; {log} has:\n{told}"
    return "\n".join([f"{name}: exit status {status}; the end of {log}:", *text.splitlines()[-25:]])


def _is_ours(name: str) -> bool:
    """Return whether a variable would make this Airflow another one."""
    return name.startswith(("AIRFLOW_", "AIRFLOW__", "_AIRFLOW")) or name == "PYTHONPATH"
