"""What an earlier filter was before setup added others to it: `known_before` takes apart what `_added` makes."""

from __future__ import annotations

from itertools import product

import pytest

from tranrepl.distributor.database import ArticleState, UnknownRows
from tranrepl.distributor.stale_articles import _added, known_before
from tranrepl.distributor.tables import SubscriptionStatus

_FILTERS = (
    "area = 'in'",
    "a = 1 OR (b = 2)",
    "(a = 1) OR (b = 2)",
    "(a = 1)",
    "((a = 1) OR (b = ') OR ('))",
    "b = 2",
    "true",
)
_OTHER_REASON = UnknownRows("its rows were rewritten")


def _text(earlier: ArticleState | None, filters: tuple[str, ...], reasons: int) -> str | None:
    """Return what is stored once setup replaced these filters; `reasons` without a filter come before each, and after
    the last."""
    state = earlier
    changes = [
        it for text in filters for it in (*[_OTHER_REASON] * reasons, UnknownRows("its row filter changed", text))
    ]
    for unknown in (*changes, *[_OTHER_REASON] * reasons):
        # As `reinitialize_or_stop_at` does it.
        why = unknown if state is None else _added(state, unknown)
        state = ArticleState(SubscriptionStatus.SUBSCRIBED, None, why.reason, why.earlier_filter)
    return None if state is None else state.earlier_filter


@pytest.mark.parametrize("reasons", [0, 1, 2, 3])
@pytest.mark.parametrize("snapshot", [False, True], ids=["no state", "a state"])
@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_nothing_is_left_where_nothing_was_known(count: int, reasons: int, *, snapshot: bool) -> None:
    active = ArticleState(SubscriptionStatus.ACTIVE, b"") if snapshot else None
    for filters in product(_FILTERS, repeat=count):
        stored = _text(active, filters, reasons)
        assert stored is not None
        assert known_before(stored, filters) is None, (stored, filters)


@pytest.mark.parametrize("reasons", [0, 1, 2, 3])
@pytest.mark.parametrize("known", _FILTERS)
@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_what_was_known_before_is_left(count: int, known: str, reasons: int) -> None:
    earlier = ArticleState(SubscriptionStatus.SUBSCRIBED, None, "its row filter changed", known)
    for filters in product(_FILTERS, repeat=count):
        stored = _text(earlier, filters, reasons)
        assert stored is not None
        # What came without a filter before the first of them put it in parentheses, which say the same.
        assert known_before(stored, filters) == "(" * reasons + known + ")" * reasons, (stored, filters)


def test_a_filter_that_setup_did_not_replace_is_left() -> None:
    assert known_before("(a = 1) OR (b = 2)", []) == "(a = 1) OR (b = 2)"
    assert known_before("((a = 1) OR (b = 2))", ["c = 3"]) == "((a = 1) OR (b = 2))"
