"""What alerts and metrics are sent to: a mail server, a web server and a StatsD server on loopback that keep what they
get."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True, slots=True)
class Mailbox:
    """An SMTP server's port, and what was delivered to it."""

    port: int
    messages: list[EmailMessage] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Posted:
    path: str
    authorization: str | None
    body: Any


@dataclass(frozen=True, slots=True)
class Hook:
    """A web server's address, what was posted to it, and each request's method with all of its headers."""

    url: str
    posts: list[Posted] = field(default_factory=list)
    asked: list[tuple[str, str, Mapping[str, str]]] = field(default_factory=list)
    """Method, path and headers."""


@dataclass(frozen=True, slots=True)
class StatsdServer:
    """A StatsD server's port, and the lines that were sent to it: `name:value|type`."""

    port: int
    lines: list[str] = field(default_factory=list)


@contextmanager
def mail_server() -> Iterator[Mailbox]:
    """Yield a server that speaks as much of SMTP (RFC 5321) as smtplib uses without a login."""
    messages: list[EmailMessage] = []

    class Session(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self._say("220 tests")
            while line := self.rfile.readline():
                verb = line.split()[0].upper() if line.split() else b""
                if verb == b"DATA":
                    self._say("354 go on")
                    messages.append(self._message())
                self._say("221 bye" if verb == b"QUIT" else "250 ok")
                if verb == b"QUIT":
                    return

        def _message(self) -> EmailMessage:
            lines: list[bytes] = []
            while (line := self.rfile.readline()) != b".\r\n":
                lines.append(line.removeprefix(b".") if line.startswith(b"..") else line)
            return message_from_bytes(b"".join(lines), policy=policy.default)

        def _say(self, text: str) -> None:
            self.wfile.write(f"{text}\r\n".encode())

    with _served(socketserver.ThreadingTCPServer(("127.0.0.1", 0), Session)) as port:
        yield Mailbox(port, messages)


@contextmanager
def web_server(status: int = 200) -> Iterator[Hook]:
    """Yield a server that answers every request with `status`."""
    posts: list[Posted] = []
    asked: list[tuple[str, str, Mapping[str, str]]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            asked.append((self.command, self.path, dict(self.headers.items())))
            self.send_response(status)
            self.end_headers()

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            posts.append(Posted(self.path, self.headers["Authorization"], body))
            self.do_HEAD()

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    with _served(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as port:
        yield Hook(f"http://127.0.0.1:{port}/services/T0/hook", posts, asked)


@contextmanager
def statsd_server() -> Iterator[StatsdServer]:
    """Receive, and keep each line of each datagram."""
    lines: list[str] = []

    class Handler(socketserver.DatagramRequestHandler):
        def handle(self) -> None:
            lines.extend(self.rfile.read().decode().splitlines())

    with _served(socketserver.UDPServer(("127.0.0.1", 0), Handler)) as port:
        yield StatsdServer(port, lines)


@contextmanager
def _served(server: socketserver.TCPServer | socketserver.UDPServer) -> Iterator[int]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield int(server.socket.getsockname()[1])
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
