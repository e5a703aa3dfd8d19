"""Error 20598 in SQL Server's words: an UPDATE or DELETE command that met no row at the Subscriber."""

from __future__ import annotations

from collections.abc import Iterable

from tranrepl.model.commands import Operation


def row_not_found_text(operation: Operation, table: object) -> str:
    """Return the message up to where the key follows, as in `id = 5`."""
    return (
        f"The row was not found at the Subscriber when applying the replicated {operation.name} command for Table "
        f"'{table}' with Primary Key(s): "
    )


def key_text(key: Iterable[tuple[str, str | None]]) -> str:
    """Return names and values of the key's columns."""
    return ", ".join(f"{name} = {value}" for name, value in key)
