"""A Publisher's log as it is written: followed by one session, to which the server sends what happens, and which asks
nothing."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from tranrepl.model.position import Position
from tranrepl.publisher.log_range import LogPart, LogRange, RowFilters


class StreamEndedError(Exception):
    """The stream is over, with its session: nothing of what was not confirmed is lost. Why is its text."""


class OpenLogStream(Protocol):
    """What arrives is whole transactions in commit order, some of it on its way."""

    @property
    def log(self) -> LogRange:
        """The log as what makes commands of changes asks for it; it is not read by this."""
        ...

    @property
    def filters(self) -> RowFilters | None: ...

    @property
    def arrived_at(self) -> float | None:
        """When the first of the whole transactions arrived that were not taken (`time.monotonic`); None where there are
        none."""
        ...

    @property
    def arrived_bytes(self) -> int:
        """How much of the log was not taken, the beginning of a transaction included."""
        ...

    @property
    def read_to(self) -> Position | None:
        """Everything before this was taken, and what did not arrive comes after it; None where a transaction is on its
        way, or it is hardly more than is confirmed."""
        ...

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when something arrives."""
        ...

    def receive(self) -> None:
        """Take in what has arrived, and answer where the server asks for it. Raises StreamEndedError."""
        ...

    def take(self) -> LogPart | None:
        """Decode the whole transactions that have arrived; None where one of them changes a table that was not known
        when the stream began: nothing is to be registered of it, and the stream is of no more use."""
        ...

    def proof(self, registered: str | None, last: bytes | None) -> str | None:
        """Return what is to be registered with a position that was read to just now (`Publisher.proof`). `registered`:
        with the one before; `last`: the last transaction with a command."""
        ...

    def confirm(self, position: Position) -> None:
        """Tell the server that everything before `position` is registered. Raises StreamEndedError."""
        ...


class LogStream(Protocol):
    """The log from a position on. It travels pickled, as a `LogRange` does."""

    def open(self) -> AbstractContextManager[OpenLogStream]:
        """Begin to follow. Raises ReplicationError where the server does not let us."""
        ...
