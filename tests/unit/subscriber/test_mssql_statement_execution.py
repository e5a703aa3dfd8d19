"""Calls over a driver that raises messages as errors: what SQL Server sends and the server of the other tests does
not."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa

from tranrepl.subscriber.base.execution import CALLS_PROCEDURE
from tranrepl.subscriber.mssql.statement_execution import Messages, configure, listen


class _DriverError(Exception):
    """As pymssql raises it: number and text."""


@dataclass
class _Cursor:
    """Answers a call with a message of this severity, and has executed all of it, or has been cancelled before."""

    messages: Messages
    severity: int
    number: int = 50000
    cancelled: bool = False
    mark: bytes = b""
    description: Any = None
    executed: list[str] = field(default_factory=list)

    def answer(self, statement: str) -> None:
        self.executed.append(statement)
        if statement == "select context_info()":
            return
        if not self.cancelled:
            self.mark = bytes.fromhex(statement.rpartition("0x")[2])
        self.messages.note(1, self.severity, b"", b"dbo.part", 3, b"said")
        if self.severity >= 6:
            raise _DriverError(self.number, b"said")

    def execute(self, statement: str) -> None:
        self.answer(statement)

    def fetchone(self) -> tuple[bytes | None]:
        return (self.mark.ljust(128, b"\0") if self.mark else None,)


def _call(severity: int, **answer: Any) -> _Cursor:
    """Call a procedure that says something, as an engine of ours does."""
    info: dict[str, object] = {}
    handlers: list[Any] = []
    listen(SimpleNamespace(_conn=SimpleNamespace(set_msghandler=handlers.append)), info)
    (messages,) = info.values()
    assert isinstance(messages, Messages)
    cursor = _Cursor(messages, severity, **answer)
    engine = configure(sa.create_engine("sqlite://"))
    (execute,) = engine.dialect.dispatch.do_execute
    dialect = SimpleNamespace(
        dbapi=SimpleNamespace(Error=_DriverError), do_execute=lambda it, statement, *_: it.answer(statement)
    )
    context = SimpleNamespace(
        execution_options={CALLS_PROCEDURE: True}, dialect=dialect, root_connection=SimpleNamespace(info=info)
    )
    assert execute(cursor, "exec [dbo].[part] 1", {}, context)
    return cursor


@pytest.mark.parametrize("severity", [0, 5, 6, 9, 11, 12])
def test_a_message_stops_nothing_where_the_call_has_ended(severity: int) -> None:
    cursor = _call(severity)
    assert cursor.messages.take() == [f"severity {severity}: said (procedure dbo.part)"]
    assert cursor.executed[0].splitlines()[1] == "exec [dbo].[part] 1"


@pytest.mark.parametrize(
    ("severity", "answer"),
    [(13, {}), (16, {}), (11, {"cancelled": True}), (9, {"cancelled": True}), (11, {"number": 3701})],
    ids=["13", "16", "cancelled in its midst", "cancelled at 9", "the server's own"],
)
def test_any_other_message_that_the_driver_raises_is_an_error(severity: int, answer: dict[str, Any]) -> None:
    with pytest.raises(_DriverError):
        _call(severity, **answer)


def test_other_statements_are_left_to_the_driver() -> None:
    engine = configure(sa.create_engine("sqlite://"))
    (ours,) = engine.dialect.dispatch.do_execute
    context = SimpleNamespace(execution_options={}, isinsert=False, isupdate=False, isdelete=False)
    assert ours(None, "select 1", {}, context) is False
