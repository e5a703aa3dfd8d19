"""What a server says beside its answers: PRINT, and RAISERROR of a severity that stops nothing.

Source: "Using Custom Stored Procedures in Articles" (SQL Server 2000): severity above 12 stops the Distribution Agent.
"Database Engine error severities": 0 to 10 are messages.
"""

from __future__ import annotations

import sqlalchemy as sa

from tranrepl.jobs.results import MOST_NOTICES

HIGHEST_SEVERITY = 12
"""The highest severity of RAISERROR that does not stop a delivery."""
_KEY = "tranrepl_messages"


class Messages:
    """Messages of one connection, as they arrive (pymssql: `set_msghandler`)."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self.highest_severity = 0

    def forget(self) -> None:
        self._texts, self.highest_severity = [], 0

    def take(self) -> list[str]:
        """Return the messages that have arrived, and forget them."""
        taken = self._texts
        self.forget()
        return taken

    def note(self, state: int, severity: int, server: bytes, procedure: bytes, line: int, text: bytes) -> None:
        """Keep a message; the arguments are those of the driver's handler. Never raises: C calls it."""
        del state, server, line
        self.highest_severity = max(self.highest_severity, severity)
        if severity <= HIGHEST_SEVERITY and len(self._texts) < MOST_NOTICES:
            at = f" (procedure {_decoded(procedure)})" if procedure else ""
            self._texts.append(f"severity {severity}: {_decoded(text)}{at}")


def _decoded(text: bytes) -> str:
    return text.decode(errors="replace").strip()


def messages_of(session: sa.Connection) -> Messages:
    found: Messages = session.info[_KEY]
    return found


def listen(driver: object, info: dict[str, object]) -> None:
    """Keep the messages of the driver's new connection, in `info` of SQLAlchemy's."""
    messages = Messages()
    info[_KEY] = messages
    # Documented so by pymssql: its connection has no handler of its own.
    driver._conn.set_msghandler(messages.note)  # type: ignore[attr-defined]
