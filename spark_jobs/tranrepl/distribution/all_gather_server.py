"""The rounds in which the streams of a delivery gather their ballots: over a socket of the driver's process.

Spark's own barrier (`allGather`) takes longer than a commit batch does.
"""

from __future__ import annotations

import hmac
import json
import secrets
import socket
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import IO, Self

from tranrepl.errors import TransientError

_GREETING_SECONDS = 10.0
_LONGEST_GREETING = 200


@dataclass(frozen=True, slots=True)
class Address:
    """How a stream finds it. It travels pickled inside the function that Spark runs; strangers lack the token."""

    host: str
    port: int
    token: str

    def join(self, stream: int) -> SocketVote:
        """Take part as this stream. Raises TransientError where nobody is there."""
        try:
            connection = socket.create_connection((self.host, self.port))
        except OSError as error:
            raise TransientError(f"stream {stream} cannot reach its driver at {self.host}: {error}") from error
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        vote = SocketVote(connection, connection.makefile("rw", encoding="utf-8"))
        vote.say([self.token, str(stream)])
        return vote


@dataclass(slots=True)
class SocketVote:
    """One stream's connection to the server."""

    connection: socket.socket
    file: IO[str]

    def gather(self, ballot: str) -> Sequence[str]:
        """Wait for all; everyone's ballots, by stream. Raises TransientError where a stream or the driver is lost."""
        try:
            self.say([ballot])
            answer = self.file.readline()
        except OSError as error:
            raise _lost() from error
        if not answer:
            raise _lost()
        ballots: list[str] = json.loads(answer)
        return ballots

    def say(self, words: Sequence[str]) -> None:
        self.file.write(json.dumps(words) + "\n")
        self.file.flush()

    def close(self) -> None:
        _end(self.connection)


def _lost() -> TransientError:
    return TransientError("another stream's process was lost")


def _end(connection: socket.socket) -> None:
    """Close the connection, also where a file still holds it open or a thread waits in it."""
    # The other end may have been faster.
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


class AllGatherServer:
    """The driver's end, for one delivery: gives every ballot to everyone, until somebody does not come any more."""

    def __init__(self, host: str, bind_address: str, streams: int) -> None:
        self._socket = socket.create_server((bind_address, 0))
        self._streams = streams
        self._open: list[socket.socket] = [self._socket]
        self.address = Address(host, self._socket.getsockname()[1], secrets.token_hex(16))
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()
        self._thread.join()

    def _serve(self) -> None:
        try:
            members = [self._accept() for _ in range(self._streams)]
            files = [file for _, file in sorted(members, key=lambda it: it[0])]
            while all(ballots := [file.readline() for file in files]):
                answer = json.dumps([json.loads(ballot)[0] for ballot in ballots]) + "\n"
                for file in files:
                    file.write(answer)
                    file.flush()
        except (OSError, ValueError):
            # A stream that still waits learns it from the end of its connection.
            pass
        finally:
            self._close()

    def _accept(self) -> tuple[int, IO[str]]:
        while True:
            connection, _ = self._socket.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._open.append(connection)
            file = connection.makefile("rw", encoding="utf-8")
            stream = self._greeted(connection, file)
            if stream is not None:
                return stream, file
            _end(connection)

    def _greeted(self, connection: socket.socket, file: IO[str]) -> int | None:
        """Return which stream greets; None for a stranger, whatever that sends."""
        connection.settimeout(_GREETING_SECONDS)
        try:
            token, stream = json.loads(file.readline(_LONGEST_GREETING))
            known = hmac.compare_digest(str(token).encode(), self.address.token.encode())
            number = int(stream)
        except (OSError, ValueError, TypeError):
            return None
        connection.settimeout(None)
        return number if known else None

    def _close(self) -> None:
        for it in self._open:
            _end(it)
