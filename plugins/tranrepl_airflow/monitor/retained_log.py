"""How much log each Publisher keeps for its slot, asked for beside the pages: none of them waits for a Publisher."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

from tranrepl.errors import ReplicationError
from tranrepl.publisher.registry import open_publisher
from tranrepl_airflow.job_connections import resolve_connections
from tranrepl_airflow.monitored import MonitoredPublication

_KEPT_SECONDS = 10.0
_APPLICATION = "tranrepl monitor"


@dataclass(frozen=True, slots=True)
class RetainedLog:
    """What a Publisher said last."""

    bytes: int | None = None
    status: str | None = None
    """The server's own word: reserved, extended, unreserved or lost; None where there is no slot."""
    problem: str | None = None
    """Why it gave no answer."""


@dataclass(slots=True)
class _Question:
    asked: float
    answer: RetainedLog | None = None
    pending: bool = True


@dataclass(slots=True)
class RetainedLogs:
    """The last answers of all Publishers, in one process of the API server."""

    _questions: dict[MonitoredPublication, _Question] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def last(self, publication: MonitoredPublication) -> RetainedLog | None:
        """Return the last answer, None before the first. One that is old is asked for again, beside."""
        now = time.monotonic()
        with self._lock:
            known = self._questions.get(publication)
            if known is None or (not known.pending and now - known.asked > _KEPT_SECONDS):
                question = _Question(now, None if known is None else known.answer)
                self._questions[publication] = question
                threading.Thread(target=_ask, args=(publication, question), daemon=True).start()
                return question.answer
            return known.answer


def _ask(publication: MonitoredPublication, question: _Question) -> None:
    try:
        question.answer = _answer(publication)
    except ReplicationError as error:
        question.answer = RetainedLog(problem=error.message)
    except Exception as error:  # noqa: BLE001 - a thread has nobody else to tell
        question.answer = RetainedLog(problem=f"{type(error).__name__}")
    finally:
        question.pending = False


def _answer(publication: MonitoredPublication) -> RetainedLog:
    connections = resolve_connections([publication.publisher])
    with open_publisher(connections.by_id[publication.publisher], publication.publication, _APPLICATION) as publisher:
        health = publisher.health()
    kept = health.retained
    return RetainedLog(kept.size if kept else None, kept.status if kept else health.state)
