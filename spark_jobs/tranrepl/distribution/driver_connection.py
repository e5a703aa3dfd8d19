"""What binds a lasting Spark task to the driver that started it: a connection that the driver cuts to end the task, and
that is cut where the driver has died."""

from __future__ import annotations

import select
import socket
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from tranrepl.errors import TransientError


@dataclass(frozen=True, slots=True)
class DriverAddress:
    """How a task finds its driver. It travels pickled inside the function that Spark runs."""

    host: str
    port: int

    def join(self) -> DriverConnection:
        """Connect. Raises TransientError where the driver is not there."""
        try:
            return DriverConnection(socket.create_connection((self.host, self.port)))
        except OSError as error:
            raise TransientError(f"a task cannot reach its driver at {self.host}: {error}") from error


class DriverConnection:
    """The task's end."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def is_cut(self) -> bool:
        """Return whether the task is to end, after what it has at hand."""
        return self.wait(None, 0.0)

    def wait(self, other: int | None, seconds: float) -> bool:
        """Wait until it is cut, or until something can be read from another descriptor, and no longer than so many
        seconds. Return whether it is cut."""
        watched = [self._connection.fileno(), *([] if other is None else [other])]
        readable, _, _ = select.select(watched, [], [], seconds)
        # The driver sends nothing: what can be read is the end.
        return self._connection.fileno() in readable


class DriverConnectionServer:
    """The driver's end, for one task. Nobody who connects learns anything: that it is cut is all there is to know."""

    def __init__(self, host: str, bind_address: str) -> None:
        # A connection that nobody has accepted lives as long as this does.
        self._socket = socket.create_server((bind_address, 0))
        self.address = DriverAddress(host, self._socket.getsockname()[1])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def cut(self) -> None:
        """Let the task end, where it has connected: one that found no driver would end by an error. It can be done
        again.
        """
        if self._socket.fileno() >= 0 and select.select([self._socket], [], [], 0.0)[0]:
            self._socket.close()
