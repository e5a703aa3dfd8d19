"""Labels of enumerated types at a PostgreSQL Subscriber, as they follow the Publisher's.

Source: PostgreSQL documentation, `ALTER TYPE`.
"""

from __future__ import annotations

from collections.abc import Iterator

from psycopg import sql

from tranrepl.model.schema_change import LabelAction, SchemaChange
from tranrepl.postgres.session import Session
from tranrepl.subscriber.postgres.procedures import trusted

_LABELS = """
SELECT ARRAY(SELECT enumlabel::text FROM pg_catalog.pg_enum WHERE enumtypid = t.oid ORDER BY enumsortorder)
  FROM pg_catalog.pg_type t WHERE t.oid = pg_catalog.to_regtype(%s) AND t.typtype = 'e'
"""


def add_labels(session: Session, change: SchemaChange) -> Iterator[str]:
    """Add the labels that a change adds and that are missing, each by itself; yield what was done."""
    for it in change.labels:
        if it.action is not LabelAction.ADD:
            continue
        labels = _labels(session, it.type_name)
        if labels is None:
            yield _no_type(it.type_name)
        elif it.label not in labels:
            # A label that is unknown here gives no place.
            place = sql.SQL(" BEFORE {}").format(sql.Literal(it.before)) if it.before in labels else sql.SQL("")
            yield _execute(
                session, it.type_name, sql.SQL("ADD VALUE IF NOT EXISTS {}").format(sql.Literal(it.label)) + place
            )


def rename_labels(session: Session, change: SchemaChange) -> Iterator[str]:
    """Rename the labels that a change renames and that have their old names, inside the open transaction; yield what
    was done."""
    for it in change.labels:
        if it.action is not LabelAction.RENAME:
            continue
        labels = _labels(session, it.type_name)
        if labels is None:
            yield _no_type(it.type_name)
        elif it.label in labels and it.new_label not in labels:
            renamed = sql.SQL("RENAME VALUE {} TO {}").format(sql.Literal(it.label), sql.Literal(it.new_label))
            yield _execute(session, it.type_name, renamed)


def _labels(session: Session, type_name: str) -> list[str] | None:
    row = session.execute(_LABELS, [type_name]).fetchone()
    return None if row is None else list(row[0])


def _no_type(type_name: str) -> str:
    return f"{type_name} is no enumerated type here: its labels were left alone"


def _execute(session: Session, type_name: str, action: sql.Composable) -> str:
    statement = sql.SQL("ALTER TYPE {} {}").format(trusted(type_name), action)
    session.execute(statement)
    return statement.as_string(None)
