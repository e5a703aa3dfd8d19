"""How statements are executed over pymssql: to their end, whatever a procedure or a trigger answers meanwhile.

pymssql stops reading where rows arrive, and cancels what follows with the next statement: an error after them would
be lost, and the procedure with it. It raises a message of severity 6 or more as an error, and cancels the rest.
"""

from __future__ import annotations

from itertools import count
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event

from tranrepl.jobs.results import MOST_NOTICES
from tranrepl.subscriber.base.execution import CALLS_PROCEDURE, SETS_IDENTITY
from tranrepl.subscriber.mssql.sql_text import qualified

HIGHEST_SEVERITY = 12
"""The highest severity of RAISERROR that does not stop a delivery."""
_KEY = "tranrepl_messages"


class Messages:
    """Messages of one connection, as they arrive beside answers (pymssql: `set_msghandler`): PRINT, and
    RAISERROR of a severity that stops nothing.

    Source: "Using Custom Stored Procedures in Articles" (SQL Server 2000): severity above 12 stops the Distribution
    Agent. "Database Engine error severities": 0 to 10 are messages.
    """

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


_NO_ROWS = "select 1 as tranrepl where 1 = 0"
"""What is read before the call: the messages after it arrive once all has been executed, not in its midst."""
_FIRST_USER_ERROR = 50000
_MARKS = count(1)
_MARK_BYTES = 8


def configure(engine: sa.Engine) -> sa.Engine:
    """Return the engine, whose statements are executed so from now on."""
    event.listen(engine, "connect", lambda driver, record: listen(driver, record.info))
    event.listen(engine, "do_execute", _execute)
    event.listen(engine, "do_executemany", _execute_many)
    return engine


def _execute(cursor: Any, statement: str, parameters: Any, context: Any) -> bool:
    """Execute a statement; return whether it was one of ours."""
    if context.execution_options.get(CALLS_PROCEDURE):
        _call(cursor, statement, parameters, context)
        return True
    table = context.execution_options.get(SETS_IDENTITY)
    changes = context.isinsert or context.isupdate or context.isdelete
    if table is None and not changes:
        return False
    written = statement if table is None else with_identity(statement, table)
    context.dialect.do_execute(cursor, written, parameters, context)
    _drain(cursor)
    return True


def _execute_many(cursor: Any, statement: str, parameters: Any, context: Any) -> bool:
    """Execute an INSERT of identities many times; return whether it was one."""
    table = context.execution_options.get(SETS_IDENTITY)
    if table is not None:
        context.dialect.do_executemany(cursor, with_identity(statement, table), parameters, context)
    return table is not None


def with_identity(statement: str, table: tuple[str | None, str]) -> str:
    name = qualified(*table)
    return f"set identity_insert {name} on\n{statement}\nset identity_insert {name} off"


def _drain(cursor: Any) -> None:
    """Read all answers, so that a late error is met. They are nobody's: what asks for rows does not come here."""
    while cursor.description is not None and cursor.nextset():
        pass
    cursor.description = None


def _call(cursor: Any, statement: str, parameters: Any, context: Any) -> None:
    """Call a procedure. Raises the driver's error, but for a message that does not stop a delivery."""
    messages = messages_of(context.root_connection)
    messages.forget()
    mark = next(_MARKS).to_bytes(_MARK_BYTES, "big")
    try:
        written = f"{_NO_ROWS}\n{statement}\nset context_info 0x{mark.hex()}"
        context.dialect.do_execute(cursor, written, parameters, context)
        _drain(cursor)
    except context.dialect.dbapi.Error as error:
        if messages.highest_severity > HIGHEST_SEVERITY or not _is_users(error) or not _reached(cursor, mark):
            raise


def _is_users(error: Exception) -> bool:
    """Return whether RAISERROR raised it with a message of the procedure's own."""
    number = error.args[0] if error.args else None
    return isinstance(number, int) and number >= _FIRST_USER_ERROR


def _reached(cursor: Any, mark: bytes) -> bool:
    """Return whether the session has executed what follows the call, before the driver cancelled it."""
    cursor.execute("select context_info()")
    (found,) = cursor.fetchone()
    cursor.description = None
    return bytes(found or b"").startswith(mark)
