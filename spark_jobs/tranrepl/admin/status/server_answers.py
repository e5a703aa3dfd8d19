"""Queries to servers that may not answer: run in threads, and waited for up to a deadline."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

from tranrepl.errors import ReplicationError, TransientError

Answer = TypeVar("Answer")


class PendingAnswer(Generic[Answer]):
    """A question on its way, in a thread of its own. A thread that waits for a server which never answers is left to
    itself, and ends with the process."""

    def __init__(self, server: str, question: Callable[[], Answer], patience: float) -> None:
        self._server = server
        self._question = question
        self._patience = patience
        self._deadline = time.monotonic() + patience
        self._answer: Future[Answer] = Future()
        threading.Thread(target=self._ask, daemon=True).start()

    def _ask(self) -> None:
        try:
            self._answer.set_result(self._question())
        except Exception as error:  # noqa: BLE001
            self._answer.set_exception(error)

    def answer(self) -> Answer | ReplicationError:
        """Return the answer, or the error in its place: TransientError where none came in time. Raises what is
        a bug."""
        try:
            return self._answer.result(max(0.0, self._deadline - time.monotonic()))
        except TimeoutError:
            return TransientError(
                f"{self._server}: no answer within {self._patience:g} s",
                remedy="check host and port, and that the server runs",
            )
        except ReplicationError as error:
            return error


def error_line(server: str, error: ReplicationError) -> str:
    """Return an error as a line: that a server is away, or what it refuses."""
    text = f"{server} is away: {error.message}" if isinstance(error, TransientError) else error.message
    return f"{text} → {error.report.remedy}" if error.report.remedy else text
