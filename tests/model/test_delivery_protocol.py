"""Exactly once, over all interleavings; and each rule of the protocol is there for a reason."""

from __future__ import annotations

import pytest

from model.delivery_protocol import Locking, Mutation, search

_DEADLOCK_FREE = [it for it in Locking if it is not Locking.ANY_ORDER]


def test_every_command_is_applied_once_whatever_two_crashes_interrupt() -> None:
    found = search(Locking.ROW_0_FIRST)
    assert (found.violation, found.history) == (None, ())
    assert found.states > 50_000


@pytest.mark.parametrize("locking", _DEADLOCK_FREE)
def test_how_rows_are_locked_decides_about_waiting_alone(locking: Locking) -> None:
    assert search(locking, faults=1).violation is None


def test_rows_locked_in_any_order_block_two_runners_for_ever() -> None:
    # Each one's stream holds what the other one's waits for, while their mates wait for the vote.
    assert search(Locking.ANY_ORDER, faults=0).violation == "nobody can finish the work"


_VIOLATIONS = {
    Mutation.STREAM_0_DOES_NOT_WAIT_FOR_THE_OTHERS_COMMITS: "the watermark passes a command that is not applied",
    Mutation.AN_UNFINISHED_GROUP_IS_NOT_FINISHED: "nobody can finish the work",
}
"""All other mutations apply a command twice."""


@pytest.mark.slow
@pytest.mark.parametrize("mutation", Mutation)
def test_without_one_of_its_rules_the_protocol_fails(mutation: Mutation) -> None:
    found = search(Locking.ROW_0_FIRST, mutation, faults=1)
    assert found.violation == _VIOLATIONS.get(mutation, "a command is applied twice")
    assert len(found.history) > 1
