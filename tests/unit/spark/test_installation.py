"""What `check` and the operators see of a pyspark whose files another package has overwritten."""

from __future__ import annotations

import base64
import hashlib
import sys
from pathlib import Path

import pytest

from tranrepl.errors import ConfigurationError
from tranrepl.spark.installation import mixed_pyspark_warning, require_whole_pyspark

_UNINSTALL = f"{sys.executable} -m pip uninstall --yes pyspark-client"
_REINSTALL = f"{sys.executable} -m pip install --force-reinstall --no-deps pyspark==9.9.9"


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder of packages before all others, with a pyspark of two files in it."""
    monkeypatch.syspath_prepend(str(tmp_path))
    _install(tmp_path, "pyspark", "9.9.9", {"pyspark/__init__.py": "whole", "pyspark/util.py": "util"})
    return tmp_path


def _install(folder: Path, name: str, version: str, files: dict[str, str]) -> None:
    """Install as pip does: write the files over whatever is there, and a list of them."""
    about = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    record = []
    for path, text in files.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(text)
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        record.append(f"{path},sha256={digest},{len(text)}")
    (about / "RECORD").write_text("\n".join(record))


def test_a_pyspark_of_its_own_files_is_left_in_peace(packages: Path) -> None:
    require_whole_pyspark()
    assert mixed_pyspark_warning() is None


def test_files_that_the_client_overwrote_are_told_with_two_commands(packages: Path) -> None:
    _install(packages, "pyspark-client", "9.8.0", {"pyspark/__init__.py": "whole", "pyspark/util.py": "the client's"})
    told = (mixed_pyspark_warning() or "").splitlines()
    assert told[0].startswith("pyspark-client 9.8.0, which Airflow's Spark provider brings, has overwritten files of")
    assert told[1:] == [_UNINSTALL, _REINSTALL]


def test_a_client_under_a_pyspark_that_was_installed_again_is_no_matter(packages: Path) -> None:
    _install(packages, "pyspark-client", "9.8.0", {"pyspark/util.py": "the client's"})
    (packages / "pyspark" / "util.py").write_text("util")
    assert mixed_pyspark_warning() is None


def test_files_that_went_with_the_client_are_told_with_the_second_command(packages: Path) -> None:
    (packages / "pyspark" / "__init__.py").unlink()
    with pytest.raises(ConfigurationError, match=r"files of pyspark 9\.9\.9 are gone") as refused:
        require_whole_pyspark()
    assert refused.value.report.remedy == _REINSTALL
