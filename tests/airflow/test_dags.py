"""The DAGs of a folder, for a DAG file of the user's own."""

from __future__ import annotations

import gc
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from airflow.dag_processing.dagbag import DagBag

from support.checkout import CHECKOUT

if TYPE_CHECKING:
    from airflow.conftest import PublicationWriter

_SUFFIXES = ("", "_validate", "_reinitialize", "_setup", "_administer")
_FILES = ("validation.py", "reinitialization.py", "setup.py", "administration.py", "distribution_cleanup.py")
_CLEANUP = "distribution_cleanup"
ALL = {*(f"purchasing{it}" for it in _SUFFIXES), _CLEANUP}


@pytest.fixture
def folder(publications: Path, tmp_path: Path) -> Path:
    """Return a folder of publications that are not beside any DAG file."""
    return Path(shutil.move(publications, tmp_path / "elsewhere"))


@pytest.fixture(autouse=True)
def _put_back(publications: Path) -> Iterator[None]:
    yield
    publications.mkdir(exist_ok=True)


def _parsed(tmp_path: Path, *calls: str) -> tuple[set[str], list[str]]:
    """Return the DAGs of DAG files of three lines, and their errors."""
    dags = tmp_path / "dags"
    dags.mkdir()
    for number, call in enumerate(calls):
        lines = ["from pathlib import Path", "from tranrepl_airflow.dags import DagKind, build_dags", call]
        (dags / f"mine_{number}.py").write_text("\n".join(lines))
    bag = DagBag(dags)
    return set(bag.dags), list(bag.import_errors.values())


def test_a_folder_anywhere_gives_all_dags_of_its_publications(folder: Path, tmp_path: Path) -> None:
    assert _parsed(tmp_path, f"build_dags({str(folder)!r})") == (ALL, [])


def test_only_some_kinds_can_be_wanted(folder: Path, tmp_path: Path) -> None:
    call = f"build_dags(Path({str(folder)!r}), DagKind.REPLICATION, DagKind.CLEANUP)"
    assert _parsed(tmp_path, call) == ({"purchasing", "distribution_cleanup"}, [])


def test_dag_files_divide_publications_and_a_slow_or_broken_one_takes_no_other(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT", "3")
    text = (folder / "purchasing.yaml").read_text()
    for name in ("books", "slow", "toys"):
        (folder / f"{name}.yaml").write_text(text.replace("publication: purchasing", f"publication: {name}"))
    (folder / "bad.yaml").write_text("publication: [")
    dags, errors = _parsed(
        tmp_path,
        f"build_dags({str(folder)!r}, names='[a-p]*')",
        f"build_dags({str(folder)!r}, DagKind.REPLICATION, names='t*')",
        f"build_dags({str(folder)!r}, DagKind.CLEANUP)",
        f"build_dags({str(folder)!r}, names='s*'); __import__('time').sleep(60)",
        f"build_dags({str(folder)!r}, names='z*') +",
    )
    assert dags == {*(f"{it}{end}" for it in ("purchasing", "books") for end in _SUFFIXES), "bad", "toys", _CLEANUP}
    assert len(errors) == 2
    assert all(any(what in it for it in errors) for what in ("AirflowTaskTimeout", "SyntaxError"))
    assert gc.isenabled()


def test_an_option_of_airflow_names_the_folder(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__TRANREPL__PUBLICATIONS", str(folder))
    assert _parsed(tmp_path, "build_dags()") == (ALL, [])


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("build_dags()", "neither an argument nor [tranrepl] publications names one"),
        ('build_dags("publications")', 'Path(__file__).with_name("publications")'),
        ('build_dags("/srv/absent")', "there is no folder of publications /srv/absent"),
    ],
)
def test_a_folder_that_is_not_there_is_an_import_error(tmp_path: Path, call: str, said: str) -> None:
    dags, errors = _parsed(tmp_path, call)
    assert dags == set()
    assert said in errors[0]


def test_the_dag_files_of_the_checkout_are_the_same_lines(
    publications: Path, write_publication: PublicationWriter
) -> None:
    write_publication(publication="other")
    for file in _FILES:
        shutil.copy(CHECKOUT / "dags" / file, publications.parent)
    try:
        bag = DagBag(publications.parent)
    finally:
        for file in _FILES:
            (publications.parent / file).unlink()
    assert bag.import_errors == {}
    tags = {name: dag.tags for name, dag in bag.dags.items() if name.startswith("other")}
    kinds = ("replicate", "validate", "reinitialize", "set up", "administer")
    assert tags == {f"other{it}": {"other", kind} for it, kind in zip(_SUFFIXES, kinds, strict=True)}
    assert set(bag.dags) == ALL | {f"other{it}" for it in _SUFFIXES}
