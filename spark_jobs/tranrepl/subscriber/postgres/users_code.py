"""Code of users at a PostgreSQL Subscriber, custom procedures and triggers: it runs on our role's own search path.

Our statements around it are parsed on ours, where no operator of others is found.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from psycopg import sql

from tranrepl.model.commands import Method
from tranrepl.postgres.catalogue import qualified
from tranrepl.postgres.rights import our_role
from tranrepl.postgres.session import SAFE_PATH, Session, schemas_of_own_path
from tranrepl.settings.publication import Article
from tranrepl.subscriber.postgres.procedures import PROCEDURE_NAMES, SCHEMA
from tranrepl.subscriber.procedure_names import PREFIXES, called_procedure

_DELETION = sql.Identifier("pg_temp", "tranrepl_deletion")


def on_own_path(statements: sql.Composable) -> sql.Composed:
    """Return PL/pgSQL that runs statements on the role's own path; every name and operator in them has its schema.
    `tranrepl_path` is declared around it. An assignment leaves FOUND as the statements set it."""
    return sql.SQL(
        "      tranrepl_path := pg_catalog.set_config('search_path', NULL, true);\n{}"
        "      tranrepl_path := pg_catalog.set_config('search_path', {}, true);\n"
    ).format(statements, sql.Literal(SAFE_PATH))


def deletion_on_own_path(delete: sql.Composable) -> sql.Composed:
    """Return PL/pgSQL that runs a DELETE whose condition, as a row filter, is not ours to qualify: a function that is
    parsed when it is made, on our path, calls triggers on the role's own."""
    made = sql.SQL("CREATE FUNCTION {}() RETURNS void LANGUAGE sql BEGIN ATOMIC {}; END").format(_DELETION, delete)
    return sql.SQL("      EXECUTE {};\n{}      DROP FUNCTION {}();\n").format(
        sql.Literal(made.as_string(None)),
        on_own_path(sql.SQL("      PERFORM {}();\n").format(_DELETION)),
        _DELETION,
    )


def delete_on_own_path(deletes: Sequence[sql.Composable]) -> sql.Composed:
    """Return DELETEs of several tables as one statement that calls triggers on the role's own path. Foreign keys among
    the tables are checked when the rows of all of them have gone."""
    *others, last = deletes
    named = [sql.SQL("{} AS ({})").format(sql.Identifier(f"t{at}"), it) for at, it in enumerate(others)]
    together = sql.SQL("WITH {} {}").format(sql.SQL(", ").join(named), last) if named else last
    body = sql.SQL("DECLARE tranrepl_path text;\nBEGIN\n{}END").format(deletion_on_own_path(together))
    return sql.SQL("DO {}").format(sql.Literal(body.as_string(None)))


def leave_path(session: Session) -> None:
    """Let the open transaction have the role's own path until its end, where deferred triggers fire."""
    session.execute("SET LOCAL search_path TO DEFAULT")


def writers_of_own_path(session: Session) -> Sequence[tuple[str, str]]:
    """Return the schemas of our role's path that may be written to by others, each with who may."""
    return session.execute(_WRITTEN_BY_OTHERS, [list(schemas_of_own_path(session))]).fetchall()


def unguarded_code(session: Session, where: str, article: Article, written: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Yield a warning for each procedure and trigger function of the article that has no search path of its own, where
    a schema of our role's path may be written to by others (`written`): what they make there, it may call as our
    role."""
    if not written:
        return
    called = [
        called_procedure(article.propagation(it), it, article.destination_table, PROCEDURE_NAMES)
        for it in PREFIXES
        if article.propagation(it).method is Method.PROCEDURE
    ]
    table = qualified(article.destination_table).as_string(session)
    names = [[schema or SCHEMA for schema, _ in called], [name for _, name in called]]
    others = ", ".join(f"{who} in schema {schema}" for schema, who in written)
    for kind, signature in session.execute(_UNGUARDED, [table, *names]):
        yield (
            f"article {article.source}: {where}: {kind.lower()} {signature} has no search path of its own, and others "
            f"may create operators and functions on that of role {our_role(session)} ({others}), which it would call "
            "as this role: give the names in it their schemas, and run "
            f"ALTER {kind} {signature} SET search_path = {SAFE_PATH}"
        )


_WRITTEN_BY_OTHERS = """
SELECT n.nspname, CASE WHEN a.grantee = 0 THEN 'PUBLIC' ELSE 'role ' || pg_catalog.pg_get_userbyid(a.grantee) END
  FROM unnest(%s::text[]) WITH ORDINALITY path(name, place)
  JOIN pg_catalog.pg_namespace n ON n.nspname = path.name
 CROSS JOIN pg_catalog.aclexplode(coalesce(n.nspacl, pg_catalog.acldefault('n', n.nspowner))) a
  LEFT JOIN pg_catalog.pg_roles r ON r.oid = a.grantee
 WHERE a.privilege_type = 'CREATE' AND a.grantee <> n.nspowner AND r.rolsuper IS NOT TRUE
   AND r.rolname IS DISTINCT FROM current_user
 ORDER BY path.place, 2
"""
# What is in C, or was parsed when it was made, looks for no names.
_UNGUARDED = """
SELECT CASE p.prokind WHEN 'p' THEN 'PROCEDURE' ELSE 'FUNCTION' END, p.oid::pg_catalog.regprocedure::text
  FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_language l ON l.oid = p.prolang
  JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
 WHERE (p.oid IN (SELECT t.tgfoid FROM pg_catalog.pg_trigger t
                   WHERE t.tgrelid = pg_catalog.to_regclass(%s) AND NOT t.tgisinternal AND t.tgenabled <> 'D')
     OR (n.nspname, p.proname) IN (SELECT * FROM unnest(%s::text[], %s::text[])))
   AND l.lanname NOT IN ('internal', 'c') AND p.prosqlbody IS NULL
   AND NOT EXISTS (SELECT FROM unnest(p.proconfig) own WHERE pg_catalog.starts_with(own, 'search_path='))
 ORDER BY 2
"""
