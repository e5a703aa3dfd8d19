"""Types of a database's users that a column has, or that its type is made of, in SQL."""

from __future__ import annotations

from hashlib import md5

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

ALTERED_TYPES = """
      LOOP
        IF made_of_them IS NOT NULL THEN
          SELECT array_cat(found_types, array_agg(c.reltype) FILTER (WHERE c.reltype <> ALL (altered_types)))
            INTO found_types
            FROM pg_class c WHERE c.oid = ANY (made_of_them);
        END IF;
        EXIT WHEN found_types IS NULL;
        altered_types := array_cat(altered_types, found_types);
        SELECT array_cat(touched, array_agg(p.objid) FILTER (WHERE p.classid = '1259')),
               array_agg(p.objid) FILTER (WHERE p.classid = '1259'),
               array_agg(p.objid) FILTER (WHERE p.classid = '1247' AND p.objid <> ALL (altered_types))
          INTO touched, made_of_them, found_types
          FROM pg_depend p WHERE p.refclassid = '1247' AND p.refobjid = ANY (found_types);
      END LOOP;
"""
"""PL/pgSQL that adds what is made of altered types to `touched`.

The types are `found_types`, or composite ones by their relations: `made_of_them` is these at first, and then what each
round finds. Columns, domains, lists and ranges depend on their types; a composite type has a relation, whose columns
depend on theirs, and which depends on its type itself. 1247 is pg_type, and 1259 pg_class.
"""

USER_TYPES = """
  LOOP
    SELECT json_agg(json_build_array(e.enumtypid, e.enumsortorder, e.enumlabel)),
           coalesce(own_types <@ array_agg(e.enumtypid), false) OR made_of IS NOT NULL
      INTO labels, all_told
      FROM pg_enum e WHERE e.enumtypid = ANY (own_types);
    EXIT WHEN all_told;
    level := own_types;
    LOOP
      SELECT coalesce(array_cat(made_of, array_agg(json_build_object(
               'oid', t.oid, 'name', format_type(t.oid, NULL), 'kind', t.typtype, 'base', t.typbasetype,
               'mod', t.typtypmod, 'notnull', t.typnotnull, 'element', t.typelem, 'relation', t.typrelid,
               'typcollation', t.typcollation))), '{}'),
             array_cat(array_agg(t.typelem) FILTER (WHERE t.typelem >= '16384'),
                       array_agg(t.typbasetype) FILTER (WHERE t.typbasetype >= '16384')),
             array_agg(t.typrelid) FILTER (WHERE t.typtype = 'c'),
             array_agg(t.oid) FILTER (WHERE t.typtype = 'd'),
             array_agg(t.oid) FILTER (WHERE t.typtype IN ('r', 'm'))
        INTO made_of, level, relations, domains, range_types
        FROM pg_type t WHERE t.oid = ANY (level);
      IF domains IS NOT NULL THEN
        SELECT array_cat(checks, array_agg(json_build_array(k.contypid, md5(k.conbin::text))))
          INTO checks
          FROM pg_constraint k WHERE k.contypid = ANY (domains) AND k.contype = 'c';
      END IF;
      IF relations IS NOT NULL THEN
        SELECT array_cat(attributes, array_agg(json_build_array(p.attrelid, p.attnum, p.atttypid, p.atttypmod))),
               array_cat(level, array_agg(p.atttypid) FILTER (WHERE p.atttypid >= '16384'))
          INTO attributes, level
          FROM pg_attribute p WHERE p.attrelid = ANY (relations) AND p.attnum > '0' AND NOT p.attisdropped;
      END IF;
      IF range_types IS NOT NULL THEN
        SELECT array_cat(ranges, array_agg(json_build_array(r.rngtypid, r.rngmultitypid, r.rngsubtype))),
               array_cat(level, array_agg(r.rngsubtype) FILTER (WHERE r.rngsubtype >= '16384'))
          INTO ranges, level
          FROM pg_range r WHERE r.rngtypid = ANY (range_types) OR r.rngmultitypid = ANY (range_types);
      END IF;
      EXIT WHEN level IS NULL;
      SELECT array_agg(f) INTO level FROM unnest(level) f WHERE f <> ALL (own_types);
      EXIT WHEN level IS NULL;
      own_types := array_cat(own_types, level);
    END LOOP;
  END LOOP;
"""
"""PL/pgSQL that reads what types `own_types` are made of; where all of them are enumerated, their labels alone.

It ends also where none of them is there any more: at REPEATABLE READ a column is seen as it was.
"""
