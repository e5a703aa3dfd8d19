"""Types of a database's users that a column has, or that its type is made of, in SQL."""

from __future__ import annotations

from collections.abc import Collection
from hashlib import md5

from tranrepl.postgres.session import Session

FIRST_OWN_TYPE = 16384
"""Types of a database's users have this number or a higher one."""

# Enumerated types have labels. Of any other type, `form` is another one where values may be written otherwise than
# before, or others may be refused: the types of its attributes count, and not their names.
TYPES_OF_COLUMN = """CASE WHEN a.atttypid < 16384 THEN '[]' ELSE (
        WITH RECURSIVE made_of AS (
          SELECT a.atttypid AS oid
          UNION SELECT part.oid FROM made_of m JOIN pg_catalog.pg_type w ON w.oid = m.oid CROSS JOIN LATERAL (
            SELECT w.typelem UNION ALL SELECT w.typbasetype
            UNION ALL SELECT r.rngsubtype FROM pg_catalog.pg_range r WHERE w.oid IN (r.rngtypid, r.rngmultitypid)
            UNION ALL SELECT p.atttypid FROM pg_catalog.pg_attribute p
             WHERE p.attrelid = w.typrelid AND p.attnum > 0 AND NOT p.attisdropped) part (oid)
           WHERE part.oid >= 16384)
        SELECT pg_catalog.jsonb_agg(pg_catalog.jsonb_build_object(
          'oid', u.oid::bigint, 'name', pg_catalog.format_type(u.oid, NULL),
          'labels', (SELECT pg_catalog.jsonb_agg(e.enumlabel ORDER BY e.enumsortorder)
                       FROM pg_catalog.pg_enum e WHERE e.enumtypid = u.oid),
          'form', pg_catalog.md5(pg_catalog.concat_ws('|', u.typtype, u.typbasetype, u.typtypmod, u.typnotnull,
            (SELECT pg_catalog.string_agg(pg_catalog.md5(k.conbin::text), ',' ORDER BY pg_catalog.md5(k.conbin::text))
               FROM pg_catalog.pg_constraint k WHERE k.contypid = u.oid AND k.contype = 'c'),
            (SELECT pg_catalog.string_agg(pg_catalog.concat(p.atttypid, ':', p.atttypmod), ',' ORDER BY p.attnum)
               FROM pg_catalog.pg_attribute p
              WHERE p.attrelid = u.typrelid AND p.attnum > 0 AND NOT p.attisdropped)))) ORDER BY u.oid)
          FROM made_of m JOIN pg_catalog.pg_type u ON u.oid = m.oid) END"""
"""JSON of the types of a column `a` of pg_attribute. Takes no lock."""

ENUMERATED_FORM = md5(b"e|0|-1|f", usedforsecurity=False).hexdigest()
"""The form that this gives to every enumerated type."""

_STATEMENTS = """
SELECT t.oid::bigint, CASE t.typtype
  WHEN 'd' THEN pg_catalog.concat('CREATE DOMAIN ', pg_catalog.format_type(t.oid, NULL), ' AS ',
    pg_catalog.format_type(t.typbasetype, t.typtypmod), CASE WHEN t.typnotnull THEN ' NOT NULL' END,
    (SELECT pg_catalog.string_agg(' ' || pg_catalog.pg_get_constraintdef(k.oid), '' ORDER BY k.conname)
       FROM pg_catalog.pg_constraint k WHERE k.contypid = t.oid AND k.contype = 'c'))
  ELSE pg_catalog.concat('CREATE TYPE ', pg_catalog.format_type(t.oid, NULL), ' AS (',
    (SELECT pg_catalog.string_agg(
              pg_catalog.quote_ident(p.attname) || ' ' || pg_catalog.format_type(p.atttypid, p.atttypmod), ', '
              ORDER BY p.attnum)
       FROM pg_catalog.pg_attribute p WHERE p.attrelid = t.typrelid AND p.attnum > 0 AND NOT p.attisdropped), ')')
  END
  FROM pg_catalog.pg_type t WHERE t.oid = ANY (%s::oid[]) AND t.typtype IN ('d', 'c')
   AND NOT EXISTS (SELECT FROM pg_catalog.pg_depend x
                    WHERE x.classid = 'pg_catalog.pg_type'::pg_catalog.regclass AND x.objid = t.oid AND x.deptype = 'e')
"""


def type_statements(session: Session, types: Collection[int]) -> dict[int, str]:
    """Return what creates those of the types that are domains or composite types, and no extension's, by their
    numbers."""
    return dict(session.execute(_STATEMENTS, [list(types)]).fetchall()) if types else {}
