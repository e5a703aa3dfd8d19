"""Tracer tokens in the log: logical messages that `tranrepl trace FILE` writes."""

from __future__ import annotations

from psycopg.errors import InsufficientPrivilege

from tranrepl.model.tracer_token import TracerToken
from tranrepl.postgres.rights import lacking_right, our_role, quoted_role
from tranrepl.postgres.session import Session, translated_errors
from tranrepl.publisher.messages import MessageKind
from tranrepl.publisher.postgres.logical_messages import write_message

_FUNCTION = """
SELECT 'pg_catalog.' || p.oid::pg_catalog.regprocedure::text FROM pg_catalog.pg_proc p
 WHERE p.pronamespace = 'pg_catalog'::pg_catalog.regnamespace AND p.proname = 'pg_logical_emit_message'
   AND p.proargtypes[2] = 'text'::pg_catalog.regtype
"""


def post_token(session: Session, token: TracerToken, where: str) -> None:
    """Write a token into the log, in a transaction of its own. Raises MissingRightError where our role may not."""
    with translated_errors(where):
        try:
            write_message(session, MessageKind.TRACER, token.publication, token.message, where)
        except InsufficientPrivilege as error:
            role = our_role(session)
            grant = f"GRANT EXECUTE ON FUNCTION {_function(session)} TO {quoted_role(role)}"
            raise lacking_right(where, f"role {role} may not write messages into the log", [grant]) from error


def _function(session: Session) -> str:
    """Return the function that writes text into the log, with its arguments: PostgreSQL 17 gave it one more."""
    row = session.execute(_FUNCTION).fetchone()
    return str(row[0]) if row else "pg_catalog.pg_logical_emit_message"
