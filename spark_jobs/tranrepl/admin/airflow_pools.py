"""Airflow's pools: one slot for each subscription, so that of all its runs one delivers at a time.

The scheduler makes a pool that is missing when it starts a run (the plugin's listener). Teardown removes pools by
Airflow's own command, where it is installed beside us.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tranrepl.errors import ConfigurationError

PREFIX = "replication_"
DESCRIPTION = "One delivery at a time to this subscription"
_NO_AIRFLOW = "no Airflow with a database is set up in this environment"
_SECONDS = 120


def pool_name(publication: str, subscription: str) -> str:
    return f"{PREFIX}{publication}_{subscription}"


def find_pools(publication: str, subscriptions: Iterable[str]) -> list[str]:
    """Return the pools of these subscriptions that Airflow has. Raises ConfigurationError
    where this environment has no Airflow with a database."""
    wanted = [pool_name(publication, it) for it in subscriptions]
    with _explained(lambda why: _not_removed(wanted, why)):
        known = _known(_command())
    return [name for name in wanted if name in known]


def remove_pools(pools: Sequence[str]) -> None:
    """Delete these pools. Raises ConfigurationError where Airflow does not answer."""
    with _explained(lambda why: _not_removed(pools, why)):
        for name in pools:
            _run([_command(), "pools", "delete", name])


class _FailedError(Exception):
    """Why Airflow does not answer."""


@contextmanager
def _explained(error: Callable[[str], ConfigurationError]) -> Iterator[None]:
    try:
        yield
    except _FailedError as failure:
        raise error(str(failure)) from None


def _known(command: str) -> set[str]:
    listed = _run([command, "pools", "list", "--output", "json"])
    return {pool["pool"] for pool in json.loads(listed[listed.index("[{") :])}


def _command() -> str:
    command = airflow_command()
    if command is None:
        raise _FailedError(_NO_AIRFLOW)
    return command


def airflow_command(environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the path of the `airflow` command where its database may be there. It is not just tried: it makes its home
    where there is none."""
    home = environment.get("AIRFLOW_HOME") or "~/airflow"
    configured = any(name.startswith("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN") for name in environment)
    if not configured and not Path(home).expanduser().is_dir():
        return None
    beside_python = Path(sys.executable).with_name("airflow")
    return str(beside_python) if beside_python.is_file() else shutil.which("airflow")


def _run(command: list[str]) -> str:
    try:
        process = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _FailedError(f"`airflow pools` failed: {type(error).__name__}") from None
    if process.returncode != 0 or (command[2] == "list" and "[{" not in process.stdout):
        raise _FailedError(f"`airflow pools` failed with status {process.returncode}: is its database migrated?")
    return process.stdout


def _not_removed(pools: Sequence[str], why: str) -> ConfigurationError:
    return ConfigurationError(
        f"Airflow's pools are not removed: {why}",
        remedy="where Airflow's scheduler runs: " + "; ".join(f"airflow pools delete {name}" for name in pools),
    )
