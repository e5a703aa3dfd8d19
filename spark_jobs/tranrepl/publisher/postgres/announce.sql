-- What announces schema changes at a PostgreSQL Publisher, as signed messages in its log: a schema, the secret that
-- signs, functions and event triggers. All publications of a database share them. `tranrepl setup` runs the parts of
-- this file that are missing, and `tranrepl script FILE --publisher` prints those that it may not run. A superuser makes
-- all of it in a database that has none of it by `psql -1 -v ON_ERROR_STOP=1 -f announce.sql`.
--
-- A session's first command pays for all that PostgreSQL plans and looks up once a session, which is many times what the
-- queries take. So there are few of them over few catalogues, operators are of their operands' own types, and what few
-- tables need is in statements of its own. No function takes a lock: expressions are read of relations alone that their
-- transaction has locked, since reading them locks.

SET search_path = pg_catalog, pg_temp;

-- part: schema

CREATE SCHEMA tranrepl;
COMMENT ON SCHEMA tranrepl IS 'made by tranrepl setup';
GRANT USAGE ON SCHEMA tranrepl TO PUBLIC;

-- part: secret

-- The two keys of HMAC, with those before and the first transaction and position that do not use these any more.
CREATE TABLE tranrepl.message_secret (
  inner_key bytea NOT NULL, outer_key bytea NOT NULL,
  former_inner_key bytea, former_outer_key bytea, replaced_at xid8, replaced_lsn pg_lsn);
-- Default privileges may have given it to others.
DO $do$
DECLARE
  other text;
BEGIN
  FOR other IN
    SELECT DISTINCT CASE WHEN a.grantee = '0' THEN 'PUBLIC' ELSE a.grantee::regrole::text END
      FROM pg_class c, aclexplode(c.relacl) a
     WHERE c.oid = 'tranrepl.message_secret'::regclass AND a.grantee <> c.relowner
  LOOP
    EXECUTE concat('REVOKE ALL ON tranrepl.message_secret FROM ', other);
  END LOOP;
END
$do$;
-- UUIDs of version 4 are the only strong random bytes that every server has without an extension.
INSERT INTO tranrepl.message_secret (inner_key, outer_key)
  SELECT (SELECT string_agg(uuid_send(gen_random_uuid()), '') FROM generate_series(1, 4)),
         (SELECT string_agg(uuid_send(gen_random_uuid()), '') FROM generate_series(1, 4));

-- part: functions

-- Write a message into the log, signed. The text is in the server's encoding, as the log has it. The secret is one row:
-- where it was removed, no message is written.
CREATE OR REPLACE FUNCTION tranrepl.emit(message text) RETURNS void LANGUAGE plpgsql AS $function$
BEGIN
  PERFORM pg_logical_emit_message(true, 'tranrepl.schema', concat(encode(sha256(
      s.outer_key || sha256(s.inner_key || convert_to(
        concat('tranrepl.schema ', pg_current_xact_id()::xid, ' ', message), getdatabaseencoding()))), 'hex'),
      message)) FROM tranrepl.message_secret s;
END
$function$;

-- Announce those of the tables `touched` that are published, and the published tables above and below them, as the
-- command left them; return how many. `locked` and `altered`: what its transaction has locked, and so that it may have
-- altered it, where that is known. It is called by the two functions below, with their rights and settings.
CREATE OR REPLACE FUNCTION tranrepl.announce_tables(
  event text, tag text, touched oid[], tables_alone boolean, drops_partitions boolean, locked oid[], altered oid[],
  rewrite json
) RETURNS int LANGUAGE plpgsql AS $function$
DECLARE
  published oid;
  publication text;
  message text;
  written oid[];
  above oid[];
  has_children boolean;
  tables_below oid[];
  it oid;
BEGIN
  LOOP
    -- Of a partition, the tables above it are written; that function takes no lock, and costs nothing of other tables.
    -- What would be asked of the publication in WHERE would be asked of every published table.
    FOR published, publication IN
      SELECT r.prrelid, (pg_identify_object_as_address('6104', r.prpubid, 0)).object_names[1] FROM pg_publication_rel r
       WHERE r.prrelid = ANY (array_cat(touched, ARRAY(
         SELECT pg_partition_ancestors(t)::oid FROM unnest(touched) t WHERE above IS NULL)))
    LOOP
      -- Each query may see more than the one before it. What the message says it saw is what all of them have seen. Variables
      -- of a block are empty whenever it begins, which costs nothing. Each condition costs a plan: those of few tables
      -- stand within others.
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
        CONTINUE WHEN published = ANY (written) OR NOT starts_with(publication, 'tranrepl_');
        IF event = 'call' THEN
          -- A rewrite makes a relation for the new rows, and drops it: its lock is held, but it is in no catalogue any
          -- more.
          IF EXISTS (SELECT FROM unnest(altered) a (oid) WHERE NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = a.oid))
          THEN
            rewrite := json_build_object('oid', published::bigint, 'reason', 6);
          END IF;
        END IF;
        IF pg_partition_root(published) IS NOT NULL THEN
          -- A command that does not name the table itself can change nothing of it but its partitions, and make an index
          -- valid whose last partition's is attached.
          partitions_alone := drops_partitions
            OR event = 'ddl_command_end' AND tag <> 'ALTER INDEX' AND published <> ALL (touched);
          IF partitions_alone THEN
            -- The command below that gives a new partition its root's replica identity fires the event triggers in its
            -- turn: there is nothing to tell of the root then. Anybody may set what names the partition, but it comes
            -- to a root in this transaction by the root's owner alone.
            IF current_setting('tranrepl.identified', true) = touched[1]::text THEN
              CONTINUE WHEN EXISTS (
                SELECT FROM pg_inherits h
                 WHERE age(h.xmin) < '1' AND h.inhrelid = ANY (ARRAY(SELECT pg_partition_ancestors(touched[1])::oid)));
            END IF;
          END IF;
          level := ARRAY[published];
          -- Many partitions are written in few arrays: an object for each costs more, and planning a join more than two
          -- queries. `xmin` tells one attachment from the next. A circle of partitions, or of tables that inherit, has
          -- no end: it is seen at REPEATABLE READ where another transaction has turned two tables round.
          FOR depth IN 1 .. 100 LOOP
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
          tables_below := array_cat(tables_below, oids);
        END IF;
        -- CREATE TABLE and ALTER TABLE have locked what they name, and what they drop parts of: no need to ask, unless
        -- an index is named in its table's place, or a table became a partition, which is not named. Of the tables
        -- below, the command has altered none that it has not locked.
        IF above IS NOT NULL OR altered IS NULL AND tag <> 'CREATE TABLE' AND (
           defined_anew IS NOT NULL
           OR partitions_alone IS NOT TRUE
              AND (tag <> 'ALTER TABLE' OR NOT tables_alone OR published <> ALL (touched))) THEN
          IF altered IS NULL THEN
            SELECT l.locked, l.altered INTO locked, altered FROM tranrepl.locked_tables() l;
          END IF;
          CONTINUE WHEN above IS NOT NULL AND (published <> ALL (altered) OR published = ANY (above));
        END IF;
        IF defined_anew IS NOT NULL THEN
          -- What defines a partition is news where it became one in this transaction, and the key of one that is divided
          -- wherever the names of its columns may be. A partition of no size has no row.
          SELECT json_agg(json_build_object(
                   'oid', f.oid, 'key', pg_get_partkeydef(f.oid), 'empty', pg_relation_size(f.oid) = '0',
                   'bound', pg_get_expr(f.relpartbound, f.oid)))
            INTO definitions
            FROM pg_class f
           WHERE f.oid = ANY (defined_anew) AND f.oid = ANY (coalesce(locked, touched));
        END IF;
        IF partitions_alone THEN
          -- A partitioned table of which nothing else was changed is written without all else.
          message := json_build_object(
            'v', 1, 'event', event, 'tag', tag, 'xact', pg_current_xact_id(), 'snapshot', seen, 'children', children,
            'parents', parents, 'attached', attached, 'oids', oids, 'kinds', kinds, 'schemas', schemas, 'names', names,
            'definitions', definitions, 'oid', published)::text;
        ELSE
          IF starts_with(current_setting('transaction_isolation'), 'read') THEN
            -- Of PostgreSQL's own types, pg_type has no news; but those of information_schema, which have numbers from
            -- 12000 on, have collations. Literals take the type of what they are compared with: another operator would
            -- be looked for among all of its name. A condition in WHERE makes the planner read statistics, and an order
            -- all the operator classes there are: who reads the message puts the columns in order. A column that was
            -- added is the last one.
            SELECT json_agg(json_build_object(
                  'num', a.attnum, 'name', a.attname, 'type', format_type(a.atttypid, a.atttypmod), 'oid', a.atttypid,
                  'mod', a.atttypmod, 'attcollation', a.attcollation, 'notnull', a.attnotnull,
                  'generated', a.attgenerated, 'ident', a.attidentity,
                  'default', CASE WHEN a.atthasdef AND published = ANY (coalesce(locked, touched)) THEN (
                    SELECT pg_get_expr(d.adbin, d.adrelid) FROM pg_attrdef d
                     WHERE d.adrelid = a.attrelid AND d.adnum = a.attnum)
                  END,
                  'has_missing', a.atthasmissing, 'missing', a.attmissingval::text))
                   FILTER (WHERE a.attnum > '0' AND NOT a.attisdropped),
                   array_agg(a.atttypid) FILTER (WHERE a.atttypid >= '12000'),
                   array_agg(a.attnum) FILTER (WHERE age(a.xmin) < '1'), max(a.attnum)
              INTO columns, own_types, altered_columns, last_column
              FROM pg_attribute a
             WHERE a.attrelid = published;
          ELSE
            -- At REPEATABLE READ a row is seen twice that another transaction has altered meanwhile, and then this one:
            -- as it was, and as this transaction left it, which is the younger one. Where both are on one page, an index
            -- leads to the older one alone: so all rows of that page are looked at, of which none takes less than 28
            -- bytes. That another transaction has altered a row is seen by its `xmax`. What few transactions need is
            -- text until then: PL/pgSQL reads all else before it runs anything.
            statement := $sql$
              SELECT json_agg(json_build_object(
                  'num', a.attnum, 'name', a.attname, 'type', format_type(a.atttypid, a.atttypmod), 'oid', a.atttypid,
                  'mod', a.atttypmod, 'attcollation', a.attcollation, 'notnull', a.attnotnull,
                  'generated', a.attgenerated, 'ident', a.attidentity,
                  'default', CASE WHEN a.atthasdef AND a.attrelid = ANY ($2) THEN pg_get_expr(d.adbin, d.adrelid) END,
                  'has_missing', a.atthasmissing, 'missing', a.attmissingval::text,
                  'dropped', a.attisdropped, 'xmin', a.xmin, 'age', age(a.xmin), 'default_age', age(d.xmin)))
                     FILTER (WHERE a.attnum > '0'),
                     array_agg(a.atttypid) FILTER (WHERE a.atttypid >= '12000'),
                     coalesce(bool_or(a.xmax <> '0'), false)
                       OR EXISTS (SELECT FROM pg_class c WHERE c.oid = $1 AND c.xmax <> '0')
                FROM pg_attribute a
                LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
               WHERE a.attrelid = $1
            $sql$;
            locked := coalesce(locked, touched);
            EXECUTE statement INTO columns, own_types, altered_twice USING published, locked;
            IF altered_twice THEN
              EXECUTE replace(statement, 'WHERE a.attrelid = $1', $sql$
                WHERE a.ctid = ANY (ARRAY(
                     SELECT concat('(', pages.number, ',', place, ')')::tid
                       FROM (SELECT DISTINCT (x.ctid::text::point)[0]::bigint
                               FROM pg_attribute x WHERE x.attrelid = $1) pages (number),
                            generate_series(1, current_setting('block_size')::int / 28) place))
                   AND a.attrelid::bigint = $1::bigint
              $sql$) INTO columns, own_types, altered_twice USING published, locked;
              altered_twice := true;
            END IF;
          END IF;
          IF own_types IS NOT NULL OR oids IS NOT NULL THEN
            -- What the types are made of; where all of them are enumerated, their labels alone. It ends also where none
            -- of them is there any more: at REPEATABLE READ a column is seen as it was.
            IF own_types IS NOT NULL THEN
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
                    SELECT array_cat(attributes, array_agg(json_build_array(
                             p.attrelid, p.attnum, p.atttypid, p.atttypmod))),
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
            END IF;
            IF oids IS NOT NULL AND (last_column = ANY (altered_columns)) IS NOT FALSE AND tag = 'ALTER TABLE' THEN
              -- The value of a column that was added is kept by each partition that was there by then, under its own
              -- number of the column. Others are newer, or were written again.
              SELECT json_object_agg(a.attname, (
                       SELECT f.attmissingval::text FROM pg_attribute f
                        WHERE f.attrelid = ANY (oids) AND f.attname = a.attname AND f.atthasmissing LIMIT 1))
                INTO kept_values
                FROM pg_attribute a WHERE a.attrelid = published AND age(a.xmin) < '1';
            END IF;
          END IF;
          IF altered_twice IS NULL THEN
            -- That which gives addresses looks in no table and takes no lock, and it knows what others have committed
            -- also where the transaction may not see that: a schema that is newer than its snapshot, into which the
            -- table was moved. It knows no index that another transaction has dropped.
            SELECT json_build_object(
              'v', 1, 'event', event, 'tag', tag, 'xact', pg_current_xact_id(), 'snapshot', seen,
              'children', children, 'parents', parents, 'attached', attached, 'oids', oids, 'kinds', kinds,
              'schemas', schemas, 'names', names, 'definitions', definitions, 'rewrite', rewrite, 'columns', columns,
              'altered', altered_columns, 'labels', labels, 'made_of', made_of, 'checks', checks,
              'attributes', attributes, 'ranges', ranges, 'kept_values', kept_values, 'oid', c.oid,
              'schema', (pg_identify_object_as_address('2615', c.relnamespace, 0)).object_names[1],
              'name', c.relname, 'kind', c.relkind, 'persistence', c.relpersistence, 'identity', c.relreplident,
              'rowsecurity', c.relrowsecurity, 'defaults_told', c.oid = ANY (coalesce(locked, touched)),
              'key', CASE WHEN c.relkind = 'p' AND c.oid = ANY (coalesce(locked, touched))
                          THEN pg_get_partkeydef(c.oid) END,
              'unique', (
                SELECT json_agg(json_build_object(
                  'oid', i.indexrelid,
                  'name', (pg_identify_object_as_address('1259', i.indexrelid, 0)).object_names[2],
                  'primary', i.indisprimary, 'identity', i.indisreplident, 'immediate', i.indimmediate,
                  'partial', i.indpred IS NOT NULL, 'columns', (i.indkey::int2[])[0:i.indnkeyatts - 1]))
                    FILTER (WHERE i.indisunique AND i.indisvalid)
                  FROM pg_index i WHERE i.indrelid = c.oid))::text, c.relreplident,
              c.relhassubclass OR has_children IS TRUE
              INTO message, identity, has_children FROM pg_class c WHERE c.oid = published;
          ELSE
            -- The same as this transaction sees it. Each value that is given to such a text costs a plan.
            statement := $sql$
              SELECT json_build_object(
                'v', 1, 'read_before', $3, 'oid', c.oid,
                'schema', (pg_identify_object_as_address('2615', c.relnamespace, 0)).object_names[1], 'xmin', c.xmin,
                'name', c.relname, 'kind', c.relkind, 'persistence', c.relpersistence, 'identity', c.relreplident,
                'rowsecurity', c.relrowsecurity, 'defaults_told', c.oid = ANY ($2),
                'key', CASE WHEN c.relkind = 'p' AND c.oid = ANY ($2) THEN pg_get_partkeydef(c.oid) END,
                'unique', (
                  SELECT json_agg(json_build_object(
                    'oid', i.indexrelid,
                    'name', (SELECT y.relname FROM pg_class y WHERE y.oid = i.indexrelid ORDER BY age(y.xmin) LIMIT 1),
                    'primary', i.indisprimary, 'identity', i.indisreplident, 'immediate', i.indimmediate,
                    'partial', i.indpred IS NOT NULL, 'xmin', i.xmin,
                    'columns', (i.indkey::int2[])[0:i.indnkeyatts - 1]))
                      FILTER (WHERE i.indisunique AND i.indisvalid)
                    FROM pg_index i WHERE i.indrelid = c.oid))::text, c.relreplident, c.relhassubclass OR $4
                FROM pg_class c
               WHERE c.oid = $1 ORDER BY age(c.xmin) LIMIT 1
            $sql$;
            IF altered_twice THEN
              statement := replace(statement, 'WHERE c.oid = $1', $sql$
                WHERE c.ctid = ANY (ARRAY(
                     SELECT concat('(', pages.number, ',', place, ')')::tid
                       FROM (SELECT DISTINCT (x.ctid::text::point)[0]::bigint
                               FROM pg_class x WHERE x.oid = $1) pages (number),
                            generate_series(1, current_setting('block_size')::int / 28) place))
                   AND c.oid::bigint = $1::bigint
              $sql$);
            END IF;
            EXECUTE statement INTO message, identity, has_children
              USING published, locked, json_build_object(
                'event', event, 'tag', tag, 'xact', pg_current_xact_id(), 'snapshot', seen, 'children', children,
                'parents', parents, 'attached', attached, 'oids', oids, 'kinds', kinds, 'schemas', schemas,
                'names', names, 'definitions', definitions, 'rewrite', rewrite, 'columns', columns,
                'altered', altered_columns, 'labels', labels, 'made_of', made_of, 'checks', checks,
                'attributes', attributes, 'ranges', ranges, 'kept_values', kept_values), has_children IS TRUE;
          END IF;
        END IF;
        PERFORM tranrepl.emit(message);
        written := array_cat(written, ARRAY[published]);
        IF oids IS NOT NULL THEN
          -- A new partition has the default identity, whatever its root has. The command has locked it, and its owner
          -- ran it.
          IF event = 'ddl_command_end' AND (tag = 'ALTER TABLE' OR tag = 'CREATE TABLE' OR tag = 'CREATE SCHEMA') THEN
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
                  PERFORM set_config('tranrepl.identified', it::text, true);
                  EXECUTE (SELECT format('ALTER TABLE ONLY %I.%I REPLICA IDENTITY FULL', n.nspname, c.relname)
                             FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = it);
                END LOOP;
                IF found THEN
                  PERFORM set_config('tranrepl.identified', '', true);
                END IF;
              EXCEPTION WHEN OTHERS THEN
                RAISE WARNING 'tranrepl: a partition keeps its replica identity: %', sqlerrm;
              END;
            END IF;
          END IF;
        END IF;
      END;
    END LOOP;
    -- What a command does to a table, it may do to those below it: to partitions, and to those that inherit from it. At
    -- REPEATABLE READ a table may be seen below one that is below it.
    EXIT WHEN above IS NOT NULL OR NOT has_children OR event <> 'ddl_command_end' OR tag = 'CREATE TABLE';
    above := touched;
    IF tables_below IS NULL THEN
      FOR depth IN 1 .. 100 LOOP
        SELECT array_agg(h.inhrelid) INTO touched FROM pg_inherits h WHERE h.inhparent = ANY (touched);
        EXIT WHEN touched IS NULL;
        tables_below := array_cat(tables_below, touched);
      END LOOP;
      EXIT WHEN tables_below IS NULL;
    END IF;
    touched := tables_below;
  END LOOP;
  IF written IS NOT NULL THEN
    -- The pad ends with no row: a message that is written in a subtransaction is decoded behind a row that follows it
    -- directly, and this one stands between them.
    PERFORM pg_logical_emit_message(true, 'tranrepl.pad', '');
  END IF;
  RETURN coalesce(cardinality(written), 0);
END
$function$;

-- The tables that this transaction has locked, and those of them so that it may have altered them. A list of constants is
-- prepared for hashing, which costs more than three comparisons.
CREATE OR REPLACE FUNCTION tranrepl.locked_tables(OUT locked oid[], OUT altered oid[]) LANGUAGE plpgsql AS $function$
BEGIN
  SELECT coalesce(array_agg(l.relation), '{}'),
         coalesce(array_agg(l.relation)
                    FILTER (WHERE NOT (l.mode = 'AccessShareLock' OR l.mode = 'RowShareLock'
                                       OR l.mode = 'RowExclusiveLock')), '{}')
    INTO locked, altered
    FROM pg_lock_status() l
   WHERE l.pid = pg_backend_pid() AND l.locktype = 'relation' AND l.granted AND l.database <> '0';
END
$function$;

-- Runs as event triggers. It is SECURITY DEFINER, as what it writes is signed with a secret that its owner alone reads:
-- nobody but it decides what is signed, and it reads that from the catalogue. The user's schemas shadow nothing. Planning
-- costs more than the queries do. Values are written as a session that reads the log shows them.
CREATE OR REPLACE FUNCTION tranrepl.announce_schema_change() RETURNS event_trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
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
SET standard_conforming_strings = 'on'
AS $function$
DECLARE
  touched oid[];
  others oid[];
  tables_alone boolean;
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
  locked oid[];
  altered oid[];
  rewrite json;
  publications text[];
BEGIN
  IF tg_event = 'ddl_command_end' THEN
    -- Most commands name tables alone, and the indexes that CREATE TABLE makes are of its own table. A composite type is
    -- named as its relation, and what is done to it may be done to tables of that type. A command that names another
    -- type alters no table, and has locked none for that. 1259 is pg_class, and 1247 pg_type.
    SELECT array_agg(d.objid) FILTER (WHERE d.classid = '1259'),
           array_agg(d.objid) FILTER (WHERE d.classid <> '1259'),
           bool_and(d.object_type = 'table' OR tg_tag = 'CREATE TABLE')
      INTO touched, others, tables_alone
      FROM pg_event_trigger_ddl_commands() d;
    IF NOT tables_alone THEN
      IF tg_tag = 'ALTER TYPE' OR tg_tag = 'ALTER DOMAIN' OR tg_tag = 'ALTER SCHEMA' THEN
        altered_types := '{}';
        found_types := others;
        IF tg_tag = 'ALTER SCHEMA' THEN
          touched := ARRAY(SELECT c.oid FROM pg_class c WHERE c.relnamespace = ANY (others));
          found_types := ARRAY(SELECT t.oid FROM pg_type t WHERE t.typnamespace = ANY (others));
        ELSIF found_types IS NOT NULL THEN
          altered := '{}';
          locked := altered;
        ELSE
          made_of_them := touched;
        END IF;
        -- Columns, domains, lists and ranges depend on their types; a composite type has a relation, whose columns depend
        -- on theirs, and which depends on its type itself.
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
      ELSE
        IF others IS NOT NULL THEN
          touched := array_cat(touched, ARRAY(
            SELECT k.conrelid FROM pg_constraint k WHERE k.oid = ANY (others)
            UNION ALL SELECT r.prrelid FROM pg_publication_rel r WHERE r.oid = ANY (others)));
        END IF;
        touched := array_cat(touched, ARRAY(SELECT i.indrelid FROM pg_index i WHERE i.indexrelid = ANY (touched)));
      END IF;
    END IF;
  ELSIF tg_event = 'sql_drop' THEN
    -- Of a dropped partition or index no event names the table, but its transaction has locked it, also where the index
    -- was dropped concurrently. A default, a constraint or an index that goes with its own table is no news.
    SELECT array_agg(d.objid) FILTER (WHERE d.object_type = 'table column'),
           bool_or(d.object_type = 'table'),
           bool_or((d.original OR d.normal) AND d.object_type = 'index'),
           bool_or((d.original OR d.normal)
                   AND (d.object_type = 'default value' OR d.object_type = 'table constraint')),
           bool_or(d.object_type = 'publication relation')
      INTO touched, table_dropped, index_dropped, part_dropped, publication_dropped
      FROM pg_event_trigger_dropped_objects() d WHERE NOT d.is_temporary;
    IF publication_dropped THEN
      SELECT json_agg(json_build_object(
               'publication', r.address_args[1], 'schema', r.address_names[1], 'name', r.address_names[2],
               'oid', t.objid::bigint))
        INTO unpublished
        FROM pg_event_trigger_dropped_objects() r
        LEFT JOIN pg_event_trigger_dropped_objects() t
          ON t.object_type = 'table' AND NOT t.is_temporary AND t.address_names = r.address_names
       WHERE r.object_type = 'publication relation' AND starts_with(r.address_args[1], 'tranrepl_');
      IF unpublished IS NOT NULL THEN
        PERFORM tranrepl.emit(
          json_build_object('v', 1, 'event', tg_event, 'tag', tg_tag, 'unpublished', unpublished)::text);
        PERFORM pg_logical_emit_message(true, 'tranrepl.pad', '');
      END IF;
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
      SELECT l.locked, l.altered INTO locked, altered FROM tranrepl.locked_tables() l;
      IF index_dropped THEN
        touched := array_cat(touched, altered);
      ELSE
        drops_partitions := tg_tag = 'DROP TABLE' AND touched IS NULL AND NOT part_dropped;
        touched := array_cat(touched, ARRAY(
          SELECT c.oid FROM pg_class c WHERE c.oid = ANY (altered) AND c.relkind = 'p'));
      END IF;
    END IF;
  ELSE
    touched := ARRAY[pg_event_trigger_table_rewrite_oid()];
    rewrite := json_build_object('oid', touched[1]::bigint, 'reason', pg_event_trigger_table_rewrite_reason());
  END IF;
  PERFORM tranrepl.announce_tables(
    tg_event, tg_tag, touched, tables_alone, drops_partitions, locked, altered, rewrite);
EXCEPTION WHEN OTHERS THEN
  -- The publications whose tables the command touched, with those above and below them, cannot follow it; nobody else
  -- is concerned. Where it failed before it knew the tables, they are among those that the transaction has locked.
  BEGIN
    IF tg_event = 'sql_drop' THEN
      publications := ARRAY(SELECT d.address_args[1] FROM pg_event_trigger_dropped_objects() d
                             WHERE d.object_type = 'publication relation');
    END IF;
    IF touched IS NULL THEN
      SELECT l.altered INTO touched FROM tranrepl.locked_tables() l;
    END IF;
    publications := ARRAY(
      SELECT p.name FROM unnest(publications) p (name) WHERE starts_with(p.name, 'tranrepl_')
      UNION
      SELECT p.pubname FROM pg_publication p JOIN pg_publication_rel r ON r.prpubid = p.oid
       WHERE starts_with(p.pubname, 'tranrepl_') AND r.prrelid IN (
         WITH RECURSIVE below AS (
           SELECT t.oid FROM unnest(touched) t (oid)
           UNION SELECT h.inhrelid FROM below b JOIN pg_inherits h ON h.inhparent = b.oid)
         SELECT b.oid FROM below b UNION SELECT pg_partition_ancestors(b.oid) FROM below b));
    IF publications <> '{}' THEN
      PERFORM tranrepl.emit(json_build_object(
        'v', 1, 'event', tg_event, 'tag', tg_tag, 'failed', sqlstate, 'message', sqlerrm,
        'publications', publications)::text);
      PERFORM pg_logical_emit_message(true, 'tranrepl.pad', '');
    END IF;
  EXCEPTION WHEN OTHERS THEN
    RAISE WARNING 'tranrepl: a schema change is not captured: %', sqlerrm;
  END;
END
$function$;

-- Where there are no event triggers, a transaction calls this behind its commands.
CREATE OR REPLACE FUNCTION tranrepl.announce(VARIADIC tables regclass[]) RETURNS int LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
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
SET standard_conforming_strings = 'on'
AS $function$
DECLARE
  locked oid[];
  altered oid[];
BEGIN
  SELECT l.locked, l.altered INTO locked, altered FROM tranrepl.locked_tables() l;
  RETURN tranrepl.announce_tables(
    'call', 'ALTER TABLE', tables::oid[], NULL::boolean, NULL::boolean, locked, altered, NULL::json);
END
$function$;

-- Default privileges may have given a new function to others; who may call `announce` later is its owner's to say.
DO $do$
DECLARE
  it text;
  other text;
BEGIN
  FOR it, other IN
    SELECT DISTINCT p.oid::regprocedure::text,
           CASE WHEN a.grantee = '0' THEN 'PUBLIC' ELSE a.grantee::regrole::text END
      FROM pg_proc p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
     WHERE p.pronamespace = 'tranrepl'::regnamespace AND a.grantee <> p.proowner
       AND (p.proname <> 'announce' OR obj_description(p.oid, 'pg_proc') IS NULL)
       AND p.proname IN ('announce', 'announce_schema_change', 'announce_tables', 'emit', 'locked_tables')
  LOOP
    EXECUTE concat('REVOKE ALL ON FUNCTION ', it, ' FROM ', other);
  END LOOP;
END
$do$;
COMMENT ON FUNCTION tranrepl.announce(regclass[]) IS 'tranrepl schema changes, version 14';
COMMENT ON FUNCTION tranrepl.announce_schema_change() IS 'tranrepl schema changes, version 14';
COMMENT ON FUNCTION tranrepl.announce_tables(text, text, oid[], boolean, boolean, oid[], oid[], json)
  IS 'tranrepl schema changes, version 14';
COMMENT ON FUNCTION tranrepl.emit(text) IS 'tranrepl schema changes, version 14';
COMMENT ON FUNCTION tranrepl.locked_tables() IS 'tranrepl schema changes, version 14';

-- part: ownership

-- A login that replaces what an event trigger runs or reads acts as the one that fires it. So all of it goes to who makes the
-- triggers, and functions that were another role's are made again before; the secret's former owner still reads and
-- changes it, and may announce.
DO $do$
DECLARE
  former text := (SELECT c.relowner::regrole::text FROM pg_class c WHERE c.oid = 'tranrepl.message_secret'::regclass);
BEGIN
  IF EXISTS (SELECT FROM pg_class c WHERE c.oid = 'tranrepl.message_secret'::regclass
                AND (c.relkind <> 'r' OR c.relhastriggers OR c.relhasrules OR c.relrowsecurity)) THEN
    RAISE EXCEPTION 'tranrepl.message_secret is no plain table: drop it, and run tranrepl setup again';
  END IF;
  ALTER SCHEMA tranrepl OWNER TO CURRENT_USER;
  ALTER TABLE tranrepl.message_secret OWNER TO CURRENT_USER;
  ALTER FUNCTION tranrepl.announce(regclass[]) OWNER TO CURRENT_USER;
  ALTER FUNCTION tranrepl.announce_schema_change() OWNER TO CURRENT_USER;
  ALTER FUNCTION tranrepl.announce_tables(text, text, oid[], boolean, boolean, oid[], oid[], json)
    OWNER TO CURRENT_USER;
  ALTER FUNCTION tranrepl.emit(text) OWNER TO CURRENT_USER;
  ALTER FUNCTION tranrepl.locked_tables() OWNER TO CURRENT_USER;
  EXECUTE concat('GRANT SELECT, UPDATE ON tranrepl.message_secret TO ', former);
  EXECUTE concat('GRANT EXECUTE ON FUNCTION tranrepl.announce(regclass[]) TO ', former);
END
$do$;

-- part: event triggers

DROP EVENT TRIGGER IF EXISTS tranrepl_ddl_end;
CREATE EVENT TRIGGER tranrepl_ddl_end ON ddl_command_end
  WHEN TAG IN ('ALTER DOMAIN', 'ALTER INDEX', 'ALTER PUBLICATION', 'ALTER SCHEMA', 'ALTER TABLE', 'ALTER TYPE',
               'CREATE INDEX', 'CREATE PUBLICATION', 'CREATE SCHEMA', 'CREATE TABLE')
  EXECUTE FUNCTION tranrepl.announce_schema_change();
ALTER EVENT TRIGGER tranrepl_ddl_end ENABLE ALWAYS;

DROP EVENT TRIGGER IF EXISTS tranrepl_drop;
CREATE EVENT TRIGGER tranrepl_drop ON sql_drop EXECUTE FUNCTION tranrepl.announce_schema_change();
ALTER EVENT TRIGGER tranrepl_drop ENABLE ALWAYS;

DROP EVENT TRIGGER IF EXISTS tranrepl_rewrite;
CREATE EVENT TRIGGER tranrepl_rewrite ON table_rewrite EXECUTE FUNCTION tranrepl.announce_schema_change();
ALTER EVENT TRIGGER tranrepl_rewrite ENABLE ALWAYS;
