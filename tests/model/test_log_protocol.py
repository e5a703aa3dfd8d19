"""Nothing is lost, mixed or applied twice when servers change underneath; and each rule that says so is there for a
reason.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import pytest

from model.log_protocol import search
from model.log_world import OLD, Mutation, Start
from model.publisher_servers import Event

_FORMER_NAME = Mutation.A_NEW_SLOT_HAS_THE_FORMER_NAME
_SNAPSHOT_FIRST = Start(waits=True)
_UNEQUAL = "a run has ended well, and the Subscriber does not have the Publisher's rows"
_RESTORED, _PROMOTED, _DUMPED = Event.PUBLISHER_RESTORED, Event.STANDBY_PROMOTED, Event.DUMPED_AND_RESTORED


@pytest.mark.parametrize("start", [Start(), pytest.param(_SNAPSHOT_FIRST, marks=pytest.mark.slow)])
@pytest.mark.parametrize("event", Event)
def test_whatever_happens_once_is_told_or_harmless(event: Event, start: Start) -> None:
    """Let everything happen in every step, and kill everyone; refuse nothing that has lost nothing."""
    found = search({event}, {_FORMER_NAME}, start=start)
    assert (found.violation, found.history) == (None, ())
    assert found.states > 100


def test_runs_go_on_where_the_standby_that_they_waited_for_is_promoted() -> None:
    found = search({Event.STANDBY_PROMOTED}, start=Start(standby=1))
    assert (found.violation, found.states > 1_000) == (None, True)


@pytest.mark.parametrize("second", [Event.CONNECTION_MOVED, Event.OVERTAKEN])
def test_a_log_that_went_back_is_told_from_the_one_that_lives_on(second: Event) -> None:
    assert search({_RESTORED, second}, faults=2).violation is None


def test_a_slot_made_by_hand_on_a_log_that_went_back_is_refused() -> None:
    # Nothing at the Publisher distinguishes it from the one that was there.
    found = search({_RESTORED, Event.SLOT_MADE_ANEW}, faults=2)
    assert found.violation == _UNEQUAL


@pytest.mark.parametrize("event", [_RESTORED, _PROMOTED, _DUMPED, Event.SECOND_PUBLISHER])
def test_as_it_was_without_the_logs_identity_one_event_is_enough(event: Event) -> None:
    assert search({event}, OLD).violation == _UNEQUAL


class _Case(NamedTuple):
    mutation: Mutation
    events: Collection[Event]
    violation: str
    start: Start = Start()
    faults: int = 1
    writes: int = 2
    beside: frozenset[Mutation] = frozenset()
    """Another rule that alone would be enough."""


_MIXED = "a transaction is applied to rows that are not those before it"
_STUCK = "nobody can finish the work"
_AHEAD = "a Subscriber has what the promoted standby does not have"
_SAME_NAME = frozenset({_FORMER_NAME})
_CASES = [
    _Case(Mutation.SYSTEM_IDENTIFIER_IS_NOT_COMPARED, {_DUMPED}, _UNEQUAL),
    _Case(Mutation.TIMELINES_ARE_NOT_COMPARED, {_PROMOTED, Event.SLOT_MADE_ANEW}, _UNEQUAL, faults=2),
    _Case(Mutation.A_SLOT_PAST_WHAT_IS_REGISTERED_IS_READ, {Event.SLOT_MADE_ANEW}, _STUCK),
    _Case(
        Mutation.A_SLOT_BEFORE_THE_START_IS_READ,
        {_RESTORED, Event.SLOT_DROPPED},
        _UNEQUAL,
        faults=2,
        beside=_SAME_NAME,
    ),
    _Case(Mutation.AN_END_BEFORE_WHAT_IS_REGISTERED_IS_NO_MATTER, {_RESTORED}, _UNEQUAL),
    _Case(Mutation.THE_LOG_BEHIND_THE_SLOT_IS_NOT_LOOKED_AT, {_RESTORED}, _UNEQUAL),
    _Case(Mutation.EARLIER_COMMITS_ARE_ALLOWED, {_RESTORED, Event.CONNECTION_MOVED}, _UNEQUAL, faults=2),
    _Case(Mutation.SNAPSHOTS_ARE_NOT_LOOKED_AT, {_PROMOTED}, _UNEQUAL, _SNAPSHOT_FIRST),
    _Case(Mutation.SESSIONS_ARE_NOT_COMPARED, {_RESTORED}, _MIXED, writes=3),
    _Case(Mutation.READERS_DO_NOT_LOOK_AT_THE_SLOT, {Event.SLOT_MADE_ANEW}, _UNEQUAL),
    _Case(Mutation.REGISTERING_DOES_NOT_COMPARE, {Event.OVERTAKEN}, "a transaction is applied twice"),
    _Case(Mutation.REGISTERING_COMPARES_THE_POSITION_ONLY, {_DUMPED}, _MIXED, _SNAPSHOT_FIRST),
    _Case(Mutation.STANDBYS_ARE_NOT_WAITED_FOR, {_PROMOTED}, _AHEAD, Start(standby=1)),
    _Case(Mutation.WATERMARKS_DO_NOT_NAME_THE_PUBLISHER, {Event.SECOND_PUBLISHER}, _STUCK),
    _Case(Mutation.SUBSCRIBER_IS_NOT_COMPARED, {_RESTORED, Event.DISTRIBUTION_RESTORED}, _UNEQUAL, faults=2),
    _Case(_FORMER_NAME, {_RESTORED, Event.CONNECTION_MOVED}, _UNEQUAL, faults=2),
    _Case(Mutation.REGISTRATION_IS_FORGOTTEN_LAST, {_RESTORED}, _UNEQUAL, beside=_SAME_NAME),
    _Case(Mutation.COMMANDS_ARE_KEPT, {_RESTORED}, _STUCK),
    _Case(Mutation.SUBSCRIPTIONS_DO_NOT_WAIT, {Event.REINITIALIZED}, _UNEQUAL),
    _Case(Mutation.FORMER_WATERMARK_IS_LEFT, {_DUMPED}, _MIXED),
    _Case(Mutation.SNAPSHOT_DOES_NOT_PROVE_THE_PUBLISHER, {_DUMPED}, _MIXED, _SNAPSHOT_FIRST),
    _Case(Mutation.SNAPSHOT_DOES_NOT_WAIT_FOR_STANDBYS, {_PROMOTED}, _AHEAD, Start(standby=1, waits=True)),
]


@pytest.mark.slow
@pytest.mark.parametrize("case", _CASES, ids=lambda it: it.mutation.name.lower())
def test_without_one_of_its_rules_the_protocol_fails(case: _Case) -> None:
    found = search(case.events, {case.mutation, *case.beside}, case.faults, case.writes, case.start)
    assert found.violation == case.violation
    assert len(found.history) > 1


def test_every_rule_has_its_case() -> None:
    assert [it.mutation for it in _CASES] == list(Mutation)
