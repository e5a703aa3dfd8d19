"""How many differing rows are read at a time."""

from __future__ import annotations

from typing import Any

import pytest

from tranrepl.validation import differences
from tranrepl.validation.differences import rows_of


class _Ends:
    """Two ends whose rows are all of one size, and how many were requested at once."""

    def __init__(self, size: int) -> None:
        self._row = ("x" * size,)
        self.asked: list[int] = []
        self.article, self.ends, self.side = None, (self, self), self

    def rows(self, numbers: list[int]) -> int:
        return len(numbers)

    def read(self, what: Any) -> Any:
        if isinstance(what, int):
            return what
        self.asked.append(what[0])
        return [[self._row] * count for count in what]


@pytest.mark.parametrize(
    ("size", "asked"), [(10, [16, 2000, 984]), (20_000, [16, *[125] * 23, 109]), (10_000_000, [16, *[1] * 4])]
)
def test_large_rows_are_read_few_at_a_time(size: int, asked: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(differences, "_BYTES_AT_ONCE", 5_000_000)
    monkeypatch.setattr(differences, "_differing", lambda *_: [])
    ends: Any = _Ends(size)
    rows_of(ends, ends, range(sum(asked)))
    assert ends.asked == asked
