"""What holds of every file of Python, and that whatever checks a change runs every test."""

from __future__ import annotations

from pathlib import Path

from support.checkout import CHECKOUT

_FOLDERS = ("dags", "docs", "plugins", "spark_jobs", "tests")


def _files() -> dict[str, Path]:
    found = [path for folder in _FOLDERS for path in (CHECKOUT / folder).rglob("*.py")]
    files = {str(path.relative_to(CHECKOUT)): path for path in found}
    assert "tests/unit/test_source_files.py" in files
    return files


def test_no_docstring_begins_with_of() -> None:
    begun = '"' * 3 + "Of "
    assert [name for name, path in _files().items() if begun in path.read_text(encoding="utf-8")] == []


def test_every_change_is_checked_by_the_slow_tests_too() -> None:
    assert "make test-all" in (CHECKOUT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
