"""Words that messages, pages and the terminal share."""

from __future__ import annotations

import pytest

from tranrepl.printable import named


@pytest.mark.parametrize(
    ("names", "shown"), [(["a"], "table a"), (["a", "b", "c"], "tables a, b, c"), (range(1_024), "1,024 tables")]
)
def test_of_few_things_each_is_named_and_of_many_their_number(names: list[str], shown: str) -> None:
    assert named(names, "table") == shown
