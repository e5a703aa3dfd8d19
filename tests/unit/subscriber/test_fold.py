"""Folding is what a plain loop over the commands, one row at a time, would give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings, strategies as st

from support.command_history import Column, History, Image, registered, table_description
from support.example_counts import examples
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.names import TableName
from tranrepl.model.row_images import values
from tranrepl.settings.publication import Article
from tranrepl.subscriber.batching.fold import NotFoldableError, fold
from tranrepl.subscriber.batching.folded import Folded

KEYS = (Column("id", "integer", key=2), Column("name"), Column("place", key=1), *(Column(f"c{it}") for it in range(8)))
_WIDTH = len(KEYS)
BY_NUMBER = (Column("id", "integer", key=1), Column("name"), Column("place"), *KEYS[3:])


@dataclass
class Loop:
    """Rows by key as they would be, where a row that must have been there is known by its key alone."""

    article: RegisteredArticle
    was_there: dict[Image, bool] = field(default_factory=dict)
    is_there: dict[Image, bool] = field(default_factory=dict)
    left: set[Image] = field(default_factory=set)
    values: dict[Image, dict[int, str | None]] = field(default_factory=dict)

    def act(self, operation: str, before: Image | None, after: Image | None) -> bool:
        """Return whether the command follows from those before it."""
        row = before or after
        assert row is not None
        key = tuple(row[at] for at in self.article.key_positions)
        there = self.is_there.get(key, operation != "insert")
        self.was_there.setdefault(key, there)
        if there is (operation == "insert"):
            return False
        self.is_there[key] = operation != "delete"
        if operation == "delete":
            self.left.add(key)
            self.values[key] = {}
        elif before is None or after is None:
            self.values[key] = dict(enumerate(after or ()))
        else:
            changed = {at: new for at, new in enumerate(after) if before[at] != new}
            self.values[key] = self.values.get(key, {}) | changed
        return True


_cells = st.sampled_from([None, "", "1", "a\tb\\N\n", "é"])
_rows = st.tuples(st.sampled_from("123"), _cells, st.sampled_from("xy"), *([_cells] * (_WIDTH - 3)))
_operations = st.sampled_from(["insert", "update", "delete"])
_acts = st.lists(st.tuples(st.integers(0, 3), _operations, _rows, _rows), min_size=1, max_size=25)


@settings(deadline=None, max_examples=examples(400))
@given(_acts, st.sampled_from(["SCALL", "MCALL"]), st.sampled_from(["CALL", "XCALL"]))
def test_folding_is_what_a_loop_gives(acts: list[tuple[int, str, Image, Image]], update: str, delete: str) -> None:
    # There are four articles, two by two of one shape.
    shapes = (KEYS, KEYS, BY_NUMBER, BY_NUMBER)
    articles = [_article(it, at, upd_cmd=update, del_cmd=delete) for at, it in enumerate(shapes)]
    history, loops, wrong = History(), [Loop(it) for it in articles], set()
    for at, operation, before, after in acts:
        article, after = articles[at], (before[0], after[1], before[2], *after[3:])
        match operation:
            case "insert":
                history.insert(article, after)
                follows = loops[at].act(operation, None, after)
            case "update":
                history.update(article, before, after)
                follows = loops[at].act(operation, before, after)
            case _:
                history.delete(article, before)
                follows = loops[at].act(operation, before, None)
        wrong |= set() if follows else {at}
    done = [{operation for number, operation, *_ in acts if number == at} for at in range(len(articles))]
    # Whether a row is inserted twice is for the Subscriber to find.
    wrong -= {at for at, operations in enumerate(done) if operations == {"insert"}}
    by_number = {it.article_id: it for it in articles}
    if wrong:
        with pytest.raises(NotFoldableError) as refused:
            fold(history.table(), by_number)
        assert refused.value.article_id in wrong
        return
    folded = fold(history.table(), by_number)
    assert [it.article.article_id for it in folded] == [at for at, operations in enumerate(done) if operations]
    for it in folded:
        if done[it.article.article_id] != {"insert"}:
            _is_what_the_loop_gave(it, loops[it.article.article_id])


def test_nothing_but_inserts_stays_as_it_was() -> None:
    articles, history = [_article(KEYS, 1), _article(BY_NUMBER, 2)], History()
    for number in ("1", "3", "2"):
        for article in articles:
            history.insert(article, (number, article.article_id * "x", *"1" * (_WIDTH - 2)))
    first, second = fold(history.table(), {it.article_id: it for it in articles})
    assert [line[:2] for line in _lines(first)] == [("1", "x"), ("3", "x"), ("2", "x")]
    assert [line[:2] for line in _lines(second)] == [("1", "xx"), ("3", "xx"), ("2", "xx")]
    assert (first.updates, _keys(first.deletes), _keys(first.absent)) == (None, [], [])


def _is_what_the_loop_gave(folded: Folded, loop: Loop) -> None:
    there, is_there = loop.was_there, loop.is_there
    assert set(_keys(folded.deletes)) == {it for it in there if there[it] and it in loop.left}
    assert len(folded.deletes[0]) == len(set(_keys(folded.deletes)))
    assert _keys(folded.absent) == [it for it in there if not there[it] and not is_there[it]]
    inserted = [it for it in there if is_there[it] and (not there[it] or it in loop.left)]
    assert _lines(folded) == [tuple(loop.values[it][at] for at in range(_WIDTH)) for it in inserted]
    updated = [it for it in there if there[it] and is_there[it] and it not in loop.left]
    assert _updates(folded) == {it: loop.values.get(it, {}) for it in updated}


def test_updates_without_a_mask_set_every_column() -> None:
    article = _article(upd_cmd="CALL")
    row = tuple("1" for _ in range(_WIDTH))
    history = History().update(article, row, (*row[:3], "2", *row[4:])).update(article, row, (*row[:4], "3", *row[5:]))
    assert _updates(_folded(history, article)) == {("1", "1"): dict(enumerate((*row[:4], "3", *row[5:])))}


@pytest.mark.parametrize("syntax", ["CALL", "SCALL", "MCALL", "XCALL"])
def test_an_update_of_the_key_is_not_folded(syntax: str) -> None:
    article = _article(upd_cmd=syntax)
    row = tuple("1" for _ in range(_WIDTH))
    with pytest.raises(NotFoldableError, match="changes the key"):
        _folded(History().update(article, row, ("2", *row[1:])), article)


@pytest.mark.parametrize("count", [1, 3])
def test_deletes_and_updates_come_in_the_order_of_their_keys(count: int) -> None:
    articles, history = [_article(number=at, upd_cmd="MCALL") for at in range(count)], History()
    for number in ("10", "9", "-1", "8"):
        row = (number, "1", "x", *["1"] * (_WIDTH - 3))
        for article in articles:
            history.update(article, row, (*row[:3], "2", *row[4:])).delete(article, ("2" + number.strip("-"), *row[1:]))
    for folded in fold(history.table(), {it.article_id: it for it in articles}):
        assert list(_updates(folded)) == [("x", it) for it in ("-1", "8", "9", "10")]
        assert _keys(folded.deletes) == [("x", it) for it in ("21", "28", "29", "210")]


def test_updates_of_another_unique_column_keep_their_order() -> None:
    # Only the article that has such a column does: others of its shape go in the order of their keys.
    article, history = _article(upd_cmd="MCALL"), History()
    name = article.columns[1].model_copy(update={"unique": True})
    article = article.model_copy(update={"columns": (article.columns[0], name, *article.columns[2:])})
    other = article.model_copy(update={"article_id": 2})
    for number in ("3", "1", "2"):
        row = (number, number, "x", *["1"] * (_WIDTH - 3))
        history.update(article, row, (number, number + "0", *row[2:]))
        history.update(other, row, (*row[:3], "2", *row[4:]))
    first, second = fold(history.table(), {1: article, 2: other})
    assert list(_updates(first)) == [("x", it) for it in "312"]
    assert list(_updates(second)) == [("x", it) for it in "123"]


def _article(columns: Sequence[Column] = KEYS, number: int = 1, **settings: str) -> RegisteredArticle:
    article = Article.model_validate({"source": TableName("public", "t"), **settings})
    return registered(article, table_description(TableName("public", "t"), columns), number)


def _folded(history: History, article: RegisteredArticle) -> Folded:
    (folded,) = fold(history.table(), {article.article_id: article})
    return folded


def _keys(columns: tuple[object, ...]) -> list[Image]:
    lists = [[values(it)[0] for it in column.to_pylist()] for column in columns]  # type: ignore[attr-defined]
    return list(zip(*lists, strict=True))


def _lines(folded: Folded) -> list[Image]:
    return [tuple(values(line)) for line in folded.inserts.to_pylist()]


def _updates(folded: Folded) -> dict[Image, dict[int, str | None]]:
    updates = folded.updates
    if updates is None:
        return {}
    rows: dict[Image, dict[int, str | None]] = {key: {} for key in _keys(updates.keys)}
    for at, column in updates.values.items():
        cells = [values(it)[0] for it in column.to_pylist()]
        for row, cell, sets in zip(rows.values(), cells, updates.setting(at), strict=True):
            if sets:
                row[at] = cell
    return rows
