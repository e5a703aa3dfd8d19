"""The functions at a PostgreSQL Publisher that announce schema changes: messages in its log.

One runs as event triggers, the other is called where there are none. Both are SECURITY DEFINER, as what they write is
signed with a secret that their owner alone reads: nobody but they decides what is signed, and they read it from the
catalogue. Neither takes a lock: expressions are read of relations alone that their transaction has locked, since
reading them locks.
"""

from __future__ import annotations

from tranrepl.publisher.postgres.message_secret import SCHEMA
from tranrepl.publisher.postgres.table_description import (
    DECLARED,
    EMIT,
    IDENTIFIED,
    LEVELS,
    LOCKED,
    composed,
    describe,
)
from tranrepl.publisher.postgres.user_types import ALTERED_TYPES

ANNOUNCE_EVENT = "announce_schema_change"
ANNOUNCE_CALL = "announce"

# The user's schemas shadow nothing. Planning costs more than the queries do. Values are told as a session that reads
# the log shows them.
_SETTINGS = """SET search_path = pg_catalog, pg_temp
SET lock_timeout = '0'
SET plan_cache_mode = 'force_generic_plan'
SET jit = 'off'
SET "DateStyle" = 'ISO, YMD'
SET "IntervalStyle" = 'postgres'
SET "TimeZone" = 'UTC'
SET extra_float_digits = '3'
SET bytea_output = 'hex'
SET lc_monetary = 'C'
SET array_nulls = 'on'
SET quote_all_identifiers = 'off'
SET standard_conforming_strings = 'on'"""

# The oid of pg_class.
_CLASS = "'1259'"

# Of a partition, the tables above it are told; that function takes no lock, and costs nothing of other tables. What
# would be asked of the publication in WHERE would be asked of every published table.
_PUBLISHED = """
SELECT r.prrelid, (pg_identify_object_as_address('6104', r.prpubid, 0)).object_names[1] FROM pg_publication_rel r
 WHERE r.prrelid = ANY (array_cat(touched, ARRAY(SELECT pg_partition_ancestors(t)::oid FROM unnest(touched) t$first)))
"""

_UNPUBLISHED = composed(
    """
SELECT json_agg(json_build_object(
         'publication', r.address_args[1], 'schema', r.address_names[1], 'name', r.address_names[2],
         'oid', t.objid::bigint))
  INTO unpublished
  FROM pg_event_trigger_dropped_objects() r
  LEFT JOIN pg_event_trigger_dropped_objects() t
    ON t.object_type = 'table' AND NOT t.is_temporary AND t.address_names = r.address_names
 WHERE r.object_type = 'publication relation' AND starts_with(r.address_args[1], 'tranrepl_');
IF unpublished IS NOT NULL THEN
  message := json_build_object('v', 1, 'event', tg_event, 'tag', tg_tag, 'unpublished', unpublished);
  $emit
  told := '{}';
END IF;
""",
    emit=EMIT,
)

# Of a dropped partition or index no event names the table, but its transaction has locked it, also where the index was
# dropped concurrently. A default, a constraint or an index that goes with its own table is no news.
_DROPPED = composed(
    """
SELECT array_agg(d.objid) FILTER (WHERE d.object_type = 'table column'),
       bool_or(d.object_type = 'table'),
       bool_or((d.original OR d.normal) AND d.object_type = 'index'),
       bool_or((d.original OR d.normal) AND (d.object_type = 'default value' OR d.object_type = 'table constraint')),
       bool_or(d.object_type = 'publication relation')
  INTO touched, table_dropped, index_dropped, part_dropped, publication_dropped
  FROM pg_event_trigger_dropped_objects() d WHERE NOT d.is_temporary;
IF publication_dropped THEN
  $unpublished
END IF;
IF part_dropped THEN
  FOR parts_of IN
    SELECT d.address_names FROM pg_event_trigger_dropped_objects() d
     WHERE (d.object_type = 'default value' OR d.object_type = 'table constraint') AND NOT d.is_temporary
  LOOP
    touched := array_cat(touched, ARRAY(
      SELECT c.oid FROM pg_class c
       WHERE c.relname = parts_of[2]
         AND c.relnamespace = ANY (ARRAY(SELECT n.oid FROM pg_namespace n WHERE n.nspname = parts_of[1]))));
  END LOOP;
END IF;
IF index_dropped OR table_dropped THEN
  $locked
  IF index_dropped THEN
    touched := array_cat(touched, altered);
  ELSE
    drops_partitions := tg_tag = 'DROP TABLE' AND touched IS NULL AND NOT part_dropped;
    touched := array_cat(touched, ARRAY(SELECT c.oid FROM pg_class c WHERE c.oid = ANY (altered) AND c.relkind = 'p'));
  END IF;
END IF;
""",
    locked=LOCKED,
    unpublished=_UNPUBLISHED,
)

# Most commands name tables alone, and the indexes that CREATE TABLE makes are of its own table. A composite type is
# named as its relation, and what is done to it may be done to tables of that type. A command that names another type
# alters no table, and has locked none for that.
_COMMANDED = composed(
    """
SELECT array_agg(d.objid) FILTER (WHERE d.classid = $class),
       array_agg(d.objid) FILTER (WHERE d.classid <> $class),
       bool_and(d.object_type = 'table' OR tg_tag = 'CREATE TABLE')
  INTO touched, others, tables_alone
  FROM pg_event_trigger_ddl_commands() d;
IF NOT tables_alone THEN
  IF tg_tag = 'ALTER TYPE' OR tg_tag = 'ALTER DOMAIN' THEN
    altered_types := '{}';
    found_types := others;
    IF found_types IS NOT NULL THEN
      altered := '{}';
      locked := altered;
    ELSE
      made_of_them := touched;
    END IF;
    $altered_types
  ELSIF tg_tag = 'ALTER SCHEMA' THEN
    touched := ARRAY(SELECT c.oid FROM pg_class c WHERE c.relnamespace = ANY (others));
  ELSE
    IF others IS NOT NULL THEN
      touched := array_cat(touched, ARRAY(
        SELECT k.conrelid FROM pg_constraint k WHERE k.oid = ANY (others)
        UNION ALL SELECT r.prrelid FROM pg_publication_rel r WHERE r.oid = ANY (others)));
    END IF;
    touched := array_cat(touched, ARRAY(SELECT i.indrelid FROM pg_index i WHERE i.indexrelid = ANY (touched)));
  END IF;
END IF;
""",
    altered_types=ALTERED_TYPES,
    **{"class": _CLASS},
)

# A new partition has the default identity, whatever its root has. The command has locked it, and its owner ran it. The
# command that sets the identity fires the event triggers in its turn, which have nothing to tell of the root then.
_IDENTIFY = composed(
    """
IF oids IS NOT NULL THEN
  IF tg_event = 'ddl_command_end'
     AND (tg_tag = 'ALTER TABLE' OR tg_tag = 'CREATE TABLE' OR tg_tag = 'CREATE SCHEMA') THEN
    IF partitions_alone THEN
      SELECT c.relreplident INTO identity FROM pg_class c WHERE c.oid = published;
    END IF;
    IF identity = 'f' THEN
      BEGIN
        FOR it IN
          SELECT f.oid FROM pg_class f
           WHERE f.oid = ANY (oids) AND f.relkind = 'r' AND f.relreplident = 'd'
             AND f.oid IN (
               SELECT l.relation FROM pg_lock_status() l
                WHERE l.pid = pg_backend_pid() AND l.locktype = 'relation' AND l.granted
                  AND l.mode = 'AccessExclusiveLock')
        LOOP
          PERFORM set_config('$identified', it::text, true);
          EXECUTE (SELECT format('ALTER TABLE ONLY %I.%I REPLICA IDENTITY FULL', n.nspname, c.relname)
                     FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = it);
        END LOOP;
        IF found THEN
          PERFORM set_config('$identified', '', true);
        END IF;
      EXCEPTION WHEN OTHERS THEN
        RAISE WARNING 'tranrepl: a partition keeps its replica identity: %', sqlerrm;
      END;
    END IF;
  END IF;
END IF;
""",
    identified=IDENTIFIED,
)

# The pad ends with no row: a message that is written in a subtransaction is decoded behind a row that follows it
# directly, and this one stands between them.
_PAD = "PERFORM pg_logical_emit_message(true, 'tranrepl.pad', '');"

# A command that does not name the table itself can change nothing of it but its partitions, and make an index valid
# whose last partition's is attached.
_ALONE = "drops_partitions OR tg_event = 'ddl_command_end' AND tg_tag <> 'ALTER INDEX' AND published <> ALL (touched)"

# CREATE TABLE and ALTER TABLE have locked what they name, and what they drop parts of: no need to ask, unless an index
# is named in its table's place, or a table became a partition, which is not named. Of the tables below, the command has
# altered none that it has not locked.
_LOCKED = composed(
    """
IF above IS NOT NULL OR altered IS NULL AND tg_tag <> 'CREATE TABLE' AND (
   defined_anew IS NOT NULL
   OR partitions_alone IS NOT TRUE
      AND (tg_tag <> 'ALTER TABLE' OR NOT tables_alone OR published <> ALL (touched))) THEN
  IF altered IS NULL THEN
    $locked
  END IF;
  CONTINUE WHEN above IS NOT NULL AND (published <> ALL (altered) OR published = ANY (above));
END IF;
""",
    locked=LOCKED,
)

# What a command does to a table, it may do to those below it: to partitions, and to those that inherit from it. At
# REPEATABLE READ a table may be seen below one that is below it.
_EVENT_BODY = composed(
    """
DECLARE
  touched oid[];
  others oid[];
  tables_alone boolean;
  above oid[];
  altered_types oid[];
  found_types oid[];
  made_of_them oid[];
  table_dropped boolean;
  index_dropped boolean;
  part_dropped boolean;
  parts_of text[];
  publication_dropped boolean;
  unpublished json;
  drops_partitions boolean;
  it oid;$declared
BEGIN
  IF tg_event = 'ddl_command_end' THEN
    $commanded
  ELSIF tg_event = 'sql_drop' THEN
    $dropped
  ELSE
    touched := ARRAY[pg_event_trigger_table_rewrite_oid()];
    rewrite := json_build_object('oid', touched[1]::bigint, 'reason', pg_event_trigger_table_rewrite_reason());
  END IF;
  LOOP
    FOR published, publication IN $published LOOP
      $describe
    END LOOP;
    EXIT WHEN above IS NOT NULL OR NOT has_children OR tg_event <> 'ddl_command_end' OR tg_tag = 'CREATE TABLE';
    above := touched;
    IF tables_below IS NULL THEN
      FOR depth IN 1 .. $levels LOOP
        SELECT array_agg(h.inhrelid) INTO touched FROM pg_inherits h WHERE h.inhparent = ANY (touched);
        EXIT WHEN touched IS NULL;
        tables_below := array_cat(tables_below, touched);
      END LOOP;
      EXIT WHEN tables_below IS NULL;
    END IF;
    touched := tables_below;
  END LOOP;
  IF told IS NOT NULL THEN
    $pad
  END IF;
EXCEPTION WHEN OTHERS THEN
  BEGIN
    message := jsonb_build_object(
      'v', 1, 'event', tg_event, 'tag', tg_tag, 'failed', sqlstate, 'message', sqlerrm);
    $emit
    $pad
  EXCEPTION WHEN OTHERS THEN
    RAISE WARNING 'tranrepl: a schema change is not announced: %', sqlerrm;
  END;
END
""",
    commanded=_COMMANDED,
    declared=DECLARED,
    describe=describe("tg_event", "tg_tag", alone=_ALONE, locked=_LOCKED, then=_IDENTIFY),
    dropped=_DROPPED,
    levels=LEVELS,
    emit=EMIT,
    pad=_PAD,
    published=composed(_PUBLISHED, first=" WHERE above IS NULL"),
)

# A rewrite makes a relation for the new rows, and drops it: its lock is held, but it is in no catalogue any more.
_CALL_BODY = composed(
    """
DECLARE
  called int := 0;
  touched oid[] := tables::oid[];$declared
BEGIN
  $locked
  FOR published, publication IN $published LOOP
    IF EXISTS (SELECT FROM unnest(altered) a (oid) WHERE NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = a.oid)) THEN
      rewrite := json_build_object('oid', published::bigint, 'reason', 6);
    END IF;
    $describe
    called := called + 1;
  END LOOP;
  IF told IS NOT NULL THEN
    $pad
  END IF;
  RETURN called;
END
""",
    declared=DECLARED,
    describe=describe("'call'", "'ALTER TABLE'"),
    locked=LOCKED,
    pad=_PAD,
    published=composed(_PUBLISHED, first=""),
)


def _function(name: str, arguments: str, returns: str, body: str) -> str:
    lines = "\n".join(line for line in body.strip().splitlines() if line.strip())
    return (
        f"CREATE OR REPLACE FUNCTION {SCHEMA}.{name}({arguments}) RETURNS {returns} LANGUAGE plpgsql SECURITY DEFINER\n"
        f"{_SETTINGS}\nAS $function$\n{lines}\n$function$"
    )


FUNCTIONS = {
    f"{SCHEMA}.{ANNOUNCE_EVENT}()": _function(ANNOUNCE_EVENT, "", "event_trigger", _EVENT_BODY),
    f"{SCHEMA}.{ANNOUNCE_CALL}(regclass[])": _function(
        ANNOUNCE_CALL, "VARIADIC tables regclass[]", "integer", _CALL_BODY
    ),
}
"""The statements that create the functions, by the functions' signatures."""
