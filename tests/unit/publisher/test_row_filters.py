"""What is asked of a Publisher about a filter, and which answers are cached."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from support.registered import unused_fields
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.names import TableName
from tranrepl.publisher.postgres import row_filters
from tranrepl.publisher.postgres.row_filters import PostgresRowFilters
from tranrepl.settings.publication import Article

_SETTINGS = Article(source=TableName("public", "t"))
_ARTICLE = RegisteredArticle(
    article_id=1,
    source=_SETTINGS.source,
    destination=_SETTINGS.source,
    source_object_id=1,
    columns=(),
    ins_cmd=_SETTINGS.ins_cmd,
    upd_cmd=_SETTINGS.upd_cmd,
    del_cmd=_SETTINGS.del_cmd,
    **unused_fields(_SETTINGS.source),
)
_SESSION: Any = None


@pytest.fixture
def questions(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Collect the values asked about; the answer is whether a value is longer than three."""
    asked: list[list[str]] = []

    def evaluate(_: PostgresRowFilters, __: RegisteredArticle, columns: list[pa.StringArray]) -> Any:
        asked.append(columns[0].to_pylist())
        return np.array([len(value) > 3 for value in asked[-1]], dtype=np.bool_)

    monkeypatch.setattr(PostgresRowFilters, "_evaluate", evaluate)
    return asked


def _matches(filters: PostgresRowFilters, values: list[str]) -> list[bool]:
    column = pa.array(values, pa.string())
    matching: list[bool] = filters.matches(_ARTICLE, column, [column]).tolist()
    return matching


def test_a_query_is_limited_in_bytes(questions: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_filters, "_ASKED_BYTES", 10)
    values = ["a", "bcde", "fghij", "kl", "x" * 50, "mno", "a"]
    assert _matches(PostgresRowFilters(_SESSION, {}), values) == [False, True, True, False, True, False, False]
    assert questions == [["a", "bcde"], ["fghij", "kl"], ["x" * 50, "mno"]]


def test_remembered_answers_are_limited_in_bytes(questions: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_filters, "_REMEMBERED_BYTES", 100)
    filters = PostgresRowFilters(_SESSION, {})
    for _ in range(2):
        assert _matches(filters, ["a", "bcde"]) == [False, True]
        assert _matches(filters, ["x" * 200]) == [True]
    assert questions == [["a", "bcde"], ["x" * 200], ["x" * 200]]
