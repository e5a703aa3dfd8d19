"""A schema in which somebody made operators, functions and types of PostgreSQL's names, on a role's search path.

Whoever calls one of them has an error: a session of ours that finds one names it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

from support.least_rights import with_login
from support.site import execute
from tranrepl.connections import Connection

SPRUNG = "a trap in the hostile schema"

# What no operator of PostgreSQL's has the exact types of is found in any order of schemas.
_TRAPS = """
DO $do$
DECLARE
  it record;
  number int := 0;
BEGIN
  FOR it IN
    SELECT o.oprname, l.name AS one, r.name AS other
      FROM (SELECT DISTINCT oprname FROM pg_catalog.pg_operator WHERE oprnamespace = 'pg_catalog'::regnamespace) o,
           unnest(ARRAY['varchar', 'bpchar', 'name']) l(name), unnest(ARRAY['varchar', 'text', 'bpchar']) r(name)
     WHERE oprname IN ('=', '<>', '<', '>', '<=', '>=', '||', '~')
    UNION ALL
    SELECT oprname, oprleft::regtype::text, oprright::regtype::text FROM pg_catalog.pg_operator
     WHERE oprnamespace = 'pg_catalog'::regnamespace AND oprleft <> 0
  LOOP
    number := number + 1;
    BEGIN
      EXECUTE format('CREATE FUNCTION {schema}.trap_%s(%s, %s) RETURNS boolean LANGUAGE plpgsql AS %L', number,
                     it.one, it.other, format('BEGIN RAISE EXCEPTION %L; END', '{sprung}: ' || it.oprname));
      EXECUTE format('CREATE OPERATOR {schema}.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = {schema}.trap_%s)',
                     it.oprname, it.one, it.other, number);
    EXCEPTION WHEN OTHERS THEN NULL;
    END;
  END LOOP;
  FOR it IN
    SELECT p.proname, pg_get_function_identity_arguments(p.oid) AS arguments, pg_get_function_result(p.oid) AS result
      FROM pg_catalog.pg_proc p WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.prokind IN ('f', 'a')
    UNION ALL
    SELECT name, arguments, 'text' FROM unnest(ARRAY['concat', 'format', 'coalesce']) name,
           unnest(ARRAY['text', 'text, text', 'text, text, text', 'text, text, text, text']) arguments
  LOOP
    BEGIN
      EXECUTE format('CREATE FUNCTION {schema}.%I(%s) RETURNS %s LANGUAGE plpgsql AS %L', it.proname, it.arguments,
                     it.result, format('BEGIN RAISE EXCEPTION %L; END', '{sprung}: ' || it.proname));
    EXCEPTION WHEN OTHERS THEN NULL;
    END;
  END LOOP;
  FOR it IN SELECT typname FROM unnest(ARRAY['text', 'bytea', 'date', 'uuid', 'json', 'jsonb', 'name', 'oid']) typname
  LOOP
    EXECUTE format('CREATE DOMAIN {schema}.%I AS pg_catalog.%I CHECK ({schema}.trap_1(NULL, NULL))',
                   it.typname, it.typname);
  END LOOP;
  FOR it IN SELECT relname FROM pg_catalog.pg_class WHERE relnamespace = 'pg_catalog'::regnamespace AND relkind = 'r'
  LOOP
    EXECUTE format('CREATE VIEW {schema}.%I AS SELECT {schema}.trap_1(NULL, NULL) AS trap', it.relname);
  END LOOP;
END
$do$
"""


@contextmanager
def hostile_login(owner: Connection) -> Iterator[Connection]:
    """Make the schema `hostile`, and yield the connection of a superuser on whose path it comes first."""
    login = f"hostile_{uuid4().hex[:8]}"
    execute(
        owner,
        "CREATE SCHEMA hostile",
        _TRAPS.format(schema="hostile", sprung=SPRUNG),
        f"CREATE ROLE {login} SUPERUSER LOGIN PASSWORD '{login}'",
        f"ALTER ROLE {login} SET search_path = hostile, public, pg_catalog",
    )
    yield with_login(owner, login, login)
    execute(owner, f"DROP OWNED BY {login} CASCADE", f"DROP ROLE {login}")
