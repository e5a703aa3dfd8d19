"""Sessions that read an exported snapshot give way to a statement that waits for one of them.

ALTER TABLE, TRUNCATE and their like wait for every reader of the table, and everybody after them waits for them: users'
queries, and more readers of the snapshot, for which those that it waits for would wait without the server's knowing.
CREATE INDEX CONCURRENTLY and its like wait for every older snapshot of the database.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event, Thread

from tranrepl.connections import Connection
from tranrepl.errors import ReplicationError, TransientError
from tranrepl.postgres.session import Session, connect, translated_errors

log = logging.getLogger(__name__)

_LOOK_SECONDS = 0.5
"""So long a statement waits at most."""

_READERS = """
SELECT coalesce(array_agg(pid), '{}') FROM pg_catalog.pg_stat_activity
 WHERE application_name LIKE %s AND usename = current_user AND datname = current_database()
"""
# What a reader holds, ACCESS SHARE, conflicts with ACCESS EXCLUSIVE alone.
_WAITING = """
WITH locks AS MATERIALIZED (SELECT * FROM pg_catalog.pg_locks)
SELECT w.pid, coalesce(a.usename::text, 'unknown'), coalesce(nullif(a.application_name, ''), 'no name'),
       coalesce('table ' || w.relation::regclass::text, 'older snapshots to end')
  FROM locks w
  JOIN locks h ON h.granted AND h.pid = ANY (%s) AND h.locktype = w.locktype
       AND (h.virtualxid = w.virtualxid OR (h.database, h.relation) = (w.database, w.relation))
  LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = w.pid
 WHERE NOT w.granted AND (w.locktype = 'virtualxid' OR w.locktype = 'relation' AND w.mode = 'AccessExclusiveLock')
 LIMIT 1
"""
_END = "SELECT pg_catalog.pg_terminate_backend(pid) FROM unnest(%s) pid"


def reader_name(application_name: str, snapshot_name: str) -> str:
    """Return the application name of a session that reads this snapshot, by which it is found when it has to end."""
    return f"{application_name} {snapshot_name}"


@contextmanager
def giving_way(connection: Connection, snapshot_name: str, where: str) -> Iterator[None]:
    """Look who waits for the sessions that read this snapshot, its exporter among them, and end these at once where
    somebody does.

    Raises TransientError then, in the place of what that made fail, or else at the end: what was read may lack rows.
    """
    watch = _Watch(connection, snapshot_name, where)
    thread = Thread(target=watch.run, name="tranrepl-giving-way", daemon=True)
    thread.start()
    try:
        yield
    except Exception as error:
        watch.end(thread)
        problem = watch.problem()
        if problem is None:
            raise
        raise problem from error
    finally:
        watch.end(thread)
    problem = watch.problem()
    if problem is not None:
        raise problem


@dataclass(slots=True)
class _Watch:
    connection: Connection
    snapshot: str
    where: str
    over: Event = field(default_factory=Event)
    gave_way_to: str | None = None

    def run(self) -> None:
        while not self.over.wait(_LOOK_SECONDS):
            try:
                with connect(self.connection, "tranrepl giving way", autocommit=True) as observer:
                    self._look_until_over(observer)
            except ReplicationError as error:
                # Lock timeouts keep readers from waiting for ever meanwhile.
                log.warning("nobody looks who waits for snapshot %s: %s", self.snapshot, error.message)

    def _look_until_over(self, observer: Session) -> None:
        with translated_errors(self.where):
            # A connection's options may name another role; the readers belong to its login.
            observer.execute("SET ROLE NONE")
            while not self.over.is_set():
                self._look(observer)
                self.over.wait(_LOOK_SECONDS)

    def _look(self, observer: Session) -> None:
        ((readers,),) = observer.execute(_READERS, [reader_name("%", self.snapshot)]).fetchall()
        row = observer.execute(_WAITING, [readers]).fetchone()
        if row is not None:
            self.gave_way_to = self.gave_way_to or f"process {row[0]} ({row[1]}, {row[2]}), which waited for {row[3]}"
            observer.execute(_END, [readers])

    def end(self, thread: Thread) -> None:
        self.over.set()
        thread.join()

    def problem(self) -> TransientError | None:
        if self.gave_way_to is None:
            return None
        return TransientError(
            f"{self.where}: the reading of its tables gave way to {self.gave_way_to}",
            remedy="try again when that statement has ended: reading starts from the beginning",
        )
