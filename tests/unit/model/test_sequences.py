"""Where a Subscriber's sequences are set, against sequences that hand out their numbers one by one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from hypothesis import given, strategies as st

from tranrepl.model.names import TableName
from tranrepl.model.sequences import (
    ArticleColumn,
    ColumnSequence,
    FoundSequences,
    SequenceDefinition,
    SequencePlan,
    SequenceState,
    plan_sequences,
)

_COLUMN = ArticleColumn(TableName("public", "t"), "id")
_OTHER = ArticleColumn(TableName("public", "u"), "id")
_NAME = TableName("public", "t_id_seq")
_MANY = 60


@st.composite
def _sequences(draw: st.DrawFn, direction: int) -> ColumnSequence:
    least, most = sorted(draw(st.tuples(st.integers(-30, 30), st.integers(-30, 30))))
    increment = direction * draw(st.integers(1, 4))
    last = draw(st.integers(least, most))
    definition = SequenceDefinition(last, increment, least, most, draw(st.integers(0, 9)) == 0)
    return ColumnSequence(_NAME, definition, SequenceState(last, draw(st.booleans())))


_PAIRS = st.tuples(st.sampled_from([1, 1, 1, -1]), st.sampled_from([1, 1, 1, -1])).flatmap(
    lambda directions: st.tuples(_sequences(directions[0]), _sequences(directions[1]))
)


def _numbers(sequence: ColumnSequence, state: SequenceState) -> Iterator[int]:
    """Yield what nextval gives from now on; a sequence without CYCLE ends."""
    value = state.last_value + (sequence.definition.increment if state.is_called else 0)
    while sequence.definition.holds(value):
        yield value
        value += sequence.definition.increment


def _plan(publisher: ColumnSequence, subscriber: ColumnSequence) -> SequencePlan:
    return plan_sequences(FoundSequences({_COLUMN: publisher}), FoundSequences({_COLUMN: subscriber}))


@given(_PAIRS)
def test_no_number_comes_again_that_either_end_had_handed_out(pair: tuple[ColumnSequence, ColumnSequence]) -> None:
    publisher, subscriber = pair
    assert publisher.state is not None
    assert subscriber.state is not None
    plan = _plan(publisher, subscriber)
    state = plan.targets.get(_NAME, subscriber.state)
    later = list(islice(_numbers(subscriber, state), _MANY))
    before = list(islice(_numbers(subscriber, subscriber.state), _MANY))
    ascends = subscriber.definition.increment > 0
    # Never backwards: what comes is not before what would have come.
    assert not later or not before or (later[0] >= before[0] if ascends else later[0] <= before[0])
    assert bool(plan.targets) <= (state != subscriber.state)
    if not plan.refused:
        edge, called = publisher.state.last_value, publisher.state.is_called
        handed_out = edge if called else edge - (1 if ascends else -1)
        assert all(it > handed_out if ascends else it < handed_out for it in later)
    else:
        assert plan.targets == {}


@given(_PAIRS)
def test_what_was_set_is_not_set_again(pair: tuple[ColumnSequence, ColumnSequence]) -> None:
    publisher, subscriber = pair
    targets = _plan(publisher, subscriber).targets
    if _NAME in targets:
        again = ColumnSequence(_NAME, subscriber.definition, targets[_NAME])
        assert _plan(publisher, again).targets == {}


def test_a_sequence_of_two_columns_goes_as_far_as_either() -> None:
    definition = SequenceDefinition(1, 1, 1, 1000, cycles=False)
    here = ColumnSequence(_NAME, definition, SequenceState(5, is_called=True))
    theirs = [
        ColumnSequence(TableName("public", name), definition, SequenceState(last, is_called=True))
        for name, last in (("a", 30), ("b", 20))
    ]
    for first, second in (theirs, theirs[::-1]):
        plan = plan_sequences(
            FoundSequences({_COLUMN: first, _OTHER: second}), FoundSequences({_COLUMN: here, _OTHER: here})
        )
        assert plan.targets == {_NAME: SequenceState(30, is_called=True)}
