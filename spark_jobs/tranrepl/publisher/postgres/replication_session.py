"""A session at a Publisher that speaks the replication protocol: what exports a snapshot."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from tranrepl.connections import Connection, require_postgres
from tranrepl.errors import ConfigurationError, ReplicationError, TransientError
from tranrepl.postgres.rights import quoted_role
from tranrepl.postgres.session import Session, refused_for_good, set_session, translated_errors

_TOO_FEW_SENDERS = "max_wal_senders"
"""A setting's name, in the message of every language."""


def right_to_read(role: str | None) -> str:
    """Return the remedy for a role that may not read the log."""
    name = quoted_role(role)
    return (
        f"ALTER ROLE {name} REPLICATION; where a managed server has another right for it, that: "
        f"GRANT rds_replication TO {name} (Amazon RDS and Aurora), or ALTER ROLE as its administrator"
    )


@contextmanager
def replication_session(connection: Connection, application_name: str) -> Iterator[Session]:
    """Open a replication session, which takes simple queries only, so that no value can be bound in it.

    Raises ConfigurationError where the server refuses us for good, TransientError where it may not next time.
    """
    require_postgres(connection)
    where = f"Publisher {connection.database}"
    parameters = connection.libpq_parameters(application_name) | {"replication": "database"}
    try:
        session = psycopg.connect(**parameters, autocommit=True)  # type: ignore[arg-type]
    except psycopg.OperationalError as error:
        raise _refused(connection, where, " ".join(str(error).split())) from None
    with session:
        with translated_errors(where):
            set_session(session)
        yield session


def _refused(connection: Connection, where: str, text: str) -> ReplicationError:
    message = f"{where}: no replication connection: {text}"
    if _TOO_FEW_SENDERS in text:
        return TransientError(
            message,
            database_code="53300",
            remedy="wait for other jobs; or raise max_wal_senders and restart the server",
        )
    if refused_for_good(text):
        right = right_to_read(connection.login)
        return ConfigurationError(message, remedy=f"{right}; no pooler in between, and pg_hba.conf must let us in")
    return TransientError(message, remedy="check host and port, and that the server runs")


def replication_problems(connection: Connection) -> Iterator[ReplicationError]:
    """Yield why a snapshot could not be taken: the right is tried, for not every server has it as an attribute."""
    try:
        with (
            translated_errors(f"Publisher {connection.database}"),
            replication_session(connection, "tranrepl check") as session,
        ):
            session.execute("IDENTIFY_SYSTEM")
    except ReplicationError as problem:
        yield problem
