"""Sequences of a PostgreSQL server that give columns their values, and how far each is."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from psycopg import sql

from tranrepl.model.names import TableName
from tranrepl.model.sequences import SequenceDefinition, SequenceState
from tranrepl.postgres.catalogue import qualified
from tranrepl.postgres.rights import our_role
from tranrepl.postgres.session import Session

# Of an identity or serial column the sequence depends on the column; of a plain DEFAULT, the default on the sequence.
_SEQUENCES = """
SELECT DISTINCT ON (of.relation, a.attnum) of.relation::bigint, a.attname, of.owned AND of.fills,
       s.seqrelid::bigint, n.nspname, c.relname, s.seqstart, s.seqincrement, s.seqmin, s.seqmax, s.seqcycle,
       pg_catalog.has_sequence_privilege(s.seqrelid, 'USAGE, SELECT'),
       pg_catalog.has_sequence_privilege(s.seqrelid, 'SELECT') AND pg_catalog.has_schema_privilege(n.oid, 'USAGE'),
       pg_catalog.has_sequence_privilege(s.seqrelid, 'UPDATE')
  FROM (SELECT relation, number, sequence, bool_or(owned) AS owned, bool_or(fills) AS fills
          FROM (SELECT d.refobjid AS relation, d.refobjsubid AS number, d.objid AS sequence, true AS owned,
                       d.deptype = 'i' AS fills
                  FROM pg_catalog.pg_depend d
                 WHERE d.classid = 'pg_catalog.pg_class'::regclass AND d.objsubid = 0
                   AND d.refclassid = 'pg_catalog.pg_class'::regclass AND d.refobjid = ANY (%(tables)s::oid[])
                   AND d.refobjsubid > 0 AND d.deptype IN ('a', 'i')
                 UNION ALL
                SELECT f.adrelid, f.adnum, d.refobjid, false, true
                  FROM pg_catalog.pg_attrdef f JOIN pg_catalog.pg_depend d ON d.objid = f.oid
                 WHERE f.adrelid = ANY (%(tables)s::oid[]) AND d.classid = 'pg_catalog.pg_attrdef'::regclass
                   AND d.refclassid = 'pg_catalog.pg_class'::regclass AND d.deptype = 'n') link
         GROUP BY relation, number, sequence) of
  JOIN pg_catalog.pg_sequence s ON s.seqrelid = of.sequence
  JOIN pg_catalog.pg_class c ON c.oid = of.sequence
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  JOIN pg_catalog.pg_attribute a ON a.attrelid = of.relation AND a.attnum = of.number
 ORDER BY of.relation, a.attnum, of.fills DESC, of.owned DESC, of.sequence
"""
_BOUNDS = "SELECT set_config('lock_timeout', '1s', true), set_config('statement_timeout', '5s', true)"


@dataclass(frozen=True, slots=True)
class TableSequence:
    """A column's sequence, as the catalogue has it."""

    object_id: int
    """The table's."""
    column: str
    is_own: bool
    """It belongs to the column that it fills: an identity or serial column."""
    sequence_id: int
    name: TableName
    definition: SequenceDefinition
    may_know: bool
    """Our role may know the last number that was taken."""
    may_read: bool
    """… and, where none was taken, with which number it begins."""
    may_set: bool


@contextmanager
def bounded(session: Session) -> Iterator[None]:
    """Open a transaction in which nothing waits for long where another session holds a sequence."""
    with session.transaction():
        session.execute(_BOUNDS)
        yield


def table_sequences(session: Session, object_ids: Collection[int]) -> list[TableSequence]:
    """Read the sequences of these tables' columns, one of each column, in the tables' order of columns."""
    return [
        TableSequence(object_id, column, is_own, oid, TableName(schema, name), SequenceDefinition(*rest[:5]), *rest[5:])
        for object_id, column, is_own, oid, schema, name, *rest in session.execute(
            _SEQUENCES, {"tables": list(object_ids)}
        )
    ]


def sequence_states(session: Session, sequences: Collection[TableSequence]) -> dict[TableName, SequenceState]:
    """Return how far sequences are, but for those of which our role may not know it, or may only know that no number
    was taken."""
    looks = {it.name: _look(it) for it in sequences if it.may_know}
    rows = session.execute(sql.SQL(" UNION ALL ").join(looks.values())) if looks else ()
    return {
        TableName(schema, name): SequenceState(last_value, is_called)
        for schema, name, last_value, is_called in rows
        if last_value is not None
    }


def _look(sequence: TableSequence) -> sql.Composed:
    """Return the query for one sequence. A login that may not read its row may call a function, which gives NULL where
    no number was taken."""
    if sequence.may_read:
        known = sql.SQL("last_value, is_called FROM {}").format(qualified(sequence.name))
    else:
        known = sql.SQL("pg_catalog.pg_sequence_last_value({}), true").format(sql.Literal(sequence.sequence_id))
    name = sequence.name
    return sql.SQL("SELECT {}, {}, {}").format(sql.Literal(name.schema), sql.Literal(name.table), known)


def grants_on_sequences(session: Session, rights: str, names: Collection[TableName]) -> tuple[str, ...]:
    """Return the statements that give our role these rights on sequences, and on their schemas."""
    if not names:
        return ()
    role = sql.Identifier(our_role(session))
    schemas = sql.SQL(", ").join(map(sql.Identifier, sorted({it.schema for it in names})))
    on = sql.SQL(", ").join(map(qualified, sorted(names)))
    statements = (
        sql.SQL("GRANT USAGE ON SCHEMA {} TO {}").format(schemas, role),
        sql.SQL("GRANT {} ON SEQUENCE {} TO {}").format(sql.SQL(rights), on, role),
    )
    return tuple(it.as_string(session) for it in statements)
