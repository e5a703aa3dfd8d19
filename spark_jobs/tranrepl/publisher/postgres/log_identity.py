"""Whose log it is, and on which timeline: the difference between a log that goes on and one that went back.

Source: PostgreSQL's control data and backup control functions, which are everybody's unless revoked; its streaming
replication protocol, IDENTIFY_SYSTEM and TIMELINE_HISTORY, which ask for no more rights than reading the log does.
"""

from __future__ import annotations

from collections.abc import Mapping

from psycopg import sql
from psycopg.errors import FeatureNotSupported, InsufficientPrivilege, ObjectNotInPrerequisiteState

from tranrepl.connections import Connection
from tranrepl.errors import InternalError
from tranrepl.model.position import Position
from tranrepl.postgres.session import Session, translated_errors
from tranrepl.publisher.continuity import LogIdentity
from tranrepl.publisher.postgres.lsn import lsn_number, position_of
from tranrepl.publisher.postgres.replication_session import replication_session

_IDENTITY = """
SELECT system_identifier::pg_catalog.text,
       pg_catalog.left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()), 8)
  FROM pg_catalog.pg_control_system()
"""
"""A segment's name begins with the timeline on which the server writes, in hexadecimal digits."""


def read_log_identity(session: Session, connection: Connection, known_timeline: int | None = None) -> LogIdentity:
    """Ask the Publisher. The system identifier is the same on physical standbys and in file-level backups; a promoted
    standby, and a server restored to a point in time, begin a new timeline. Its history of timelines is read only where
    it is not on the one that is known.

    The session in autocommit mode is asked first: the protocol takes a session of its own. Raises ConfigurationError
    where the server refuses that one, TransientError where it is not there.
    """
    where = f"Publisher {session.info.dbname}"
    with translated_errors(where):
        found = _queried_identity(session)
    if found is not None and found.timeline in (1, known_timeline):
        return found
    with replication_session(connection, "tranrepl log identity") as replication, translated_errors(where):
        row = replication.execute("IDENTIFY_SYSTEM").fetchone()
        if row is None:
            raise InternalError(f"{where}: IDENTIFY_SYSTEM gave no answer")
        system, timeline = str(row[0]), int(row[1])
        ancestors: Mapping[int, Position] = {}
        if timeline > 1 and timeline != known_timeline:
            history = replication.execute(sql.SQL("TIMELINE_HISTORY {}").format(sql.Literal(timeline))).fetchone()
            ancestors = parse_timeline_history(history[1] if history else "")
    return LogIdentity(system, timeline, ancestors)


def _queried_identity(session: Session) -> LogIdentity | None:
    """Return the identity without its history; None where a query does not tell it: in recovery, or where its functions
    are not for our role."""
    try:
        row = session.execute(_IDENTITY).fetchone()
    except (InsufficientPrivilege, ObjectNotInPrerequisiteState, FeatureNotSupported):
        return None
    return None if row is None else LogIdentity(row[0], int(row[1], 16))


def parse_timeline_history(content: str | bytes) -> dict[int, Position]:
    """Return the timelines of a history file, each with the LSN at which it was left.

    A line is `timeline, LSN, reason`; comments begin with #. Servers send it as text or as bytes, by their version.
    """
    text = content if isinstance(content, str) else content.decode("latin-1")
    lines = (line.split("#", 1)[0].split() for line in text.splitlines())
    return {int(fields[0]): position_of(lsn_number(fields[1])) for fields in lines if len(fields) > 1}
