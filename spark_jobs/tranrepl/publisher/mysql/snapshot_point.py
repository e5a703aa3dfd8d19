"""Where in the log the snapshots are that sessions take."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from tranrepl.mysql.session import Session
from tranrepl.publisher.mysql.positions import file_number, place_at
from tranrepl.publisher.mysql.table_maps import Flavor

_BEGIN = "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY"


def begun_together(sessions: Sequence[Session], flavor: Flavor, seconds: float) -> int | None:
    """Begin a transaction in each session that sees a snapshot, so that all see the same one, and return its place in
    the log; None where no moment was found for it. MariaDB knows the place of each; MySQL's is where nothing was
    committed meanwhile."""
    with ThreadPoolExecutor(len(sessions), "tranrepl-snapshot") as threads:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if flavor is Flavor.MARIADB:
                places = set(threads.map(_begin_mariadb, sessions))
            else:
                places = {_committed_to(sessions[0])}
                list(threads.map(_begin, sessions))
                places.add(_committed_to(sessions[0]))
            if len(places) == 1:
                return places.pop()
            for it in sessions:
                it.execute("ROLLBACK")
    return None


def _begin(session: Session) -> None:
    session.execute(_BEGIN)


def _begin_mariadb(session: Session) -> int:
    session.execute(_BEGIN)
    status: dict[str, str] = dict(session.execute("SHOW STATUS LIKE 'binlog_snapshot_%'"))
    return place_at(file_number(status["Binlog_snapshot_file"]), int(status["Binlog_snapshot_position"]))


def _committed_to(session: Session) -> int:
    """Return the place in MySQL's log up to which transactions are seen. The log itself may be written further."""
    ((text,),) = session.execute("SELECT local FROM performance_schema.log_status")
    local = json.loads(text)
    return place_at(file_number(local["binary_log_file"]), int(local["binary_log_position"]))
