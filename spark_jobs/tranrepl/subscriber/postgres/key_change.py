"""The primary key of a destination whose article got another one."""

from __future__ import annotations

from collections.abc import Iterator

from psycopg import errors, sql

from tranrepl.postgres.catalogue import qualified
from tranrepl.postgres.session import Session
from tranrepl.subscriber.batching.steps import SchemaStep
from tranrepl.subscriber.key_change import key_change

_KEY = """
SELECT c.conname, ARRAY(SELECT a.attname::text FROM unnest(c.conkey) WITH ORDINALITY k(attnum, place)
    JOIN pg_catalog.pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = k.attnum ORDER BY k.place)
  FROM pg_catalog.pg_constraint c WHERE c.contype = 'p' AND c.conrelid = pg_catalog.to_regclass(%s)
"""


def change_key(session: Session, step: SchemaStep) -> Iterator[str]:
    """Give the destination the new primary key, where it had the old one; yield what was done.

    The article's rows are copied again: those that do not fit the new key are deleted with all others.
    """
    change = key_change(step)
    if step.new is None or change is None:
        return
    table = qualified(step.new.destination)
    found = session.execute(_KEY, [table.as_string(session)]).fetchone()
    if found is None or found[1] != change.before:
        return
    statement = sql.SQL("ALTER TABLE {} DROP CONSTRAINT {}, ADD PRIMARY KEY ({})").format(
        table, sql.Identifier(found[0]), sql.SQL(", ").join(map(sql.Identifier, change.now))
    )
    try:
        with session.transaction():
            session.execute(statement)
    except (errors.UniqueViolation, errors.NotNullViolation):
        session.execute(sql.SQL("DELETE FROM {}").format(table))
        session.execute("SET CONSTRAINTS ALL IMMEDIATE")
        session.execute(statement)
        yield f"rows of {step.new.destination} were deleted: they did not fit the new primary key, and are copied again"
    yield statement.as_string(None)
