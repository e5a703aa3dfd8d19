"""`tranrepl init`: what it writes can be used, and nothing is overwritten."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tranrepl.cli import verbs as cli
from tranrepl.settings.loading import load_publication


def _init(folder: Path, *arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli.app, ["init", str(folder), *arguments])
    return result.exit_code, " ".join((result.stdout + result.stderr).split())


def test_a_dag_file_of_three_lines_and_a_publication_are_written(tmp_path: Path) -> None:
    status, said = _init(tmp_path, "--store", "/srv/commands: all # of them")
    written = tmp_path / "publications" / "shop.yaml"
    assert status == 0
    assert f"tranrepl check {written}" in said
    publication = load_publication(written)
    assert (publication.publication, publication.distributor.store) == ("shop", "/srv/commands: all # of them")
    lines = [it for it in (tmp_path / "replication.py").read_text().splitlines() if it and not it.startswith('"""')]
    assert lines == [
        "from pathlib import Path",
        "from tranrepl_airflow.dags import build_dags",
        'build_dags(Path(__file__).with_name("publications"))',
    ]


def test_a_second_publication_has_the_same_dag_file(tmp_path: Path) -> None:
    _init(tmp_path)
    status, said = _init(tmp_path, "--publication", "0123")
    assert status == 0
    assert "replication.py" not in said
    assert load_publication(tmp_path / "publications" / "0123.yaml").publication == "0123"


@pytest.mark.parametrize("there", ["replication.py", "publications/shop.yaml"])
def test_what_is_there_is_not_overwritten(tmp_path: Path, there: str) -> None:
    (tmp_path / "publications").mkdir()
    (tmp_path / there).write_text("mine")
    status, said = _init(tmp_path)
    assert status == 1
    assert "is there already; nothing was written" in said.replace("\n", "")
    assert [it.read_text() for it in tmp_path.rglob("*.*")] == ["mine"]


@pytest.mark.parametrize(
    ("folder", "name", "said"),
    [("absent", "shop", "there is no folder"), (".", "a/b", "'a/b' is no name of a publication")],
)
def test_where_nothing_can_be_written_the_way_is_told(tmp_path: Path, folder: str, name: str, said: str) -> None:
    status, told = _init(tmp_path / folder, "--publication", name)
    assert (status, list(tmp_path.iterdir())) == (1, [])
    assert said in told
