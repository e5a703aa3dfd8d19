"""Which stream applies what, against a model that sees every value."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from support.command_history import Column, History, registered, table_description
from tranrepl.distribution.stream_assignment import Division, Method, division
from tranrepl.errors import InternalError
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.names import TableName
from tranrepl.settings.publication import Article, StreamAssignment
from tranrepl.subscriber.constraints import Constraints, Reference, UniqueKey

PARENT = (Column("id", "integer", key=1), Column("code"), Column("note"))
CHILD = (Column("id", "integer", key=1), Column("parent", "integer"))
CONSTRAINTS = Constraints(
    unique_keys=(UniqueKey(article_id=1, positions=(0,)), UniqueKey(article_id=1, positions=(1,))),
    references=(Reference(article_id=2, positions=(1,), parent_id=1, parent_positions=(0,)),),
)

Values = set[tuple[str, str | None]]
Operations = list[tuple[str, str, tuple[str, str, str]]]


def _article(number: int, name: str, columns: Iterable[Column], **settings: str) -> RegisteredArticle:
    described = table_description(TableName("public", name), tuple(columns))
    article = Article.model_validate({"source": f"public.{name}", **settings})
    return registered(article, described, number)


_OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["parent", "child"]),
        st.sampled_from(["insert", "update", "delete", "move"]),
        st.tuples(*[st.sampled_from("abcdefgh")] * 3),
    ),
    min_size=1,
    max_size=4,
)
_SETTINGS = st.fixed_dictionaries(
    {
        "upd_cmd": st.sampled_from(["CALL", "SCALL", "MCALL", "XCALL", "SQL"]),
        "del_cmd": st.sampled_from(["CALL", "XCALL", "SQL"]),
    }
)


class _World:
    """Rows as the commands leave them, and what each transaction touched."""

    def __init__(self, settings: dict[str, str]) -> None:
        self.articles = {1: _article(1, "parent", PARENT, **settings), 2: _article(2, "child", CHILD, **settings)}
        self.history = History()
        self.rows: dict[str, dict[str, list[str]]] = {"parent": {}, "child": {}}
        self.touched: list[Values] = []
        self.keys: list[Values] = []

    def act(self, table: str, what: str, drawn: tuple[str, str, str]) -> None:
        key, first, second = drawn
        article, rows = self.articles[1 if table == "parent" else 2], self.rows[table]
        row = [key, first, second][: len(article.columns)]
        before = rows.get(key)
        if before is None:
            self.history.insert(article, row)
            rows[key] = row
            self._touch(table, None, row)
        elif what == "delete":
            self.history.delete(article, rows.pop(key))
            self._touch(table, before, None)
        elif what == "move" and first not in rows:
            after = [first, *before[1:]]
            self.history.update(article, before, after)
            rows[first] = after
            del rows[key]
            self._touch(table, before, after)
        elif row != before:
            self.history.update(article, before, row)
            rows[key] = row
            self._touch(table, before, row)

    def _touch(self, table: str, before: list[str] | None, after: list[str] | None) -> None:
        values: Values = {(f"{table}.id", it[0]) for it in (before, after) if it}
        self.keys.append(set(values))
        if before is None or after is None or before[1] != after[1]:
            name = "parent.code" if table == "parent" else "parent.id"
            values |= {(name, it[1]) for it in (before, after) if it}
        self.touched[-1] |= values


@given(st.lists(_OPERATIONS, min_size=1, max_size=12), _SETTINGS, st.integers(2, 5))
def test_transactions_that_share_a_value_are_one_streams(
    transactions: list[Operations], settings: dict[str, str], streams: int
) -> None:
    world = _world(transactions, settings)
    commands = world.history.table()
    if len(commands) == 0:
        return
    how = division(commands, StreamAssignment.DEPENDENCIES, CONSTRAINTS)
    given_streams = how.streams_of(commands, world.articles, streams)
    of_transaction = dict(zip(commands["xact_seqno"].to_pylist(), given_streams.tolist(), strict=True))
    assert [of_transaction[it] for it in commands["xact_seqno"].to_pylist()] == given_streams.tolist()
    touched = dict(zip(sorted(of_transaction), [it for it in world.touched if it], strict=True))
    for one, other in combinations(touched, 2):
        if touched[one] & touched[other]:
            assert of_transaction[one] == of_transaction[other]


@given(st.lists(_OPERATIONS, min_size=1, max_size=12), _SETTINGS, st.integers(2, 5))
def test_commands_of_one_row_are_one_streams_whatever_its_keys_were(
    transactions: list[Operations], settings: dict[str, str], streams: int
) -> None:
    world = _world(transactions, settings)
    commands = world.history.table()
    if len(commands) == 0:
        return
    how = division(commands, StreamAssignment.KEY, Constraints())
    given_streams = how.streams_of(commands, world.articles, streams).tolist()
    for (one, first), (other, second) in combinations(zip(world.keys, given_streams, strict=True), 2):
        if one & other:
            assert first == second
    again = Division.model_validate_json(how.model_dump_json()).streams_of(commands, world.articles, streams)
    assert again.tolist() == given_streams


@pytest.mark.parametrize("upd_cmd", ["CALL", "SCALL", "MCALL", "XCALL", "SQL"])
def test_a_row_stays_in_its_stream_where_a_part_of_its_key_changes(upd_cmd: str) -> None:
    line = _article(1, "line", (Column("doc", key=1), Column("number", key=2), Column("note")), upd_cmd=upd_cmd)
    history = History()
    for doc in "abcdefgh":
        history.transaction().update(line, [doc, "1", "x"], [doc, "2", "x"])
        history.transaction().update(line, [doc, "2", "x"], [doc, "2", "y"])
    commands = history.table()
    streams = division(commands, StreamAssignment.KEY, Constraints()).streams_of(commands, {1: line}, 5)
    assert streams[::2].tolist() == streams[1::2].tolist()


def _world(transactions: list[Operations], settings: dict[str, str]) -> _World:
    world = _World(settings)
    for operations in transactions:
        world.history.transaction()
        world.touched.append(set())
        for operation in operations:
            world.act(*operation)
    return world


@pytest.mark.parametrize("assignment", list(StreamAssignment))
def test_rows_that_share_nothing_are_spread(assignment: StreamAssignment) -> None:
    article, history = _article(1, "parent", PARENT), History()
    for at in range(1000):
        history.transaction().insert(article, [str(at), f"code {at}", "x"])
    commands = history.table()
    streams = division(commands, assignment, CONSTRAINTS).streams_of(commands, {1: article}, 4)
    assert min(np.bincount(streams, minlength=4)) > 200


def test_a_delete_without_its_unique_value_keeps_all_in_one_stream() -> None:
    # By CALL its key alone travels; by XCALL the unique value does, too.
    for syntax, expected in (("CALL", 1), ("XCALL", 4)):
        article, history = _article(1, "parent", PARENT, del_cmd=syntax), History()
        for at in range(100):
            history.transaction().delete(article, [str(at), f"code {at}", "x"])
        commands = history.table()
        how = division(commands, StreamAssignment.DEPENDENCIES, CONSTRAINTS)
        assert len(set(how.streams_of(commands, {1: article}, 4).tolist())) == expected


def test_a_division_of_another_version_is_not_repeated() -> None:
    with pytest.raises(InternalError, match="version 99"):
        Division(method=Method.KEY, version=99).streams_of(History().table(), {}, 2)
