"""A network between a job and a server that is slow, or can be cut: at once, for a while, or at a chosen message."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum, auto
from types import TracebackType
from typing import Self

from tranrepl.connections import Connection

_CHUNK = 64 * 1024


class When(Enum):
    """On which side of the server's work the network is cut."""

    BEFORE = auto()
    """The message never arrives."""
    AFTER = auto()
    """The server has done what it says and answered; the answer never arrives."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Where to cut: at the first message that holds `at`, in a session that has sent `once_seen`."""

    at: bytes
    when: When
    once_seen: bytes = b""


class Proxy:
    """Forwards between who connects to `connection` and the server itself, each message so many seconds later."""

    def __init__(self, target: Connection, delay: float = 0.0) -> None:
        assert target.host is not None
        assert target.port is not None
        self._target = (target.host, target.port)
        self._sessions: list[_Session] = []
        self._lock = threading.Lock()
        self._cut: Cut | None = None
        self.delay = delay
        self._listener = _listener(0)
        port = self._listener.getsockname()[1]
        self.connection = replace(target, host="127.0.0.1", port=port)
        self._port = port

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.break_down()

    def cut_at(self, cut: Cut) -> None:
        """Cut at that message, once."""
        self._cut = cut

    def has_cut(self) -> bool:
        """Return whether `cut_at` has happened."""
        return self._cut is None

    def break_down(self) -> None:
        """Cut all sessions and refuse new ones."""
        with self._lock:
            _close(self._listener)
            for session in self._sessions:
                session.close()
            self._sessions.clear()

    def repair(self) -> None:
        """Take connections again."""
        self._listener = _listener(self._port)
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def cut_due(self, message: bytes, seen: bytes) -> When | None:
        """Return on which side to cut at this message, the last one of what a session has sent."""
        cut = self._cut
        if cut is None or cut.at not in message or cut.once_seen not in seen:
            return None
        self._cut = None
        return cut.when

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
                server = socket.create_connection(self._target)
            except OSError:
                return
            session = _Session(self, client, server)
            with self._lock:
                self._sessions.append(session)
            session.start()


class _Session:
    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        self._silent = threading.Event()
        self._answered = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._requests, daemon=True).start()
        threading.Thread(target=self._answers, daemon=True).start()

    def close(self) -> None:
        _close(self._client)
        _close(self._server)

    def _requests(self) -> None:
        seen = b""
        with suppress(OSError):
            while message := self._client.recv(_CHUNK):
                seen += message
                when = self._proxy.cut_due(message, seen)
                if when is When.AFTER:
                    self._silent.set()
                    self._server.sendall(message)
                    self._answered.wait()
                if when is not None:
                    self._proxy.break_down()
                    return
                time.sleep(self._proxy.delay)
                self._server.sendall(message)
        self.close()

    def _answers(self) -> None:
        with suppress(OSError):
            while answer := self._server.recv(_CHUNK):
                if self._silent.is_set():
                    break
                self._client.sendall(answer)
        self._answered.set()
        if not self._silent.is_set():
            self.close()


def _listener(port: int) -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen()
    return listener


def _close(end: socket.socket) -> None:
    """Close a socket, also for a thread that waits for it."""
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()
