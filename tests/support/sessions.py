"""Sessions of a database, seen from another one."""

from __future__ import annotations

import time

from support.site import execute
from tranrepl.connections import Connection

_SESSIONS = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() "
    "AND backend_type = 'client backend'"
)


def wait_for_sessions_to_end(connection: Connection) -> None:
    """Wait for at most ten seconds. A session reports its row counts when it ends, maybe after its client."""
    until = time.monotonic() + 10
    while execute(connection, _SESSIONS) != [(0,)] and time.monotonic() < until:
        time.sleep(0.01)
