"""The settings of a session that applies commands at a PostgreSQL Subscriber, and how its commits become durable."""

from __future__ import annotations

from collections.abc import Iterator

from psycopg import sql

from tranrepl.errors import ConfigurationError
from tranrepl.postgres.session import Session, translated_errors
from tranrepl.subscriber.applier import ApplierOptions


def make_durable(session: Session) -> None:
    """Make all commits of the server durable that this session sees: a synchronous one, of the transaction that begins
    here or is open, writes out the log of those before it. The caller commits."""
    # A session that is kept commits without waiting for the disk again afterwards.
    session.execute("SET LOCAL synchronous_commit = on")
    # A transaction that has written nothing to the log, whether it has an xid or not, waits for no disk
    # (RecordTransactionCommit in PostgreSQL's xact.c). Nobody reads this message.
    session.execute("SELECT pg_logical_emit_message(true, 'tranrepl.durable', '')")


def configure_session(session: Session, where: str, options: ApplierOptions) -> None:
    """Tell a session that applies what the options ask. Raises ConfigurationError where its role may not."""
    if options.not_for_replication:
        for problem in replica_role_problems(session, where):
            raise problem
        session.execute("SET session_replication_role = replica")
    if options.lock_timeout_seconds is not None:
        # 0 would be no timeout at all.
        milliseconds = max(1, round(options.lock_timeout_seconds * 1000))
        session.execute("SELECT set_config('lock_timeout', %s, false)", [f"{milliseconds}ms"])


def replica_role_problems(session: Session, where: str) -> Iterator[ConfigurationError]:
    """Yield a problem where the session may not become a replica's, in which foreign keys and ordinary triggers do not
    act."""
    grants = session.info.server_version >= 150000
    with translated_errors(where):
        may = session.execute(
            "SELECT pg_catalog.has_parameter_privilege(current_user, 'session_replication_role', 'SET')"
            if grants
            else "SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user"
        ).fetchone()
    if may == (True,):
        return
    role = sql.Identifier(session.info.user).as_string(None)
    grant = f"GRANT SET ON PARAMETER session_replication_role TO {role}"
    yield ConfigurationError(
        f"{where}: not_for_replication: role {session.info.user} may not set session_replication_role",
        remedy=grant if grants else f"a superuser as login; from PostgreSQL 15 on it takes only {grant}",
    )
