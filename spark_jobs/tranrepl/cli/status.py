"""The verb status."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from getpass import getuser
from pathlib import Path
from typing import Annotated

import typer

from tranrepl.admin.acknowledgement import acknowledge_errors
from tranrepl.admin.status import PublicationStatus, status as status_of
from tranrepl.cli.app import app
from tranrepl.cli.arguments import JsonOption, load
from tranrepl.cli.completion import complete_file
from tranrepl.cli.output import err, failing_clearly, out, print_error, print_json, remember_file
from tranrepl.cli.status_display import show_status
from tranrepl.errors import ConfigurationError, ReplicationError

SOMETHING_IS_WRONG = 2
_AT_ONCE = 8
"""Publications whose status is asked for at the same time."""

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
        return status_of(load(path), settings_file=str(path))
    except ReplicationError as error:
        return error


@app.command(epilog="Example: [bold]tranrepl status dags/publications[/]")
def status(
    files: Files,
    as_json: JsonOption = False,
    acknowledge: Annotated[
        bool, typer.Option("--acknowledge", help="Acknowledge the unresolved errors: they no longer count.")
    ] = False,
) -> None:
    """Show the state of the log reader and of every subscription.

    Shows also what is known while a server gives no answer.

    Exit status: 0 all is well; 1 a file cannot be used, or is not set up;
    2 something is wrong: a server is away, the log cannot be read on,
    an agent's last run failed or its last error is not resolved, an article
    is stopped, or a subscription is Expired, Failed, Rows differ,
    Performance critical, Expiring soon or Retrying failed command. A wrong
    option is 2 as well.
    """
    with failing_clearly():
        paths = settings_files(files)
        for path in paths if acknowledge else ():
            for done in acknowledge_errors(load(path), getuser()):
                err.print(done, highlight=False, markup=False)
    answers = ask_status(paths)
    single_file = len(files) == 1 and files[0] in answers
    if as_json:
        _print_json(answers, single_file=single_file)
    else:
        _show(answers)
    raise typer.Exit(max(_exit_status(it) for it in answers.values()))


def _show(answers: dict[Path, Answer]) -> None:
    for number, (path, found) in enumerate(answers.items()):
        if isinstance(found, PublicationStatus):
            if number:
                out.print()
            show_status(found)
            continue
        if len(answers) > 1:
            err.print(f"{path}:", highlight=False, markup=False)
        remember_file(path)
        print_error(found)


def _print_json(answers: dict[Path, Answer], *, single_file: bool) -> None:
    """Print one file's facts by themselves, and those of several files, or of a folder, in a list."""
    if not single_file:
        print_json([{"file": str(path), **_facts(found)} for path, found in answers.items()])
        return
    for path, found in answers.items():
        if isinstance(found, PublicationStatus):
            print_json(found.model_dump(mode="json"))
        else:
            remember_file(path)
            print_error(found)


def _facts(found: Answer) -> dict[str, object]:
    if isinstance(found, PublicationStatus):
        return found.model_dump(mode="json")
    return {"error": found.report.model_dump(mode="json")}


def _exit_status(found: Answer) -> int:
    if isinstance(found, PublicationStatus):
        return SOMETHING_IS_WRONG if found.wrong else 0
    return 1
