"""Folding is what a plain loop over the commands, one row at a time, would give."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from integration.compliance.history import Column, History, Image, registered, table_description
from tranrepl.article import RegisteredArticle
from tranrepl.image_lines import values
from tranrepl.settings import Article, TableName
from tranrepl.subscriber.fold import Folded, NotFoldableError, fold

KEYS = (Column("id", "integer", key=2), Column("name"), Column("place", key=1), *(Column(f"c{it}") for it in range(8)))
_WIDTH = len(KEYS)


@dataclass
class Loop:
    """Rows by key as they would be, where a row that must have been there is known by its key alone."""

    was_there: dict[Image, bool] = field(default_factory=dict)
    is_there: dict[Image, bool] = field(default_factory=dict)
    left: set[Image] = field(default_factory=set)
    values: dict[Image, dict[int, str | None]] = field(default_factory=dict)

    def act(self, operation: str, before: Image | None, after: Image | None) -> bool:
        """Whether the command follows from those before it."""
        row = before or after
        assert row is not None
        key = (row[2], row[0])
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
_acts = st.lists(st.tuples(st.sampled_from(["insert", "update", "delete"]), _rows, _rows), min_size=1, max_size=25)


@settings(deadline=None, max_examples=300)
@given(_acts, st.sampled_from(["SCALL", "MCALL"]), st.sampled_from(["CALL", "XCALL"]))
def test_folding_is_what_a_loop_gives(acts: list[tuple[str, Image, Image]], update: str, delete: str) -> None:
    article = _article(upd_cmd=update, del_cmd=delete)
    history, loop, follows = History(), Loop(), True
    for operation, before, after in acts:
        after = (before[0], after[1], before[2], *after[3:])
        match operation:
            case "insert":
                history.insert(article, after)
                follows &= loop.act(operation, None, after)
            case "update":
                history.update(article, before, after)
                follows &= loop.act(operation, before, after)
            case _:
                history.delete(article, before)
                follows &= loop.act(operation, before, None)
    if all(operation == "insert" for operation, _, _ in acts):
        return
    if not follows:
        with pytest.raises(NotFoldableError):
            fold(history.table(), article)
        return
    folded = fold(history.table(), article)
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
    assert _updates(fold(history.table(), article)) == {("1", "1"): dict(enumerate((*row[:4], "3", *row[5:])))}


@pytest.mark.parametrize("syntax", ["CALL", "SCALL", "MCALL", "XCALL"])
def test_an_update_of_the_key_is_not_folded(syntax: str) -> None:
    article = _article(upd_cmd=syntax)
    row = tuple("1" for _ in range(_WIDTH))
    with pytest.raises(NotFoldableError, match="changes the key"):
        fold(History().update(article, row, ("2", *row[1:])).table(), article)


def test_deletes_and_updates_come_in_the_order_of_their_keys() -> None:
    article, history = _article(upd_cmd="MCALL"), History()
    for number in ("10", "9", "-1", "8"):
        row = (number, "1", "x", *["1"] * (_WIDTH - 3))
        history.update(article, row, (*row[:3], "2", *row[4:])).delete(article, ("2" + number.strip("-"), *row[1:]))
    folded = fold(history.table(), article)
    assert list(_updates(folded)) == [("x", it) for it in ("-1", "8", "9", "10")]
    assert _keys(folded.deletes) == [("x", it) for it in ("21", "28", "29", "210")]


def test_updates_of_another_unique_column_keep_their_order() -> None:
    article, history = _article(upd_cmd="MCALL"), History()
    name = article.columns[1].model_copy(update={"unique": True})
    article = article.model_copy(update={"columns": (article.columns[0], name, *article.columns[2:])})
    for number in ("3", "1", "2"):
        row = (number, number, "x", *["1"] * (_WIDTH - 3))
        history.update(article, row, (number, number + "0", *row[2:]))
    assert list(_updates(fold(history.table(), article))) == [("x", it) for it in "312"]


def _article(**settings: str) -> RegisteredArticle:
    article = Article.model_validate({"source": TableName("public", "t"), **settings})
    return registered(article, table_description(TableName("public", "t"), KEYS), 1)


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
