"""TRUNCATE of several tables is a step by itself, whatever goes in bulk around it."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
from hypothesis import given, strategies as st

from support.command_history import Column, History, registered, table_description
from tranrepl.model.commands import Operation
from tranrepl.model.names import TableName
from tranrepl.settings.publication import Article
from tranrepl.subscriber.batching.steps import Bulkable, BulkStep, Operations, TruncateStep

_COLUMNS = (Column("id", "integer", key=1),)
_NAMES = [TableName("public", name) for name in ("one", "two", "three")]
_ARTICLES = {
    number: registered(Article(source=name), table_description(name, _COLUMNS), number)
    for number, name in enumerate(_NAMES, start=1)
}
_ALL: Operations = frozenset({Operation.INSERT, Operation.UPDATE, Operation.DELETE})


@given(
    st.lists(st.lists(st.tuples(st.booleans(), st.integers(1, 3)), min_size=1, max_size=8), max_size=4),
    st.sets(st.integers(1, 3)),
    st.sets(st.integers(1, 3)),
)
def test_consecutive_truncates_stay_in_one_step(
    transactions: list[list[tuple[bool, int]]], bulk: set[int], own_order: set[int]
) -> None:
    history = History()
    for transaction in transactions:
        history.transaction()
        for at, (truncate, number) in enumerate(transaction):
            if truncate:
                history.truncate(_ARTICLES[number])
            else:
                history.insert(_ARTICLES[number], [str(history.xact * 100 + at)])
    commands = history.table()
    steps = Bulkable(_ARTICLES, dict.fromkeys(bulk, _ALL), frozenset(own_order)).steps(commands).steps
    parts = [step.commands.to_pylist() for step in steps]
    places = [(row["xact_seqno"], row["command_id"]) for part in parts for row in part]
    assert sorted(places) == [(row["xact_seqno"], row["command_id"]) for row in commands.to_pylist()]
    for step, part in zip(steps, parts, strict=True):
        assert isinstance(step, TruncateStep) == (any(_together(*pair) for pair in pairwise(part)))
        if isinstance(step, TruncateStep):
            assert all(_together(*pair) for pair in pairwise(part))
        if isinstance(step, BulkStep):
            assert all(row["operation"] == Operation.INSERT for row in part)
    if not own_order:
        assert places == sorted(places)
        ends = [(part[0], part[-1]) for part in parts if part]
        assert not any(_together(one[1], other[0]) for one, other in pairwise(ends))


def _together(one: dict[str, object], other: dict[str, object]) -> bool:
    return one["operation"] == other["operation"] == Operation.TRUNCATE and one["xact_seqno"] == other["xact_seqno"]


def test_no_commands_make_no_steps() -> None:
    (step,) = Bulkable({}, {}).steps(pa.table(History().table())).steps
    assert len(step.commands) == 0
