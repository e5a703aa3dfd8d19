"""The settings of a session that applies commands at a PostgreSQL Subscriber."""

from __future__ import annotations

from collections.abc import Iterator

from psycopg import sql

from tranrepl.errors import ConfigurationError
from tranrepl.postgres.session import Session, translated_errors
from tranrepl.subscriber.applier import ApplierOptions


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
