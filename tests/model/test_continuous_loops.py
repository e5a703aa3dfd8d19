"""The loops of continuous agents, over all interleavings of two of them, and killed at every point."""

from __future__ import annotations

import pytest

from model import continuous_delivery, continuous_reading


def test_two_log_readers_that_are_killed_anywhere_store_every_transaction_once() -> None:
    found = continuous_reading.search()
    assert (found.violation, found.history) == (None, ())
    assert found.states > 20_000


def test_two_deliveries_that_are_killed_anywhere_apply_every_transaction_once() -> None:
    found = continuous_delivery.search()
    assert (found.violation, found.history) == (None, ())
    assert found.states > 10_000


_LOST, _TWICE = "a transaction is not stored, and the next one is", "a transaction is stored twice"
_OF_READING = {
    continuous_reading.Mutation.THE_LOG_IS_LET_GO_BEFORE_IT_IS_REGISTERED: _LOST,
    continuous_reading.Mutation.REGISTERING_DOES_NOT_COMPARE: _TWICE,
    continuous_reading.Mutation.A_STREAM_BEGINS_AT_ITS_SLOT: _TWICE,
    continuous_reading.Mutation.ONE_THAT_WAS_OVERTAKEN_GOES_ON: _TWICE,
}
_OF_DELIVERY = {
    continuous_delivery.Mutation.THE_WATERMARK_IS_NOT_COMPARED: "a transaction is applied twice",
    continuous_delivery.Mutation.THE_WATERMARK_IS_NOT_LOCKED: "a transaction is applied twice",
    continuous_delivery.Mutation.THE_WATERMARK_COMMITS_BY_ITSELF: "a transaction is applied twice",
    continuous_delivery.Mutation.IT_IS_RECORDED_BEFORE_IT_IS_ON_DISK: "nobody can finish the work",
    continuous_delivery.Mutation.CLEAN_UP_REMOVES_WHAT_IS_NOT_RECORDED: "nobody can finish the work",
}


@pytest.mark.slow
@pytest.mark.parametrize("mutation", continuous_reading.Mutation)
def test_without_one_of_its_rules_the_reading_fails(mutation: continuous_reading.Mutation) -> None:
    assert continuous_reading.search(mutation, faults=1).violation == _OF_READING[mutation]


@pytest.mark.slow
@pytest.mark.parametrize("mutation", continuous_delivery.Mutation)
def test_without_one_of_its_rules_the_delivery_fails(mutation: continuous_delivery.Mutation) -> None:
    assert continuous_delivery.search(mutation, faults=1).violation == _OF_DELIVERY[mutation]
