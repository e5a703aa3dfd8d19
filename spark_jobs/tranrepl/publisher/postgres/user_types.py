"""Types of a database's users that a column has, or that its type is made of, in SQL."""

from __future__ import annotations

from hashlib import md5

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

ALTERED_TYPES = """
      WITH RECURSIVE altered AS (
        SELECT coalesce((SELECT k.reltype FROM pg_class k WHERE d.classid = 'pg_class'::regclass AND k.oid = d.objid),
                        d.objid) AS oid
        UNION SELECT u.oid FROM altered t JOIN pg_type u
          ON t.oid IN (u.typelem, u.typbasetype)
          OR EXISTS (SELECT FROM pg_range r WHERE r.rngsubtype = t.oid AND u.oid IN (r.rngtypid, r.rngmultitypid))
          OR EXISTS (SELECT FROM pg_attribute p WHERE p.attrelid = u.typrelid AND p.attnum > 0 AND p.atttypid = t.oid))
      SELECT oid FROM altered"""
"""Types that a command `d` of pg_event_trigger_ddl_commands() alters, and those that are made of them."""
