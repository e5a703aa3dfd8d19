"""An SQLite table rebuilt with another primary key, which no ALTER TABLE there changes.

Source: SQLite, "ALTER TABLE", section 7, "Making Other Kinds Of Table Schema Changes".
"""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa
from sqlglot.dialects.sqlite import SQLite

from tranrepl.subscriber.generic.column_declaration import with_primary_key

_PREFIX = "tranrepl_"
_STATEMENT = sa.text("SELECT sql FROM sqlite_schema WHERE type = 'table' AND lower(name) = lower(:name)")
_DEPENDENTS = sa.text(
    "SELECT sql FROM sqlite_schema WHERE type IN ('index', 'trigger') AND lower(tbl_name) = lower(:name) "
    "AND sql IS NOT NULL"
)
_COLUMNS = sa.text("SELECT name FROM pragma_table_xinfo(:name) WHERE hidden = 0")
_REFERRING = sa.text(
    "SELECT m.name FROM sqlite_schema m, pragma_foreign_key_list(m.name) f "
    "WHERE m.type = 'table' AND lower(f.\"table\") = lower(:name)"
)


def is_referred_to(session: sa.Connection, name: str) -> bool:
    """Return whether a foreign key refers to the table: dropped, it would take rows of other tables with it."""
    return session.execute(_REFERRING, {"name": name}).first() is not None


def rebuild(session: sa.Connection, name: str, key: Sequence[str]) -> None:
    """Rebuild the table with this primary key, with its rows, indexes and triggers, in the open transaction."""
    statement = session.execute(_STATEMENT, {"name": name}).scalar_one()
    dependents = session.scalars(_DEPENDENTS, {"name": name}).all()
    columns = ", ".join(_quoted(it) for it in session.scalars(_COLUMNS, {"name": name}))
    old, new = _quoted(name), _quoted(f"{_PREFIX}{name}")
    body = with_primary_key(statement, [_quoted(it) for it in key], SQLite.Tokenizer)
    # Views that name the table are looked at when they are read, and not where it is renamed.
    session.exec_driver_sql("PRAGMA legacy_alter_table = ON")
    try:
        for text in (
            f"CREATE TABLE {new} {body}",
            f"INSERT INTO {new} ({columns}) SELECT {columns} FROM {old}",  # noqa: S608 — quoted names
            f"DROP TABLE {old}",
            f"ALTER TABLE {new} RENAME TO {old}",
            *dependents,
        ):
            session.exec_driver_sql(text, execution_options={"no_parameters": True})
    finally:
        session.exec_driver_sql("PRAGMA legacy_alter_table = OFF")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
