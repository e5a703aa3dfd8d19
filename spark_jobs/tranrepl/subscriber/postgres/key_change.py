"""The primary key of a destination whose article got another one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from psycopg import errors, sql

from tranrepl.postgres.catalogue import qualified
from tranrepl.postgres.session import Session, own_path
from tranrepl.subscriber.batching.steps import SchemaStep
from tranrepl.subscriber.key_change import UnfitRows, key_change

_KEY = """
SELECT c.conname, ARRAY(SELECT a.attname::text FROM unnest(c.conkey) WITH ORDINALITY k(attnum, place)
    JOIN pg_catalog.pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = k.attnum ORDER BY k.place)
  FROM pg_catalog.pg_constraint c WHERE c.contype = 'p' AND c.conrelid = pg_catalog.to_regclass(%s)
"""


def replaced_key(table: sql.Composable, constraint: str | None, columns: Sequence[str]) -> sql.Composed:
    """Return the statement that gives a table another primary key than that of this constraint, where it has one."""
    dropped = sql.SQL("" if constraint is None else "DROP CONSTRAINT {}, ")
    names = sql.SQL(", ").join(map(sql.Identifier, columns))
    return sql.SQL("ALTER TABLE {} {}ADD PRIMARY KEY ({})").format(
        table, dropped.format(*([] if constraint is None else [sql.Identifier(constraint)])), names
    )


def delete_rows(session: Session, table: sql.Composable) -> None:
    """Delete all rows of a table that is altered in the same transaction."""
    with own_path(session):
        session.execute(sql.SQL("DELETE FROM {}").format(table))
        session.execute("SET CONSTRAINTS ALL IMMEDIATE")


def change_key(session: Session, where: str, step: SchemaStep, unfit: UnfitRows) -> Iterator[str]:
    """Give the destination the new primary key, where it had the old one or has just lost it; yield what was done.

    Rows that do not fit the new key are deleted with all others where they may be. Raises ConfigurationError where they
    may not.
    """
    change = key_change(step)
    if step.new is None or change is None:
        return
    table = qualified(step.new.destination)
    found = session.execute(_KEY, [table.as_string(session)]).fetchone()
    if (None if found is None else found[1]) != (None if change.lost else change.before):
        return
    statement = replaced_key(table, None if found is None else found[0], change.now)
    try:
        with session.transaction():
            session.execute(statement)
    except (errors.UniqueViolation, errors.NotNullViolation) as error:
        if not unfit.may_go(step.new):
            raise unfit.problem(where, step.new, change.now) from error
        delete_rows(session, table)
        session.execute(statement)
        yield f"rows of {step.new.destination} were deleted: they did not fit the new primary key, and are copied again"
    yield statement.as_string(None)
