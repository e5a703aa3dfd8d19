"""PostgreSQL sessions of a test that are used again, as by a pool in front of the server: whoever closes one leaves it
to who connects there next.

Opening a session and loading the catalogue costs the server more than most tests' statements do. Each is handed over as
a new one would be: without transaction, settings, temporary tables and slots, prepared statements and locks. What a
role's or a database's settings changed since then does not reach it, so tests of sessions have new ones, and so has
every test where `TRANREPL_NEW_SESSIONS` is set, as in `make test-all`.
"""

from __future__ import annotations

import os
import select
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import psycopg
import pytest
from psycopg import pq, sql

NEW_SESSIONS = bool(os.environ.get("TRANREPL_NEW_SESSIONS"))

_Key = tuple[tuple[str, Any], ...]

_IDLE = "idle session of a test"
_DROP_TEMPORARY_SLOTS = (
    b"SELECT pg_catalog.pg_drop_replication_slot(slot_name) FROM pg_catalog.pg_get_replication_slots() "
    b"WHERE temporary AND active_pid = pg_catalog.pg_backend_pid()"
)
_DONE = (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK)


class KeptSessions:
    """Sessions that nobody uses at the moment, by what they were opened with but for the application's name."""

    def __init__(self) -> None:
        self._idle: dict[_Key, list[pq.abc.PGconn]] = defaultdict(list)

    def connect(self, conninfo: str = "", *, autocommit: bool = False, **parameters: Any) -> psycopg.Connection[Any]:
        """Do what `psycopg.connect` does, in a session that was closed if there is one."""
        if conninfo or not _can_be_kept(parameters):
            return psycopg.Connection.connect(conninfo, autocommit=autocommit, **parameters)
        application = parameters.pop("application_name", "")
        key = tuple(sorted(parameters.items()))
        pgconn = self._take(key)
        session = _KeptSession.connect(application_name=_IDLE, **parameters) if pgconn is None else _KeptSession(pgconn)
        session.give_back = partial(self._give_back, key)
        session.pgconn.exec_(sql.SQL("SET application_name = {}").format(application).as_string(None).encode())
        session.autocommit = autocommit
        return session

    def _give_back(self, key: _Key, pgconn: pq.abc.PGconn) -> None:
        if _made_as_new(pgconn, replication="replication" in dict(key)):
            self._idle[key].append(pgconn)
        else:
            pgconn.finish()

    def close(self) -> None:
        """End the sessions that nobody uses."""
        for pgconns in self._idle.values():
            for it in pgconns:
                it.finish()
        self._idle.clear()

    def _take(self, key: _Key) -> pq.abc.PGconn | None:
        """Return a session that its server has not ended, None where there is none."""
        idle = self._idle[key]
        while idle:
            pgconn = idle.pop()
            if not _has_ended(pgconn):
                return pgconn
            pgconn.finish()
        return None


class _KeptSession(psycopg.Connection[Any]):
    """A session without what its last user set in the driver."""

    give_back: Callable[[pq.abc.PGconn], None]

    def close(self) -> None:
        if self.closed:
            return
        pgconn, self.pgconn = self.pgconn, pq.PGconn()
        self._closed = True
        self.give_back(pgconn)


_SESSIONS = KeptSessions()


@contextmanager
def kept_sessions() -> Iterator[None]:
    """Keep the sessions of this process that are closed in the context, until its end or `end_kept_sessions`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(psycopg, "connect", _SESSIONS.connect)
        yield
    end_kept_sessions()


def end_kept_sessions() -> None:
    """End those that nobody uses, so that their databases can be dropped."""
    _SESSIONS.close()


def _can_be_kept(parameters: dict[str, Any]) -> bool:
    """Return whether a session asks nothing of its driver, and nobody waits for its end: a template's sessions keep it
    from being copied, and a snapshot lives as long as its session."""
    return (
        all(isinstance(it, str | int) for it in parameters.values())
        and "template" not in str(parameters.get("dbname"))
        and parameters.get("application_name") != "tranrepl snapshot"
    )


def _has_ended(pgconn: pq.abc.PGconn) -> bool:
    """Return whether the server has something to say to an idle session, which is that it is over."""
    return bool(select.select([pgconn.socket], [], [], 0)[0])


def _made_as_new(pgconn: pq.abc.PGconn, *, replication: bool) -> bool:
    """Return whether nothing is left in the session of what its user did."""
    if pgconn.status != pq.ConnStatus.OK or pgconn.pipeline_status != pq.PipelineStatus.OFF:
        return False
    if pgconn.transaction_status == pq.TransactionStatus.ACTIVE:
        return False
    pgconn.notice_handler = pgconn.notify_handler = None
    statements = [b"ROLLBACK"] if pgconn.transaction_status != pq.TransactionStatus.IDLE else []
    statements += [b"DISCARD ALL"] if replication else [b"DISCARD ALL", _DROP_TEMPORARY_SLOTS]
    return all(pgconn.exec_(it).status in _DONE for it in statements)
