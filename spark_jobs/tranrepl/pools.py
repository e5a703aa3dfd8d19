"""Airflow's pools: one slot for each subscription, so that of all its runs one delivers at a time.

Airflow is spoken to by its own command, where it is installed beside us.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tranrepl.errors import ConfigurationError
from tranrepl.settings import Publication

PREFIX = "replication_"
DESCRIPTION = "One delivery at a time to this subscription"
_NO_AIRFLOW = "no Airflow with a database is set up in this environment"
_SCHEDULER_CREATES = "where its scheduler runs, it creates those that are missing"
_SECONDS = 120


def pool_name(publication: str, subscription: str) -> str:
    return f"{PREFIX}{publication}_{subscription}"


def missing_pools(publication: Publication) -> list[str]:
    """Return the names of the pools that Airflow lacks.

    Raises ConfigurationError where it cannot be asked.
    """
    wanted = _wanted(publication)
    command = _airflow(os.environ)
    if command is None:
        raise ConfigurationError(f"Airflow's pools were not looked for: {_NO_AIRFLOW}", remedy=_SCHEDULER_CREATES)
    try:
        return _missing(command, wanted)
    except ConfigurationError as error:
        why = error.message.partition(": ")[2]
        raise ConfigurationError(f"Airflow's pools were not looked for: {why}", remedy=_SCHEDULER_CREATES) from None


def _wanted(publication: Publication) -> list[str]:
    return [pool_name(publication.publication, it.name) for it in publication.subscriptions]


def _missing(command: str, wanted: Sequence[str]) -> list[str]:
    listed = _run([command, "pools", "list", "--output", "json"], wanted)
    known = {pool["pool"] for pool in json.loads(listed[listed.index("[{") :])}
    return [name for name in wanted if name not in known]


def set_up_pools(publication: Publication, say: Callable[[str], None]) -> None:
    """Create the pools that Airflow lacks; others keep the slots that they have.

    Raises ConfigurationError where this environment has no Airflow with a database.
    """
    wanted = _wanted(publication)
    command = _airflow(os.environ)
    if command is None:
        raise _not_created(wanted, _NO_AIRFLOW)
    missing = _missing(command, wanted)
    if not missing:
        return
    pools = {name: {"slots": 1, "description": DESCRIPTION, "include_deferred": False} for name in missing}
    with tempfile.TemporaryDirectory(prefix="tranrepl-") as folder:
        file = Path(folder, "pools.json")
        file.write_text(json.dumps(pools), encoding="utf-8")
        _run([command, "pools", "import", str(file)], missing)
    for name in missing:
        say(f"created pool {name} in Airflow")


def _airflow(environment: Mapping[str, str]) -> str | None:
    """The command, where its database may be there. It is not just tried: it makes its home where there is none."""
    home = environment.get("AIRFLOW_HOME") or "~/airflow"
    told = any(name.startswith("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN") for name in environment)
    if not told and not Path(home).expanduser().is_dir():
        return None
    beside_python = Path(sys.executable).with_name("airflow")
    return str(beside_python) if beside_python.is_file() else shutil.which("airflow")


def _run(command: list[str], pools: Sequence[str]) -> str:
    try:
        process = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _not_created(pools, f"`airflow pools` failed: {type(error).__name__}") from None
    if process.returncode != 0 or (command[2] == "list" and "[{" not in process.stdout):
        raise _not_created(pools, f"`airflow pools` failed with status {process.returncode}: is its database migrated?")
    return process.stdout


def _not_created(pools: Sequence[str], why: str) -> ConfigurationError:
    return ConfigurationError(
        f"Airflow's pools were not created: {why}",
        remedy="where Airflow's scheduler runs: set up again there, or "
        + "; ".join(f"airflow pools set {name} 1 '{DESCRIPTION}'" for name in pools),
    )
