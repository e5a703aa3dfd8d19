"""Slow tests: which are left to `make test-all`, and that what checks a change runs it."""

from __future__ import annotations

import re

from support.checkout import CHECKOUT

_TESTS = CHECKOUT / "tests"
_SECTION = re.compile(r"^## Slow tests\n(.*?)^## ", re.DOTALL | re.MULTILINE)
_LINE = re.compile(r"^- `([^`]*\.py)`", re.MULTILINE)
_MARK = re.compile("pytest" + r"\.mark\.slow\b")


def test_each_file_with_slow_tests_says_what_covers_them() -> None:
    found = _SECTION.search((_TESTS / "README.md").read_text(encoding="utf-8"))
    assert found is not None
    files = {
        path.relative_to(_TESTS).as_posix()
        for path in _TESTS.rglob("*.py")
        if _MARK.search(path.read_text(encoding="utf-8"))
    }
    assert set(_LINE.findall(found[1])) == files


def test_every_change_is_checked_by_the_slow_ones_too() -> None:
    assert "make test-all" in (CHECKOUT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
