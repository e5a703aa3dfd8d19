"""The status of several publications, asked for at once."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated

import typer

from tranrepl.admin.status import PublicationStatus, status
from tranrepl.cli.arguments import load
from tranrepl.cli.completion import complete_file
from tranrepl.errors import ConfigurationError, ReplicationError

_AT_ONCE = 8
"""Publications that are looked at at the same time."""

Files = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE",
        help="Settings files of publications, or folders of them (*.yaml).",
        show_default=False,
        autocompletion=complete_file,
    ),
]
Answer = PublicationStatus | ReplicationError


def settings_files(given: Sequence[Path]) -> list[Path]:
    """Return the files, and for a folder those that Airflow makes DAGs of. Raises ConfigurationError for an empty
    folder."""
    found: dict[Path, None] = {}
    for path in given:
        inside = sorted(path.glob("*.yaml")) if path.is_dir() else [path]
        if not inside:
            raise ConfigurationError(f"{path}: no settings file (*.yaml) is in this folder")
        found |= dict.fromkeys(inside)
    return list(found)


def ask_status(paths: Sequence[Path]) -> dict[Path, Answer]:
    """Return each file's status, or why there is none."""
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        return dict(zip(paths, threads.map(_ask, paths), strict=True))


def _ask(path: Path) -> Answer:
    try:
        return status(load(path), settings_file=str(path))
    except ReplicationError as error:
        return error
