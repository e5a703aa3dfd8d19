"""Steps tried in bulk: all of a step, or nothing, which is counted with its reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Protocol

from tranrepl.subscriber.applier import Applied
from tranrepl.subscriber.batching.steps import BulkStep


class Bulk(Protocol):
    """Applies steps in bulk, in one session. Errors of the database are raised as its driver does."""

    def prepare(self, step: BulkStep) -> None:
        """Make what the step is staged in. Before the savepoint that may undo the step."""
        ...

    def apply(self, step: BulkStep) -> None:
        """Apply inside the open transaction. Raises MismatchError: then nothing of the step may stay."""
        ...

    def take_stage_seconds(self) -> float:
        """Return how long staging took since the last call."""
        ...


class BulkAttempts:
    """Tries steps in bulk, and counts what came of them."""

    def __init__(self, bulk: Bulk, why_undone: Callable[[BulkStep], str | None]) -> None:
        """Set how a step is tried: `why_undone` applies one by `bulk` within a savepoint and returns None where it was
        done, else why nothing of it stays. It raises what applying serially would meet too."""
        self._bulk = bulk
        self._why_undone = why_undone
        self._in_bulk, self._fallbacks = 0, Counter[str]()

    def apply(self, step: BulkStep) -> bool:
        """Return whether the step was applied; nothing of it otherwise."""
        done = self.count(self._why_undone(step))
        self._in_bulk += len(step.commands) if done else 0
        return done

    def count(self, why_undone: str | None) -> bool:
        """Count why something was undone, if it was; return whether it was done."""
        self._fallbacks.update(() if why_undone is None else (why_undone,))
        return why_undone is None

    def take_applied(self) -> Applied:
        """Return what was applied since it was asked last."""
        applied = Applied(self._in_bulk, self._fallbacks, self._bulk.take_stage_seconds())
        self._in_bulk, self._fallbacks = 0, Counter()
        return applied
