"""A published table as a command left it, in PL/pgSQL: parts of the functions that announce schema changes.

A session's first command pays for all that PostgreSQL plans and looks up once a session, which is many times what the
queries take. So there are few of them over few catalogues, operators are of their operands' own types, and what few
tables need is in statements of its own.
"""

from __future__ import annotations

from string import Template

from tranrepl.publisher.postgres.user_types import TYPES_OF_COLUMN


def composed(text: str, **parts: str) -> str:
    """Return a text with its parts in their places."""
    return Template(text).safe_substitute(parts)


DECLARED = """
  published oid;
  seen text;
  is_plain boolean;
  has_partitions boolean;
  sees_all boolean := starts_with(current_setting('transaction_isolation'), 'read');
  level oid[];
  places text[];
  schemas text[];
  names name[];
  holding_rows oid[];
  locked oid[];
  altered oid[];
  missing jsonb;
  key text;
  partitions json;
  defined_anew oid[];
  definitions json;
  columns json;
  rewrite jsonb;
  message text;
  identity text;
  told boolean;"""
"""The variables that the other parts use. Each value that is given here costs a plan."""

LOCKED = """
SELECT coalesce(array_agg(l.relation), '{}'),
       coalesce(array_agg(l.relation)
                  FILTER (WHERE l.mode IN ('AccessExclusiveLock', 'ShareUpdateExclusiveLock')), '{}')
  INTO locked, altered
  FROM pg_lock_status() l
 WHERE l.pid = pg_backend_pid() AND l.locktype = 'relation' AND l.granted AND l.database <> '0';
"""

# Many partitions are told in few arrays: an object for each costs more. The function looks up the name of a schema
# without a look into its table. What defines a partition is news where it became one in this transaction, and the key
# of one that is divided wherever the names of its columns may be. A partition of no size has no row; `xmin` tells one
# attachment from the next.
_PARTITIONS = """
level := ARRAY[published];
LOOP
  SELECT array_cat(places, array_agg(concat_ws(' ', f.oid, h.inhparent, h.xmin, f.relkind))),
         array_cat(schemas, array_agg((pg_identify_object_as_address('2615', f.relnamespace, 0)).object_names[1])),
         array_cat(names, array_agg(f.relname)),
         array_cat(defined_anew, array_agg(f.oid) FILTER (WHERE f.relkind = 'p' OR age(h.xmin) < '1')),
         array_cat(holding_rows, array_agg(f.oid) FILTER (WHERE f.relkind = 'r')),
         array_agg(f.oid) FILTER (WHERE f.relkind = 'p')
    INTO places, schemas, names, defined_anew, holding_rows, level
    FROM pg_inherits h JOIN pg_class f ON f.oid = h.inhrelid
   WHERE h.inhparent = ANY (level) AND NOT h.inhdetachpending;
  EXIT WHEN level IS NULL;
END LOOP;
partitions := json_build_object('places', places, 'schemas', schemas, 'names', names);
IF defined_anew IS NOT NULL THEN
  IF altered IS NULL THEN
    $locked
  END IF;
  SELECT json_agg(json_build_object(
           'oid', f.oid::bigint, 'key', pg_get_partkeydef(f.oid), 'empty', pg_relation_size(f.oid) = '0',
           'bound', pg_get_expr(f.relpartbound, f.oid)))
    INTO definitions
    FROM pg_class f
   WHERE f.oid = ANY (defined_anew) AND f.oid = ANY (locked);
END IF;
IF published = ANY (locked) THEN
  key := pg_get_partkeydef(published);
END IF;
$missing
"""

# The value of a column that was added is kept by each partition that was there by then, under its own number of the
# column. Others are newer, or were written again.
_MISSING = """
IF $tag = 'ALTER TABLE' THEN
  SELECT jsonb_object_agg(f.attname, f.attmissingval::text) INTO missing
    FROM pg_attribute f WHERE f.attrelid = ANY (holding_rows) AND f.atthasmissing AND age(f.xmin) < '1';
END IF;
"""

# Where PostgreSQL's own types have their own collations, and lists of them commas, pg_type has no news. Literals take
# the type of what they are compared with: another operator would be looked for among all of its name.
_PLAIN_COLUMNS = """
SELECT json_agg(json_build_object(
      'num', a.attnum, 'name', a.attname, 'type', format_type(a.atttypid, a.atttypmod), 'oid', a.atttypid::bigint,
      'mod', a.atttypmod, 'collation', NULL, 'notnull', a.attnotnull, 'generated', a.attgenerated,
      'ident', a.attidentity, 'types', '[]'::json,
      'default', CASE WHEN a.atthasdef AND published = ANY (locked) THEN (
        SELECT pg_get_expr(d.adbin, d.adrelid) FROM pg_attrdef d WHERE d.adrelid = a.attrelid AND d.adnum = a.attnum)
      END,
      'has_missing', a.atthasmissing, 'missing', (a.attmissingval::text::text[])[1]) ORDER BY a.attnum),
       bool_and(a.atttypid < '16384' AND a.atttypid NOT IN ($box, $boxes)
                AND (a.attcollation = '0' OR a.attcollation = $default_collation AND a.atttypid IN ($texts)))
  INTO columns, is_plain
  FROM pg_attribute a
 WHERE a.attrelid = published AND a.attnum > '0' AND NOT a.attisdropped;
"""

# At REPEATABLE READ a row is seen twice that another transaction has altered meanwhile, and then this one: as it was,
# and as this transaction left it, which is the younger one.
_COLUMNS = """
SELECT json_agg(json_build_object(
      'num', a.attnum, 'name', a.attname, 'type', format_type(a.atttypid, a.atttypmod), 'oid', a.atttypid::bigint,
      'mod', a.atttypmod, 'collation', nullif(a.attcollation, t.typcollation)::bigint, 'notnull', a.attnotnull,
      'generated', a.attgenerated, 'ident', a.attidentity,
      'types', $types,
      'default', CASE WHEN published = ANY (locked) THEN pg_get_expr(d.adbin, d.adrelid) END,
      'has_missing', a.atthasmissing OR coalesce(missing ? a.attname::text, false),
      'missing', CASE t.typdelim WHEN ',' THEN (
        coalesce(a.attmissingval::text, missing ->> a.attname::text)::text[])[1] END)
    ORDER BY a.attnum, age(a.xmin) DESC)
  INTO columns
  FROM pg_attribute a
  JOIN pg_type t ON t.oid = a.atttypid
  LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
 WHERE a.attrelid = published AND a.attnum > 0 AND NOT a.attisdropped;
"""

# Whether a row of the catalogue is of its transaction's own making, where that sees no other's that began later: it has
# the lower half of the transaction's number.
_OWN = "(($row.xmin::text::bigint - s.began) & 4294967295) < 2147483648"


def _own(row: str) -> str:
    return composed(_OWN, row=row)


# What is its transaction's own is told where that may not see what others have committed since it began; 0 stands for
# the table.
_OWN_CHANGES = """CASE WHEN s.began IS NOT NULL THEN to_json(ARRAY(
    SELECT o.attnum FROM pg_attribute o WHERE o.attrelid = c.oid AND o.attnum > 0 AND $own_column
    UNION ALL SELECT 0 WHERE $own_table)) END"""
_BEGAN = """, (
    SELECT CASE WHEN pg_current_xact_id()::text::bigint >= x.xmax THEN x.xmax END
      FROM (SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint) x (xmax)) s (began)"""

_TABLE = """
SELECT json_build_object(
  'v', 2, 'event', $event, 'tag', $tag, 'xact', pg_current_xact_id()::text, 'snapshot', seen,
  'rewrite', rewrite, 'oid', c.oid::bigint, 'schema', $schema,
  'name', c.relname, 'kind', c.relkind, 'persistence', c.relpersistence, 'identity', c.relreplident,
  'rowsecurity', c.relrowsecurity, 'defaults_told', c.oid = ANY (locked), 'key', key, 'own', $own,
  'columns', columns,
  'unique', (
    SELECT json_agg(json_build_object(
      'name', x.relname, 'primary', i.indisprimary, 'identity', i.indisreplident, 'immediate', i.indimmediate,
      'partial', i.indpred IS NOT NULL, 'own', $own_index, 'columns', i.indkey::int2[]) ORDER BY i.indexrelid)
      FROM pg_index i, $index x
     WHERE i.indrelid = c.oid AND i.indisunique AND i.indisvalid AND x.relname IS NOT NULL),
  'partitions', partitions, 'definitions', definitions)::text, c.relreplident
  INTO message, identity
  FROM pg_class c$beside
 WHERE c.oid = published
"""

# What sees all that is committed needs no other catalogue for names: this function looks in no table, and takes no
# lock. Another transaction sees indexes that are dropped, of which it has none.
_NAMES = {
    "schema": "(pg_identify_object_as_address('2615', c.relnamespace, 0)).object_names[1]",
    "index": "LATERAL (SELECT (pg_identify_object_as_address('1259', i.indexrelid, 0)).object_names[2])",
}
_TABLE_AS_ALL_SEE_IT = composed(
    _TABLE.replace(" x\n", " x (relname)\n") + ";", own="NULL", own_index="NULL", beside="", **_NAMES
)


# Each query may see more than the one before it. What is told to be seen is what all of them have seen.
_DESCRIBE = composed(
    """
seen := pg_current_snapshot()::text;
missing := NULL;
key := NULL;
places := NULL;
schemas := NULL;
names := NULL;
holding_rows := NULL;
defined_anew := NULL;
partitions := NULL;
definitions := NULL;
IF has_partitions THEN
  $partitions
END IF;
is_plain := sees_all AND missing IS NULL;
IF is_plain THEN
  $plain_columns
END IF;
IF NOT is_plain THEN
  $columns
END IF;
IF sees_all THEN
  $table
ELSE
  $table_with_own_changes
END IF;
PERFORM pg_logical_emit_message(true, 'tranrepl.schema', message);
told := true;
""",
    partitions=composed(_PARTITIONS, locked=LOCKED, missing=_MISSING),
    plain_columns=composed(
        _PLAIN_COLUMNS,
        box="'603'",
        boxes="'1020'",
        default_collation="'100'",
        texts="'25', '1042', '1043', '1009', '1014', '1015'",
    ),
    columns=composed(_COLUMNS, types=TYPES_OF_COLUMN),
    table=_TABLE_AS_ALL_SEE_IT,
    table_with_own_changes=composed(
        _TABLE + "   AND n.oid = c.relnamespace\n ORDER BY age(c.xmin) LIMIT 1;",
        schema="n.nspname",
        index="LATERAL (SELECT y.relname FROM pg_class y WHERE y.oid = i.indexrelid)",
        own=composed(_OWN_CHANGES, own_column=_own("o"), own_table=_own("c")),
        own_index=_own("i"),
        beside=", pg_namespace n" + _BEGAN,
    ),
)


def describe(event: str, tag: str) -> str:
    """Return what announces the table `published`; `locked` and `altered` say what its transaction has locked."""
    return composed(_DESCRIBE, event=event, tag=tag)
