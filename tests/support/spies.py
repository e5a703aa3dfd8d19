"""Operators and functions that a role may make in `public`, which fit calls of PostgreSQL's own better, and write each
call to the server's log."""

from __future__ import annotations

from uuid import uuid4

from support.embedded_postgres import PostgresServer
from support.least_rights import with_login
from support.site import execute
from tranrepl.connections import Connection

_FUNCTION = "LANGUAGE plpgsql IMMUTABLE AS $body$ BEGIN RAISE LOG 'tranrepl spy called: {}'; RETURN NULL; END $body$"
_OPERATORS = """
DO $do$
DECLARE types text[] := '{smallint, integer, bigint, oid, text, varchar, name, "char", xid, regclass, boolean, bytea}';
        l text; r text; op text;
BEGIN
    FOREACH l IN ARRAY types LOOP FOREACH r IN ARRAY types LOOP
        EXECUTE format('CREATE FUNCTION public.spy(%s, %s) RETURNS boolean BODY', l, r);
        FOREACH op IN ARRAY '{=, <>, <, <=, >, >=, ||, &, ->>, ~}'::text[] LOOP
            IF to_regoperator(format('pg_catalog.%s(%s, %s)', op, l, r)) IS NULL THEN
                EXECUTE format(
                    'CREATE OPERATOR public.%s (leftarg = %s, rightarg = %s, function = public.spy)', op, l, r);
            END IF;
        END LOOP;
    END LOOP; END LOOP;
END $do$
""".replace("BODY", _FUNCTION.format("an operator").replace("'", "''"))
_FUNCTIONS = """
DO $do$
DECLARE f record; t text; args text;
BEGIN
    FOR f IN SELECT DISTINCT proname, proargtypes::oid[]::regtype[]::text[] AS args FROM pg_catalog.pg_proc
              WHERE pronamespace = 'pg_catalog'::regnamespace AND prokind = 'f' AND pronargs BETWEEN 1 AND 3
                AND proname !~ '(send|recv|in|out|sel|support)$' LOOP
        FOREACH t IN ARRAY '{text, varchar, integer, bigint, oid, name}'::text[] LOOP
            SELECT string_agg(CASE WHEN a ~ 'array' THEN t || '[]' WHEN a ~ 'any' THEN t
                                   WHEN a = 'text' AND t IN ('varchar', 'name') THEN t ELSE a END, ', ' ORDER BY n)
              INTO args FROM unnest(f.args) WITH ORDINALITY u(a, n);
            IF to_regprocedure(format('pg_catalog.%I(%s)', f.proname, args)) IS NULL THEN
                BEGIN
                    EXECUTE format('CREATE FUNCTION public.%I(%s) RETURNS text BODY', f.proname, args);
                EXCEPTION WHEN OTHERS THEN NULL;
                END;
            END IF;
        END LOOP;
    END LOOP;
END $do$
""".replace("BODY", _FUNCTION.format("a function").replace("'", "''"))


def make_spies(owner: Connection) -> str:
    """Make them by a new role with CREATE on `public`; return its name."""
    role = f"mallory_{uuid4().hex[:8]}"
    execute(owner, f"CREATE ROLE {role} LOGIN PASSWORD 'x'", f"GRANT CREATE ON SCHEMA public TO {role}")
    execute(with_login(owner, role, "x"), _OPERATORS, _FUNCTIONS)
    return role


def calls(server: PostgresServer) -> list[str]:
    """Return the lines of the server's log that say that one was called."""
    lines = server.settings.log.read_text(encoding="utf-8", errors="replace").splitlines()
    return [it for it in lines if "tranrepl spy called" in it]
