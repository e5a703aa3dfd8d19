"""Queries that no page waits for."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from support.observed import wait_until
from tranrepl_airflow.monitor import background_queries
from tranrepl_airflow.monitor.background_queries import CachedQuery


def _last(answers: CachedQuery[str, int], key: str) -> Callable[[], bool]:
    return lambda: answers.last(key) is not None


def test_an_answer_is_there_later_and_cached() -> None:
    asked: list[str] = []

    def ask(key: str) -> int:
        asked.append(key)
        return len(asked)

    answers = CachedQuery[str, int](ask, 60.0)
    wait_until(_last(answers, "a"))
    assert (answers.last("a"), asked) == (1, ["a"])


def test_a_query_that_hangs_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, over = [], threading.Event()

    def ask(key: str) -> int:
        asked.append(key)
        if len(asked) == 1:
            over.wait()
        return len(asked)

    answers = CachedQuery[str, int](ask, 60.0)
    assert answers.last("a") is None
    wait_until(lambda: asked == ["a"])
    assert answers.last("a") is None
    assert asked == ["a"]
    monkeypatch.setattr(background_queries, "_AWAITED_SECONDS", 0.0)
    wait_until(_last(answers, "a"))
    over.set()


def test_a_query_that_fails_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    asked: list[str] = []

    def ask(key: str) -> int:
        asked.append(key)
        if len(asked) == 1:
            raise ValueError(key)
        return len(asked)

    answers = CachedQuery[str, int](ask, 0.0)
    wait_until(_last(answers, "a"))
    assert asked[:2] == ["a", "a"]
