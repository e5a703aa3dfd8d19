"""Answers of servers that no page waits for: asked for beside the pages, and kept for a while."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Answer = TypeVar("Answer")


_AWAITED_SECONDS = 60.0
"""A question that hangs for longer is asked again, beside."""


@dataclass(slots=True)
class _Question(Generic[Answer]):
    asked: float
    answer: Answer | None = None
    pending: bool = True


class KeptAnswers(Generic[Key, Answer]):
    """The last answers, in one process of the API server. `ask` raises nothing."""

    def __init__(self, ask: Callable[[Key], Answer], kept_seconds: float) -> None:
        self._ask = ask
        self._kept_seconds = kept_seconds
        self._questions: dict[Key, _Question[Answer]] = {}
        self._lock = threading.Lock()

    def last(self, key: Key) -> Answer | None:
        """Return the last answer, None before the first. One that is old is asked for again, beside."""
        now = time.monotonic()
        with self._lock:
            known = self._questions.get(key)
            if known is not None and now - known.asked <= (_AWAITED_SECONDS if known.pending else self._kept_seconds):
                return known.answer
            question = _Question(now, None if known is None else known.answer)
            self._questions[key] = question
        threading.Thread(target=self._answer, args=(key, question), daemon=True).start()
        return question.answer

    def _answer(self, key: Key, question: _Question[Answer]) -> None:
        try:
            question.answer = self._ask(key)
        finally:
            question.pending = False
