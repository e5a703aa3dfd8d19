"""What is known of the positions of a kind of Publisher, without asking one."""

from __future__ import annotations

from typing import Protocol

from tranrepl.model.position import Position


class Positions(Protocol):
    """A transaction's `xact_seqno` is the position of its commit, a multiple of `model.position.MARKS`."""

    def text(self, position: Position) -> str:
        """Return the position as the Publisher's own tools write it."""
        ...

    def parse(self, text: str) -> Position:
        """Return the position that the text stands for. Raises ValueError, which says what is allowed."""
        ...

    def watermark(self, position: Position) -> bytes:
        """Return the `xact_seqno` of whoever has all that the log holds before the position, and nothing after it."""
        ...

    def share(self, start: Position, end: Position, at: bytes) -> float:
        """Return how much of the log between two positions lies before an `xact_seqno`, from 0 to 1."""
        ...
