"""A published table as a command left it, in PL/pgSQL: parts of the functions that announce schema changes.

A session's first command pays for all that PostgreSQL plans and looks up once a session, which is many times what the
queries take. So there are few of them over few catalogues, operators are of their operands' own types, and what few
tables need is in statements of its own.
"""

from __future__ import annotations

from string import Template

from tranrepl.publisher.postgres.message_secret import SCHEMA, SECRET_TABLE, MessageKind
from tranrepl.publisher.postgres.user_types import USER_TYPES


def composed(text: str, **parts: str) -> str:
    """Return a text with its parts in their places."""
    return Template(text).safe_substitute(parts)


# The text is in the server's encoding, as the log has it. The secret is one
# row: where it was removed, nothing is announced.
EMIT = f"""PERFORM pg_logical_emit_message(true, '{MessageKind.SCHEMA.prefix}', concat(encode(sha256(
    s.outer_key || sha256(s.inner_key || convert_to(
      concat('{MessageKind.SCHEMA.prefix} ', pg_current_xact_id()::xid, ' ', message), getdatabaseencoding()))), 'hex'),
    message)) FROM {SCHEMA}.{SECRET_TABLE} s;"""
"""What writes `message` into the log, signed."""

DECLARED = """
  published oid;
  message text;
  publication text;
  locked oid[];
  altered oid[];
  rewrite json;
  told oid[];
  has_children boolean;
  tables_below oid[];"""
"""The variables that functions share with the parts. Each value that is given here costs a plan.

What describes tables adds them to `told`, sets `has_children` where any of them may have tables below it, and
`tables_below`, the partitions of all of them. Where `locked` is not known, the tables that the command touched are.
"""

LEVELS = "100"
"""How many levels of partitions or of tables that inherit are followed: a circle of them has no end. It is seen at
REPEATABLE READ where another transaction has turned two tables round."""

IDENTIFIED = "tranrepl.identified"
"""The setting that names the partition to which the functions just give its root's replica identity, by its oid: of
that command there is nothing to tell of the tables above."""

# A list of constants is prepared for hashing, which costs more than three comparisons.
LOCKED = """
SELECT coalesce(array_agg(l.relation), '{}'),
       coalesce(array_agg(l.relation)
                  FILTER (WHERE NOT (l.mode = 'AccessShareLock' OR l.mode = 'RowShareLock'
                                     OR l.mode = 'RowExclusiveLock')), '{}')
  INTO locked, altered
  FROM pg_lock_status() l
 WHERE l.pid = pg_backend_pid() AND l.locktype = 'relation' AND l.granted AND l.database <> '0';
"""

# Many partitions are told in few arrays: an object for each costs more, and planning a join more than two queries.
# `xmin` tells one attachment from the next.
_PARTITIONS = """
FOR depth IN 1 .. $levels LOOP
  SELECT array_agg(h.inhrelid), array_cat(children, array_agg(h.inhrelid)),
         array_cat(parents, array_agg(h.inhparent)), array_cat(attached, array_agg(h.xmin)),
         array_cat(defined_anew, array_agg(h.inhrelid) FILTER (WHERE age(h.xmin) < '1'))
    INTO level, children, parents, attached, defined_anew
    FROM pg_inherits h WHERE h.inhparent = ANY (level) AND NOT h.inhdetachpending;
  SELECT array_cat(oids, array_agg(f.oid)), array_cat(kinds, array_agg(f.relkind)),
         array_cat(schemas, array_agg(f.relnamespace::regnamespace)),
         array_cat(names, array_agg(f.relname)),
         array_agg(f.oid) FILTER (WHERE f.relkind = 'p'),
         array_cat(defined_anew, array_agg(f.oid) FILTER (WHERE f.relkind = 'p'))
    INTO oids, kinds, schemas, names, level, defined_anew
    FROM pg_class f
   WHERE f.oid = ANY (level);
  EXIT WHEN level IS NULL;
END LOOP;
"""

_ARRAYS = ("children", "parents", "attached", "oids", "kinds", "schemas", "names")
_TYPES = ("labels", "made_of", "checks", "attributes", "ranges")
_TOLD_TYPES = ", ".join(f"'{it}', {it}" for it in _TYPES)
_TOLD_ARRAYS = ", ".join(f"'{it}', {it}" for it in _ARRAYS)

# What defines a partition is news where it became one in this transaction, and the key of one that is divided wherever
# the names of its columns may be. A partition of no size has no row.
_DEFINITIONS = """
SELECT json_agg(json_build_object(
         'oid', f.oid, 'key', pg_get_partkeydef(f.oid), 'empty', pg_relation_size(f.oid) = '0',
         'bound', pg_get_expr(f.relpartbound, f.oid)))
  INTO definitions
  FROM pg_class f
 WHERE f.oid = ANY (defined_anew) AND f.oid = ANY (coalesce(locked, touched));
"""

# The value of a column that was added is kept by each partition that was there by then, under its own number of the
# column. Others are newer, or were written again.
_KEPT_VALUES = """
SELECT json_object_agg(a.attname, (
         SELECT f.attmissingval::text FROM pg_attribute f
          WHERE f.attrelid = ANY (oids) AND f.attname = a.attname AND f.atthasmissing LIMIT 1))
  INTO kept_values
  FROM pg_attribute a WHERE a.attrelid = published AND age(a.xmin) < '1';
"""

# Of PostgreSQL's own types, pg_type has no news; but those of information_schema, which have numbers from 12000 on,
# have collations. Literals take the type of what they are compared with: another operator would be looked for among all
# of its name. A condition in WHERE makes the planner read statistics, and an order all the operator classes there are:
# who reads the message puts the columns in order. A column that was added is the last one.
_PLAIN_COLUMNS = """
SELECT json_agg(json_build_object(
      'num', a.attnum, 'name', a.attname, 'type', format_type(a.atttypid, a.atttypmod), 'oid', a.atttypid,
      'mod', a.atttypmod, 'attcollation', a.attcollation, 'notnull', a.attnotnull, 'generated', a.attgenerated,
      'ident', a.attidentity,
      'default', CASE WHEN a.atthasdef AND published = ANY (coalesce(locked, touched)) THEN (
        SELECT pg_get_expr(d.adbin, d.adrelid) FROM pg_attrdef d WHERE d.adrelid = a.attrelid AND d.adnum = a.attnum)
      END,
      'has_missing', a.atthasmissing, 'missing', a.attmissingval::text))
       FILTER (WHERE a.attnum > '0' AND NOT a.attisdropped),
       array_agg(a.atttypid) FILTER (WHERE a.atttypid >= '12000'),
       array_agg(a.attnum) FILTER (WHERE age(a.xmin) < '1'), max(a.attnum)
  INTO columns, own_types, altered_columns, last_column
  FROM pg_attribute a
 WHERE a.attrelid = published;
"""

# At REPEATABLE READ a row is seen twice that another transaction has altered meanwhile, and then this one: as it was,
# and as this transaction left it, which is the younger one. Where both are on one page, an index leads to the older one
# alone: so all rows of that page are looked at, of which none takes less than 28 bytes. That another transaction has
# altered a row is seen by its `xmax`.
_ON_PAGES = """$row.ctid = ANY (ARRAY(
     SELECT concat('(', pages.number, ',', place, ')')::tid
       FROM (SELECT DISTINCT (x.ctid::text::point)[0]::bigint FROM $catalogue x WHERE x.$key = $1) pages (number),
            generate_series(1, current_setting('block_size')::int / 28) place))
   AND $row.$key::bigint = $1::bigint"""
_OF_CLASS, _OF_ATTRIBUTE = "c.oid = $1", "a.attrelid = $1"
_ATTRIBUTE_ON_PAGES = composed(_ON_PAGES, row="a", catalogue="pg_attribute", key="attrelid")
_CLASS_ON_PAGES = composed(_ON_PAGES, row="c", catalogue="pg_class", key="oid")

# What few transactions need is text until then: PL/pgSQL reads all else before it runs anything.
_COLUMNS_AS_SEEN = composed(
    """
statement := $sql$
  SELECT json_agg(json_build_object(
      'num', a.attnum, 'name', a.attname, 'type', format_type(a.atttypid, a.atttypmod), 'oid', a.atttypid,
      'mod', a.atttypmod, 'attcollation', a.attcollation, 'notnull', a.attnotnull, 'generated', a.attgenerated,
      'ident', a.attidentity,
      'default', CASE WHEN a.atthasdef AND a.attrelid = ANY ($2) THEN pg_get_expr(d.adbin, d.adrelid) END,
      'has_missing', a.atthasmissing, 'missing', a.attmissingval::text,
      'dropped', a.attisdropped, 'xmin', a.xmin, 'age', age(a.xmin), 'default_age', age(d.xmin)))
         FILTER (WHERE a.attnum > '0'),
         array_agg(a.atttypid) FILTER (WHERE a.atttypid >= '12000'),
         coalesce(bool_or(a.xmax <> '0'), false) OR EXISTS (SELECT FROM pg_class c WHERE c.oid = $1 AND c.xmax <> '0')
    FROM pg_attribute a
    LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
   WHERE $of_attribute
$sql$;
locked := coalesce(locked, touched);
EXECUTE statement INTO columns, own_types, altered_twice USING published, locked;
IF altered_twice THEN
  EXECUTE replace(statement, '$of_attribute', $sql$ $attribute_on_pages $sql$)
     INTO columns, own_types, altered_twice USING published, locked;
  altered_twice := true;
END IF;
""",
    of_attribute=_OF_ATTRIBUTE,
    attribute_on_pages=_ATTRIBUTE_ON_PAGES,
)

_OF_THE_EVENT = f"""'event', $event, 'tag', $tag, 'xact', pg_current_xact_id(), 'snapshot', seen,
  {_TOLD_ARRAYS}, 'definitions', definitions"""
_READ_BEFORE = f"""{_OF_THE_EVENT}, 'rewrite', rewrite, 'columns', columns, 'altered', altered_columns,
  {_TOLD_TYPES}, 'kept_values', kept_values"""
_TABLE = """
SELECT json_build_object(
  'v', 1, $read_before, 'oid', c.oid, 'schema', $schema,$xmin_of_table
  'name', c.relname, 'kind', c.relkind, 'persistence', c.relpersistence, 'identity', c.relreplident,
  'rowsecurity', c.relrowsecurity, 'defaults_told', c.oid = ANY ($locked),
  'key', CASE WHEN c.relkind = 'p' AND c.oid = ANY ($locked) THEN pg_get_partkeydef(c.oid) END,
  'unique', (
    SELECT json_agg(json_build_object(
      'oid', i.indexrelid, 'name', $index, 'primary', i.indisprimary, 'identity', i.indisreplident,
      'immediate', i.indimmediate, 'partial', i.indpred IS NOT NULL,$xmin_of_index 'columns', i.indkey))
        FILTER (WHERE i.indisunique AND i.indisvalid)
      FROM pg_index i WHERE i.indrelid = c.oid))::text, c.relreplident, $has_children
"""

# This function looks in no table and takes no lock, and it knows what others have committed also where the transaction
# may not see that: a schema that is newer than its snapshot, into which the table was moved. It knows no index that
# another transaction has dropped.
_SCHEMA = "(pg_identify_object_as_address('2615', c.relnamespace, 0)).object_names[1]"
_AS_ALL_SEE_IT = composed(
    _TABLE + "  INTO message, identity, has_children FROM pg_class c WHERE c.oid = published;",
    schema=_SCHEMA,
    index="(pg_identify_object_as_address('1259', i.indexrelid, 0)).object_names[2]",
    locked="coalesce(locked, touched)",
    xmin_of_table="",
    xmin_of_index="",
    has_children="c.relhassubclass OR has_children IS TRUE",
    read_before=_READ_BEFORE,
)

# Each value that is given to such a text costs a plan.
_AS_SEEN = composed(
    "statement := $sql$"
    + _TABLE
    + """
  FROM pg_class c
 WHERE $of_class ORDER BY age(c.xmin) LIMIT 1
$sql$;
IF altered_twice THEN
  statement := replace(statement, '$of_class', $sql$ $class_on_pages $sql$);
END IF;
EXECUTE statement INTO message, identity, has_children
  USING published, locked, json_build_object($given), has_children IS TRUE;
""",
    schema=_SCHEMA,
    index="(SELECT y.relname FROM pg_class y WHERE y.oid = i.indexrelid ORDER BY age(y.xmin) LIMIT 1)",
    locked="$2",
    xmin_of_table=" 'xmin', c.xmin,",
    xmin_of_index=" 'xmin', i.xmin,",
    has_children="c.relhassubclass OR $4",
    given=_READ_BEFORE,
    read_before="'read_before', $3",
    of_class=_OF_CLASS,
    class_on_pages=_CLASS_ON_PAGES,
)

# A partitioned table of which nothing else was changed is told without all else.
_PARTITIONS_ALONE = f"message := json_build_object('v', 1, {_OF_THE_EVENT}, 'oid', published)::text;"

# Each query may see more than the one before it. What is told to be seen is what all of them have seen. Variables of a
# block are empty whenever it begins, which costs nothing. Each condition costs a plan: those of few tables stand
# within others.
_DESCRIBE = composed(
    """
DECLARE
  seen pg_snapshot := pg_current_snapshot();
  level oid[];
  children oid[];
  parents oid[];
  attached xid[];
  kinds "char"[];
  oids oid[];
  schemas regnamespace[];
  names name[];
  defined_anew oid[];
  definitions json;
  partitions_alone boolean;
  columns json;
  own_types oid[];
  altered_twice boolean;
  statement text;
  all_told boolean;
  labels json;
  relations oid[];
  domains oid[];
  range_types oid[];
  made_of json[];
  checks json[];
  attributes json[];
  ranges json[];
  altered_columns int2[];
  last_column int2;
  kept_values json;
  identity text;
BEGIN
  CONTINUE WHEN published = ANY (told) OR NOT starts_with(publication, 'tranrepl_');
  IF pg_partition_root(published) IS NOT NULL THEN
    partitions_alone := $alone;
    IF partitions_alone THEN
      CONTINUE WHEN current_setting('$identified', true) = touched[1]::text;
    END IF;
    level := ARRAY[published];
    $partitions
    tables_below := array_cat(tables_below, oids);
  END IF;
  $locked
  IF defined_anew IS NOT NULL THEN
    $definitions
  END IF;
  IF partitions_alone THEN
    $partitions_alone
  ELSE
    IF starts_with(current_setting('transaction_isolation'), 'read') THEN
      $plain_columns
    ELSE
      $columns_as_seen
    END IF;
    IF own_types IS NOT NULL OR oids IS NOT NULL THEN
      IF own_types IS NOT NULL THEN
        $user_types
      END IF;
      IF oids IS NOT NULL AND (last_column = ANY (altered_columns)) IS NOT FALSE AND $tag = 'ALTER TABLE' THEN
        $kept_values
      END IF;
    END IF;
    IF altered_twice IS NULL THEN
      $as_all_see_it
    ELSE
      $as_seen
    END IF;
  END IF;
  $emit
  told := array_cat(told, ARRAY[published]);
  $then
END;
""",
    identified=IDENTIFIED,
    partitions=composed(_PARTITIONS, levels=LEVELS),
    partitions_alone=_PARTITIONS_ALONE,
    definitions=_DEFINITIONS,
    plain_columns=_PLAIN_COLUMNS,
    user_types=USER_TYPES,
    columns_as_seen=_COLUMNS_AS_SEEN,
    kept_values=_KEPT_VALUES,
    as_all_see_it=_AS_ALL_SEE_IT,
    as_seen=_AS_SEEN,
    emit=EMIT,
)


def describe(event: str, tag: str, *, alone: str = "false", locked: str = "", then: str = "") -> str:
    """Return what announces the table `published`. `locked` and `altered` say what its transaction has locked.

    Of the arguments, `alone` is whether nothing of the table was changed but its partitions, `locked` what asks for
    locks where they are not known, and `then` what follows at the end.
    """
    parts = {"alone": alone, "locked": locked, "then": then}
    return composed(_DESCRIBE, event=event, tag=tag, **parts)
