"""Whether a PostgreSQL Subscriber has a procedure that takes a command's call."""

from __future__ import annotations

from psycopg import sql
from psycopg.pq import ExecStatus

from tranrepl.postgres.composed_sql import type_sql
from tranrepl.postgres.session import Session
from tranrepl.subscriber.postgres.procedures import Procedure


def accepts_call(session: Session, custom: Procedure) -> bool:
    """Return whether the server would take the call with arguments of these types. Parsing it runs nothing."""
    values = sql.SQL(", ").join(sql.SQL("NULL::{}").format(type_sql(type_name)) for _, type_name in custom.parameters)
    call = sql.SQL("CALL {}({})").format(custom.identifier, values).as_string(session)
    parsed = session.pgconn.prepare(b"", call.encode())
    if parsed.status != ExecStatus.COMMAND_OK:
        return False
    # An argument that gives something back has nobody to give it to.
    giving = session.execute(
        "SELECT EXISTS (SELECT FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace "
        "WHERE n.nspname = %s AND p.proname = %s AND p.proargmodes && '{o,b}')",
        [custom.schema, custom.name],
    ).fetchone()
    return giving == (False,)
