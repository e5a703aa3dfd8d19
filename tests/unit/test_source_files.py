"""What holds of every file of Python: it is short, and its docstrings are sentences."""

from __future__ import annotations

from pathlib import Path

from support.checkout import CHECKOUT

_MOST_LINES = 400
_FOLDERS = ("dags", "docs", "plugins", "spark_jobs", "tests")


def _files() -> dict[str, Path]:
    found = [path for folder in _FOLDERS for path in (CHECKOUT / folder).rglob("*.py")]
    files = {str(path.relative_to(CHECKOUT)): path for path in found}
    assert "tests/unit/test_source_files.py" in files
    return files


def test_no_file_of_python_has_more_than_400_lines() -> None:
    lengths = {name: len(path.read_text(encoding="utf-8").splitlines()) for name, path in _files().items()}
    assert {name: length for name, length in lengths.items() if length > _MOST_LINES} == {}


def test_no_docstring_begins_with_of() -> None:
    begun = '"' * 3 + "Of "
    assert [name for name, path in _files().items() if begun in path.read_text(encoding="utf-8")] == []
