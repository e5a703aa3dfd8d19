"""Which labels of now are those of before, where some were renamed and some added."""

from __future__ import annotations

import pytest

from tranrepl.publisher.postgres.filter_labels import PresentLabels, UnknownLabelsError


@pytest.mark.parametrize(
    ("before", "now", "names"),
    [
        ("a b", {"a": 1, "b": 2}, "a b"),
        ("a b", {"b": 1, "a": 2}, "b a"),
        ("a b", {"x": 7, "c": 1, "b": 2}, "c b"),
        ("a b", {"c": 1, "x": 7, "d": 2, "y": 9}, "c d"),
    ],
)
def test_labels_are_known_by_their_places_among_those_that_were_there(
    before: str, now: dict[str, int], names: str
) -> None:
    labels = before.split()
    assert PresentLabels(tuple(now), tuple(now.values())).names_of(labels) == dict(
        zip(labels, names.split(), strict=True)
    )


@pytest.mark.parametrize(
    ("before", "now"),
    [
        # One has a name of before, and seems to be new: another one has its number.
        ("a b", {"c": 1, "b": 2, "a": 3}),
        # Numbers began anew in between.
        ("a b", {"a": 4_000_000_000, "b": 4_000_000_002, "x": 20_000}),
        # It is another type.
        ("a b", {"a": 1}),
    ],
)
def test_nothing_is_guessed(before: str, now: dict[str, int]) -> None:
    with pytest.raises(UnknownLabelsError):
        PresentLabels(tuple(now), tuple(now.values())).names_of(before.split())
