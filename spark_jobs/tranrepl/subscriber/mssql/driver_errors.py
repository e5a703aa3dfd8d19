"""What pymssql's exceptions say: the server's number and text, without those of DB-Library around them."""

from __future__ import annotations

import re

from sqlalchemy.exc import DBAPIError

ENDED_TRANSACTION = frozenset({"266", "628", "3609", "3902", "3903", "3930", "3931", "3998", "6401"})
"""Errors of a session whose procedure or trigger has ended the transaction, or made it unfit to be committed."""
COUNT_CHANGED = "266"
"""The number of the error that a procedure has changed @@TRANCOUNT."""

_OF_COMMIT = re.compile(r"Cannot (?:begin|commit|start) transaction: \((\d+),")
_LIBRARY = "DB-Lib error message"
_NEWS = ("Changed database context to", "Changed language setting to")
"""Messages of every login: the driver repeats them for a connection that did not come about."""


def number_of(error: DBAPIError) -> int | None:
    """Return the number that pymssql raises as `(number, text)`, as a tuple of these within its arguments, or, of a
    COMMIT, as the text of such a tuple."""
    found: object = error.orig.args[0] if error.orig is not None and error.orig.args else None
    if isinstance(found, tuple) and found:
        found = found[0]
    if isinstance(found, str) and (of_commit := _OF_COMMIT.match(found)):
        return int(of_commit[1])
    return found if isinstance(found, int) else None


def text_of(error: BaseException) -> str:
    """Return what the server said, in one line; where it said nothing, what DB-Library did."""
    *_, text = error.args or ("",)
    if isinstance(text, tuple) and text:
        text = text[-1]
    if isinstance(text, bytes):
        text = text.decode(errors="replace")
    server, _, library = str(text).partition(_LIBRARY)
    lines = [it for it in server.strip().splitlines() if not it.startswith(_NEWS)] or library.strip().splitlines()[1:]
    return lines[0] if lines else type(error).__name__
