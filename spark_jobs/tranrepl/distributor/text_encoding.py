"""Messages and commands, written to a distribution database whatever characters its encoding has."""

from __future__ import annotations

from collections.abc import Mapping

import sqlalchemy as sa

_FREE_TEXT = frozenset({"comments", "error_text", "remedy", "command", "row_key"})
_TAKE_ALL = ("UTF8", "SQL_ASCII")


def writable(connection: sa.Connection, values: Mapping[str, object]) -> dict[str, object]:
    """Return a row's values by column. In free text, characters that not every encoding has become escapes
    (`\\u20ac`), unless the database takes all: an error must not be lost for what it quotes."""
    driver = connection.connection.driver_connection
    if driver is None or driver.info.parameter_status("server_encoding") in _TAKE_ALL:
        return dict(values)
    return {name: _escaped(value) if name in _FREE_TEXT else value for name, value in values.items()}


def _escaped(value: object) -> object:
    return value.encode("ascii", "backslashreplace").decode() if isinstance(value, str) else value
