"""Labels of enumerated types at a PostgreSQL Subscriber, as they follow the Publisher's.

Source: PostgreSQL documentation, `ALTER TYPE`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from psycopg import sql

from tranrepl.model.article import RegisteredArticle
from tranrepl.model.schema_change import LabelAction, LabelChange, SchemaChange
from tranrepl.postgres.session import Session
from tranrepl.subscriber.postgres.procedures import trusted

_LABELS = """
SELECT ARRAY(SELECT enumlabel::text FROM pg_catalog.pg_enum WHERE enumtypid = t.oid ORDER BY enumsortorder)
  FROM pg_catalog.pg_type t WHERE t.oid = pg_catalog.to_regtype(%s) AND t.typtype = 'e'
"""

_LOCKED_HERE = """
SELECT EXISTS (SELECT FROM pg_catalog.pg_locks
                WHERE pid = pg_catalog.pg_backend_pid() AND locktype = 'object' AND mode = 'ExclusiveLock' AND granted
                  AND classid = 'pg_catalog.pg_type'::pg_catalog.regclass AND objid = pg_catalog.to_regtype(%s))
"""


def without_made(change: SchemaChange, new: RegisteredArticle, others: Sequence[RegisteredArticle]) -> SchemaChange:
    """Return the change to the `new` definition without what it does to labels that was done with one of the other
    articles, which have the type too and may be ahead, as where this one waited for a snapshot.

    The names at the Subscriber do not tell that where labels took turns.
    """
    if new.definition is None or not change.labels:
        return change
    own = new.definition.renamed_labels
    numbers = {of.name: number for number, of in new.definition.enumerated.items()}
    made = [it for of in others if of.definition is not None for it in of.definition.renamed_labels]
    since = {(it.type_oid, it.label) for it in made if it not in own}

    def is_made(label: LabelChange) -> bool:
        number = numbers.get(label.type_name)
        if label.action is LabelAction.ADD:
            return (number, label.label) in since
        renames = [it for it in own if (it.type_oid, it.label, it.new_label) == (number, label.label, label.new_label)]
        return bool(renames) and renames[-1] in made

    return change.model_copy(update={"labels": tuple(it for it in change.labels if not is_made(it))})


def alters_a_type(session: Session, change: SchemaChange) -> bool:
    """Return whether the open transaction has altered a type to which a change adds labels: until its end no other
    session can."""
    types = {it.type_name for it in change.labels if it.action is LabelAction.ADD}
    return any(session.execute(_LOCKED_HERE, [it]).fetchone() == (True,) for it in types)


def add_labels(session: Session, change: SchemaChange) -> Iterator[str]:
    """Add the labels that a change adds and that are missing, each by itself; yield what was done."""
    for it in change.labels:
        if it.action is not LabelAction.ADD:
            continue
        labels = _labels(session, it.type_name)
        if labels is None:
            yield _no_type(it.type_name)
        elif it.label not in labels:
            yield _execute(session, added_label(it, known=it.before in labels))


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
            yield _execute(session, renamed_label(it))


def _labels(session: Session, type_name: str) -> list[str] | None:
    row = session.execute(_LABELS, [type_name]).fetchone()
    return None if row is None else list(row[0])


def _no_type(type_name: str) -> str:
    return f"{type_name} is no enumerated type here: its labels were left alone"


def added_label(change: LabelChange, *, known: bool) -> sql.Composed:
    """Return what adds a label before another one; where that is not known at the Subscriber, it gives no place."""
    before = known and change.before is not None
    place = sql.SQL(" BEFORE {}").format(sql.Literal(change.before)) if before else sql.SQL("")
    return _altered(change, sql.SQL("ADD VALUE IF NOT EXISTS {}").format(sql.Literal(change.label)) + place)


def renamed_label(change: LabelChange) -> sql.Composed:
    """Return what renames a label."""
    names = sql.Literal(change.label), sql.Literal(change.new_label)
    return _altered(change, sql.SQL("RENAME VALUE {} TO {}").format(*names))


def _altered(change: LabelChange, action: sql.Composable) -> sql.Composed:
    return sql.SQL("ALTER TYPE {} {}").format(trusted(change.type_name), action)


def _execute(session: Session, statement: sql.Composed) -> str:
    session.execute(statement)
    return statement.as_string(None)
