"""Tracer tokens in the log: logical messages that `tranrepl trace FILE` writes."""

from __future__ import annotations

from dataclasses import dataclass

from psycopg.errors import InsufficientPrivilege

from tranrepl.model.commands import Operation
from tranrepl.model.tracer_token import TracerToken
from tranrepl.postgres.rights import lacking_right, our_role, quoted_role
from tranrepl.postgres.session import Session, translated_errors
from tranrepl.publisher.changes import Buffer, Bytes, Ints
from tranrepl.publisher.postgres.logical_messages import (
    FoundMessage,
    FoundMessages,
    content,
    messages_of,
    write_message,
)

PREFIX = b"tranrepl.tracer\0"
_NOT_OURS = (
    "the Publisher's log holds a message of prefix tranrepl.tracer that `tranrepl trace FILE` of this version did not "
    "write; it is passed over"
)
_FUNCTION = """
SELECT 'pg_catalog.' || p.oid::pg_catalog.regprocedure::text FROM pg_catalog.pg_proc p
 WHERE p.pronamespace = 'pg_catalog'::pg_catalog.regnamespace AND p.proname = 'pg_logical_emit_message'
   AND p.proargtypes[2] = 'text'::pg_catalog.regtype
"""


@dataclass(frozen=True, slots=True)
class TokenMessages:
    """Reads the tokens of one publication, by the name that it has at the server."""

    publication: str

    def read(self, buffer: Buffer, kinds: Bytes, starts: Ints) -> FoundMessages:
        found = FoundMessages()
        for index in messages_of(PREFIX, buffer, kinds, starts).tolist():
            told = content(PREFIX, buffer.bytes[starts[index] : starts[index + 1]].tobytes())
            try:
                token = TracerToken.model_validate_json(told)
            except ValueError:
                found.notices = [_NOT_OURS]
                continue
            if token.publication == self.publication:
                found.messages.append(FoundMessage(index, Operation.TRACER_TOKEN, token.message))
        return found


def post_token(session: Session, token: TracerToken, where: str) -> None:
    """Write a token into the log, in a transaction of its own. Raises MissingRightError where our role may not."""
    with translated_errors(where):
        try:
            write_message(session, PREFIX, token.message)
        except InsufficientPrivilege as error:
            role = our_role(session)
            grant = f"GRANT EXECUTE ON FUNCTION {_function(session)} TO {quoted_role(role)}"
            raise lacking_right(where, f"role {role} may not write messages into the log", [grant]) from error


def _function(session: Session) -> str:
    """Return the function that writes text into the log, with its arguments: PostgreSQL 17 gave it one more."""
    row = session.execute(_FUNCTION).fetchone()
    return str(row[0]) if row else "pg_catalog.pg_logical_emit_message"
