"""PostgreSQL's own logical replication, draining the same backlog into databases of its own."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

import psycopg
from psycopg import conninfo, sql

from support.site import execute
from tranrepl.connections import Connection

NAME = "reference"
_POLL_SECONDS = 0.02
_MOST_SECONDS = 900.0

Session = psycopg.Connection[tuple[object, ...]]


class BuiltInReplication:
    """Subscriptions with default settings to one publication, enabled only while they drain.

    `published` maps each table to its row filter.
    """

    def __init__(
        self, publisher: Connection, subscribers: Sequence[Connection], published: Mapping[str, str | None]
    ) -> None:
        self._publisher = publisher
        self._subscribers = {f"{NAME}_{number}": it for number, it in enumerate(subscribers, start=1)}
        self._published = published

    def set_up(self) -> None:
        """Create publication and subscriptions on tables that exist. Publisher and Subscriber may be one cluster, so
        the slots are made by hand."""
        tables = ", ".join(
            table if row_filter is None else f"{table} WHERE ({row_filter})"
            for table, row_filter in self._published.items()
        )
        execute(self._publisher, f"CREATE PUBLICATION {NAME} FOR TABLE {tables}")
        source = conninfo.make_conninfo("", **self._publisher.libpq_parameters(NAME))
        for name, subscriber in self._subscribers.items():
            execute(self._publisher, f"SELECT pg_create_logical_replication_slot('{name}', 'pgoutput')")
            statement = sql.SQL(
                "CREATE SUBSCRIPTION {name} CONNECTION {source} PUBLICATION {publication} "
                "WITH (create_slot = false, slot_name = {slot}, enabled = false, copy_data = false)"
            ).format(
                name=sql.Identifier(name),
                source=sql.Literal(source),
                publication=sql.Identifier(NAME),
                slot=sql.Literal(name),
            )
            execute(subscriber, statement.as_string(None))

    def drain(self, marker: int) -> float:
        """Return the seconds until the row `marker`, the backlog's last, is everywhere."""
        with ExitStack() as stack:
            sessions = {
                name: stack.enter_context(_session(subscriber)) for name, subscriber in self._subscribers.items()
            }
            started = time.perf_counter()
            for name, session in sessions.items():
                session.execute(f"ALTER SUBSCRIPTION {name} ENABLE".encode())
            for session in sessions.values():
                _wait_for(session, f"SELECT 1 FROM marker WHERE id = {marker}")
            seconds = time.perf_counter() - started
            for name, session in sessions.items():
                session.execute(f"ALTER SUBSCRIPTION {name} DISABLE".encode())
                _wait_for(session, f"SELECT 1 FROM pg_stat_subscription WHERE subname = '{name}' AND pid IS NULL")
        return seconds

    @contextmanager
    def running(self) -> Iterator[None]:
        """Let it replicate meanwhile."""
        for name, subscriber in self._subscribers.items():
            execute(subscriber, f"ALTER SUBSCRIPTION {name} ENABLE")
        try:
            yield
        finally:
            for name, subscriber in self._subscribers.items():
                execute(subscriber, f"ALTER SUBSCRIPTION {name} DISABLE")

    def processes(self) -> set[int]:
        """Return the backends that replicate: those that send, and those that apply."""
        senders = execute(
            self._publisher,
            f"SELECT active_pid FROM pg_replication_slots WHERE slot_name LIKE '{NAME}_%' AND active_pid IS NOT NULL",
        )
        appliers = [
            row
            for name, subscriber in self._subscribers.items()
            for row in execute(subscriber, f"SELECT pid FROM pg_stat_subscription WHERE subname = '{name}'")
        ]
        return {int(pid) for (pid,) in (*senders, *appliers) if pid is not None}

    def drop(self) -> None:
        for name, subscriber in self._subscribers.items():
            execute(
                subscriber,
                f"ALTER SUBSCRIPTION {name} DISABLE",
                f"ALTER SUBSCRIPTION {name} SET (slot_name = NONE)",
                f"DROP SUBSCRIPTION {name}",
            )


@contextmanager
def _session(connection: Connection) -> Iterator[Session]:
    with psycopg.connect(**connection.libpq_parameters(NAME), autocommit=True) as session:  # type: ignore[arg-type]
        yield session


def _wait_for(session: Session, question: str) -> None:
    """Wait until the question has a row for an answer."""
    started = time.perf_counter()
    while session.execute(question.encode()).fetchone() is None:
        if time.perf_counter() - started > _MOST_SECONDS:
            raise TimeoutError(f"built-in replication did not drain the backlog in {_MOST_SECONDS:.0f} s")
        time.sleep(_POLL_SECONDS)
