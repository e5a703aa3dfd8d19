"""An SQLite table as the file keeps it, by the text of its CREATE TABLE: the text edited, where rows are stored as
before, and the table rebuilt, where they are stored otherwise: with another primary key, or one of another type.

Alembic's batch mode makes a table anew from what SQLAlchemy reads of it. What that does not read is gone then, without
an error: CHECK constraints without a name, COLLATE, types that SQLAlchemy does not know, AUTOINCREMENT, indexes of
expressions, and triggers. And it drops the old table, which takes the rows with it that refer to it ON DELETE CASCADE.

Source: SQLite, "ALTER TABLE", section 7, "Making Other Kinds Of Table Schema Changes".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import sqlalchemy as sa
from sqlglot.dialects.sqlite import SQLite

from tranrepl.subscriber.base.column_declaration import table_body, with_primary_key

_PREFIX = "tranrepl_"
_OLD_PREFIX = "tranrepl_old_"
_DEPENDENTS = sa.text(
    "SELECT sql FROM sqlite_schema WHERE type IN ('index', 'trigger') AND lower(tbl_name) = lower(:name) "
    "AND sql IS NOT NULL"
)
_COLUMNS = sa.text("SELECT name FROM pragma_table_xinfo(:name) WHERE hidden = 0")
_KEY = sa.text("SELECT name FROM pragma_table_info(:name) WHERE pk > 0 ORDER BY pk")
_REFERRING = sa.text(
    "SELECT DISTINCT m.name, m.sql FROM sqlite_schema m, pragma_foreign_key_list(m.name) f "
    "WHERE m.type = 'table' AND lower(f.\"table\") = lower(:name)"
)


def is_referred_to(session: sa.Connection, name: str) -> bool:
    """Return whether a foreign key refers to the table."""
    return session.execute(_REFERRING, {"name": name}).first() is not None


def primary_key(session: sa.Connection, name: str) -> list[str]:
    """Return the columns of the table's primary key, in key order."""
    return list(session.scalars(_KEY, {"name": name}))


def rebuild(session: sa.Connection, name: str, statement: str, key: Sequence[str], dropped: str | None = None) -> None:
    """Rebuild the table as this CREATE TABLE has its columns, with this primary key and with its rows, indexes and
    triggers, and without a column that is `dropped`, in the open transaction. Foreign keys that refer to it stay."""
    body = with_primary_key(statement, [_quoted(it) for it in key], SQLite.Tokenizer, dropped)
    before = table_body(table_text(session, name), SQLite.Tokenizer)
    dependents = session.scalars(_DEPENDENTS, {"name": name}).all()
    kept = [it for it in session.scalars(_COLUMNS, {"name": name}) if dropped is None or it.lower() != dropped.lower()]
    columns = ", ".join(map(_quoted, kept))
    texts = {it.name: it.sql for it in session.execute(_REFERRING, {"name": name})}
    table, new, old = _quoted(name), _quoted(f"{_PREFIX}{name}"), _quoted(f"{_OLD_PREFIX}{name}")
    # Views that name the table are looked at when they are read, and not where it is renamed.
    session.exec_driver_sql("PRAGMA legacy_alter_table = ON")
    try:
        _run(
            session,
            f"CREATE TABLE {new} {body}",
            f"INSERT INTO {new} ({columns}) SELECT {columns} FROM {table}",  # noqa: S608 — quoted names
            f"ALTER TABLE {table} RENAME TO {old}",
            f"ALTER TABLE {new} RENAME TO {table}",
        )
        if texts:
            # Foreign keys have followed the old table, whose rows, dropped, would take rows of other tables with them.
            own = {name: f"CREATE TABLE {table} {body}", f"{_OLD_PREFIX}{name}": f"CREATE TABLE {old} {before}"}
            others = {it: text for it, text in texts.items() if it.lower() != name.lower()}
            edit_texts(session, {**others, **own})
        _run(session, f"DROP TABLE {old}", *dependents)
    finally:
        session.exec_driver_sql("PRAGMA legacy_alter_table = OFF")


def _run(session: sa.Connection, *statements: str) -> None:
    for it in statements:
        session.exec_driver_sql(it, execution_options={"no_parameters": True})


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


_TEXT = sa.text("SELECT sql FROM sqlite_schema WHERE type = 'table' AND lower(name) = lower(:name)")
_EDIT = sa.text("UPDATE sqlite_schema SET sql = :sql WHERE type = 'table' AND lower(name) = lower(:name)")


def table_text(session: sa.Connection, name: str) -> str:
    """Return the text of a table that is there."""
    text: str = session.execute(_TEXT, {"name": name}).scalar_one()
    return text


def edit_texts(session: sa.Connection, texts: Mapping[str, str]) -> None:
    """Set the texts of tables, and let every session read them again."""
    version = session.exec_driver_sql("PRAGMA schema_version").scalar_one()
    session.exec_driver_sql("PRAGMA writable_schema = ON")
    try:
        for name, text in texts.items():
            session.execute(_EDIT, {"sql": text, "name": name})
        session.exec_driver_sql(f"PRAGMA schema_version = {version + 1}")
    finally:
        session.exec_driver_sql("PRAGMA writable_schema = OFF")
