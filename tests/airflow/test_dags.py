"""The DAGs of a folder, for a DAG file of the user's own."""

from __future__ import annotations

import gc
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from airflow.dag_processing.bundles.manager import DagBundlesManager
from airflow.dag_processing.dagbag import BundleDagBag, DagBag

from support.checkout import CHECKOUT
from tranrepl.admin.first_files import write_first_files
from tranrepl_airflow.operators import LogReaderOperator

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


def test_a_run_of_an_earlier_version_of_a_dag_bundle_has_the_settings_of_that_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "bundle"
    for version, articles in (("1", ["public.part"]), ("2", ["public.part", "public.stock"])):
        folder = root / version
        folder.mkdir(parents=True)
        write_first_files(folder, "shop", "/srv/store", lambda _: None)
        file = folder / "publications" / "shop.yaml"
        document = yaml.safe_load(file.read_text())
        file.write_text(yaml.safe_dump({**document, "articles": [{"source": it} for it in articles]}))
    bundle = {
        "name": "ours",
        "classpath": "support.versioned_bundle.VersionedBundle",
        "kwargs": {"root": str(root), "refresh_interval": 60},
    }
    monkeypatch.setenv("AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST", json.dumps([bundle]))
    for begun, count in (("1", 1), (None, 2), ("1", 1)):
        # As a worker does for a task of a run that began at a version.
        found = DagBundlesManager().get_bundle("ours", begun)  # type: ignore[no-untyped-call]
        file = found.path / "replication.py"
        bag = BundleDagBag(dag_folder=file, bundle_path=found.path, bundle_name="ours", safe_mode=False)
        task = bag.dags["shop"].task_dict["log_reader"]
        assert isinstance(task, LogReaderOperator)
        assert len(task.request().publication.articles) == count
        assert task.settings_file == str(root / (begun or "2") / "publications" / "shop.yaml")
