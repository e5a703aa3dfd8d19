"""A file has one subject, so it is short."""

from __future__ import annotations

from support.checkout import CHECKOUT

_MOST_LINES = 400
_FOLDERS = ("dags", "docs", "plugins", "spark_jobs", "tests")


def test_no_file_of_python_has_more_than_400_lines() -> None:
    files = [path for folder in _FOLDERS for path in (CHECKOUT / folder).rglob("*.py")]
    lengths = {str(path.relative_to(CHECKOUT)): len(path.read_text(encoding="utf-8").splitlines()) for path in files}
    assert "tests/unit/test_file_lengths.py" in lengths
    assert {path: length for path, length in lengths.items() if length > _MOST_LINES} == {}
