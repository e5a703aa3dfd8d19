"""What the shell offers for a word that is not finished: Bash asks, as it does for whoever presses Tab."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.shell import COMMAND, publication_file

# Bash hands over the words of the line and the place of the unfinished one.
_ASK = """
eval "$(tranrepl --show-completion bash)"
ask() {
    COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
    _tranrepl_completion tranrepl
    local IFS='|'; echo "${COMPREPLY[*]}"
}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    publications = tmp_path / "dags" / "publications"
    publications.mkdir(parents=True)
    subscriptions = [{"name": name, "connection": "subscriber"} for name in ("reporting", "archive")]
    publication_file(publications, [{"source": "sales.customer"}, "sales.order"], subscriptions=subscriptions)
    (tmp_path / "dags" / "replication.py").touch()
    (tmp_path / "broken.yaml").write_text("a: [")
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "hidden.yaml").touch()
    return tmp_path


def _offered(folder: Path, *lines: str) -> list[list[str]]:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("there is no Bash")
    asked = subprocess.run(
        [bash, "--norc", "-c", _ASK + "\n".join(f"ask tranrepl {line}" for line in lines)],
        env={**os.environ, "PATH": f"{COMMAND.parent}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        cwd=folder,
        check=True,
    )
    assert asked.stderr == ""
    return [line.split("|") if line else [] for line in asked.stdout.splitlines()]


def test_bash_is_offered_verbs_files_subscriptions_and_articles(folder: Path) -> None:
    file = "dags/publications/purchasing.yaml"
    assert _offered(
        folder,
        "rei",
        'run ""',
        "run dags/pub",
        f'run {file} -s ""',
        'run -s ""',
        f"snapshot {file} --article sales.",
        "snapshot broken.yaml --article s",
        "snapshot absent.yaml --article s",
    ) == [
        ["reinitialize"],
        ["broken.yaml", file],
        [file],
        ["reporting", "archive"],
        [],
        ["sales.customer", "sales.order"],
        [],
        [],
    ]


_LOADED = "import sys; from tranrepl.cli.command_line import main; main(); print('', *sys.modules, sep='\\n')"


@pytest.mark.parametrize(
    ("unfinished", "offered"),
    [
        ("dags/pub", "dags/publications/purchasing.yaml"),
        ("dags/publications/purchasing.yaml\n-s\na", "archive"),
        ("dags/publications/purchasing.yaml\n--article\nsales.c", "sales.customer"),
    ],
)
def test_what_the_file_says_is_offered_without_the_verbs_packages(folder: Path, unfinished: str, offered: str) -> None:
    words = f"tranrepl\nrun\n{unfinished}"
    line = {"_TRANREPL_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count("\n"))}
    told = subprocess.run(
        [sys.executable, "-c", _LOADED],
        env={**os.environ, **line},
        capture_output=True,
        text=True,
        cwd=folder,
        check=True,
    )
    answer, *loaded = told.stdout.splitlines()
    assert answer == offered
    assert not {"tranrepl.cli.verbs", "typer", "sqlalchemy", "pyarrow", "pyspark"} & set(loaded)
