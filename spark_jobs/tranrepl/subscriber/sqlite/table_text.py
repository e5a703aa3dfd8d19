"""The text that an SQLite file keeps of each CREATE TABLE: what says what a table's columns are."""

from __future__ import annotations

from collections.abc import Mapping

import sqlalchemy as sa

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
