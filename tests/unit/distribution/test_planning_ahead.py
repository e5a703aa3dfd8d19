"""Preparing the next commit batch while others are in use, and the order in which batches come out."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event

import pytest

from tranrepl.distribution.planning_ahead import ahead

_SECONDS = 10


def _is_short(item: int) -> bool:
    return item < 0


def test_a_short_item_and_the_one_behind_it_are_made_together() -> None:
    made = {item: Event() for item in (1, -2, -3, 4, 5)}

    def items() -> Iterator[int]:
        for item in made:
            made[item].set()
            yield item

    seen: list[int] = []
    for item in ahead(items(), _is_short):
        seen.append(item)
        if item == 1:
            assert made[4].wait(_SECONDS)
            assert not made[5].is_set()
    assert seen == [1, -2, -3, 4, 5]


@pytest.mark.parametrize("before", [[], [1], [-2], [1, -2, -3], [1, -2, 4]])
def test_what_was_made_before_an_error_comes_before_it(before: list[int]) -> None:
    def items() -> Iterator[int]:
        yield from before
        raise ValueError("no more")

    seen: list[int] = []
    with pytest.raises(ValueError, match="no more"):
        seen.extend(ahead(items(), _is_short))
    assert seen == before


def test_short_items_at_the_end_come_out_too() -> None:
    assert list(ahead([1, -2, -3], _is_short)) == [1, -2, -3]
    assert list(ahead([], _is_short)) == []
