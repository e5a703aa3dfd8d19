"""What is copied for a fold: the text of its keys, its rows and its lines."""

from __future__ import annotations

from support.command_history import Column, History, registered, table_description
from tranrepl.model.names import TableName
from tranrepl.settings.publication import Article
from tranrepl.subscriber.batching.fold import fold
from tranrepl.subscriber.batching.fold_text import FoldText, KeyText, RowText, fold_text

COLUMNS = (Column("id", "integer", key=1), Column("name"), Column("note"))
_TABLE = TableName("public", "t")
_ARTICLE = registered(Article(source=_TABLE), table_description(_TABLE, COLUMNS), 1)


def _text(history: History) -> FoldText:
    (folded,) = fold(history.table(), {1: _ARTICLE})
    return fold_text(folded)


def test_nothing_but_inserts() -> None:
    history = History()
    history.insert(_ARTICLE, ("2", "a\tb", None))
    history.insert(_ARTICLE, ("1", "", "x"))
    text = _text(history)
    assert (text.keys, text.updates, bytes(text.inserts)) == (None, None, b"2\ta\\tb\t\\N\n1\t\tx\n")


def test_keys_have_their_actions() -> None:
    history = History()
    for key in ("3", "1"):
        history.delete(_ARTICLE, (key, "a", "b"))
    history.insert(_ARTICLE, ("9", "a", "b"))
    history.delete(_ARTICLE, ("9", "a", "b"))
    assert _text(history).keys == KeyText(memoryview(b"1\t1\n1\t3\n0\t9\n"), (1, 3))


def test_rows_that_set_different_columns_have_masks() -> None:
    history = History()
    history.update(_ARTICLE, ("2", "a", "b"), ("2", "A", "b"))
    history.update(_ARTICLE, ("1", "a", "b"), ("1", "A", None))
    text = _text(history).updates
    assert text == RowText(memoryview(b"1\tA\t\\N\t\\\\x06\n2\tA\t\\N\t\\\\x02\n"), (1, 2), frozenset([1]), (1, 2))
    assert text.masked


def test_rows_that_set_the_same_columns_have_none() -> None:
    history = History()
    history.update(_ARTICLE, ("1", "a", "b"), ("1", "A", "b"))
    text = _text(history).updates
    assert text == RowText(memoryview(b"1\tA\n"), (1,), frozenset([1]), (1, 1))
    assert not text.masked
