"""A subscription's watermark in a PostgreSQL database, with the rows of its streams: `MSreplication_subscriptions`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from psycopg import sql

from tranrepl.errors import ConfigurationError, FencedError, ReplicationError
from tranrepl.model.commands import FIRST_XACT_SEQNO
from tranrepl.postgres.session import Session, translated_errors
from tranrepl.subscriber.postgres.replication_tables import (
    MINE,
    WATERMARKS,
    adopt_unidentified_rows,
    has_table,
    key_values,
)
from tranrepl.subscriber.stream_rows import StreamRow, is_at, position_of
from tranrepl.subscriber.subscription import (
    Stream,
    StreamRecord,
    SubscriptionKey,
    SubscriptionPosition,
    UnfinishedBatch,
    fenced,
    not_set_up,
)

_PLACEMENT_LOCK_TIMEOUT = "300s"


class Watermark:
    """Up to which transaction a subscription has everything, and the fence around whoever delivers."""

    def __init__(self, session: Session, key: SubscriptionKey, where: str) -> None:
        self._session = session
        self._key = key
        self._where = where

    def set_up(self) -> list[str]:
        """Create the watermark: a new subscription has received nothing. An existing watermark is left alone."""
        with translated_errors(self._where), self._session.transaction():
            adopt_unidentified_rows(self._session, self._key)
            created = self._session.execute(
                sql.SQL(
                    "INSERT INTO {} (publisher, publisher_system, publisher_db, publication, subscription, stream, "
                    "transaction_timestamp) VALUES (%s, %s, %s, %s, %s, 0, %s) ON CONFLICT DO NOTHING"
                ).format(WATERMARKS),
                [*key_values(self._key), FIRST_XACT_SEQNO],
            ).rowcount
        return [f"created subscription {self._key.subscription} at {self._session.info.dbname}"] if created else []

    def set_up_streams(self, streams: int) -> None:
        """Create a row for each stream, before any of them writes: so that whoever comes later can wait for it."""
        with translated_errors(self._where), self._session.transaction():
            rows = self._session.execute(
                sql.SQL("SELECT stream FROM {} WHERE {}").format(WATERMARKS, MINE), key_values(self._key)[1:]
            )
            missing = sorted(set(range(1, streams)) - {int(number) for (number,) in rows})
            # The right to insert is setup's, not every job's.
            if missing:
                self._session.execute(
                    sql.SQL(
                        "INSERT INTO {} (publisher, publisher_system, publisher_db, publication, subscription, stream, "
                        "transaction_timestamp) SELECT %s, %s, %s, %s, %s, number, %s FROM unnest(%s::int[]) number "
                        "ON CONFLICT DO NOTHING"
                    ).format(WATERMARKS),
                    [*key_values(self._key), FIRST_XACT_SEQNO, missing],
                )

    def position(self) -> SubscriptionPosition:
        """Return where the subscription stands, after a delivery has ended whose job was killed.

        Raises ConfigurationError where the subscription is not set up, FencedError where another delivery goes on.
        """
        with self._fencing(), translated_errors(self._where), self._session.transaction():
            self._session.execute("SELECT set_config('lock_timeout', %s, true)", [_PLACEMENT_LOCK_TIMEOUT])
            return position_of(self._locked_rows())

    def _locked_rows(self) -> list[StreamRow]:
        rows = self._session.execute(
            sql.SQL(
                "SELECT stream, transaction_timestamp, batch_after, batch_streams, batch_division FROM {} "
                "WHERE {} ORDER BY stream FOR UPDATE"
            ).format(WATERMARKS, MINE),
            key_values(self._key)[1:],
        ).fetchall()
        if not rows or rows[0][0] != 0:
            raise self._not_set_up()
        return [StreamRow(*row) for row in rows]

    def required(self) -> bytes:
        """Return the last transaction up to which all is applied. Raises ConfigurationError where it is not set up."""
        found = self.find()
        if found is None:
            raise self._not_set_up()
        return found

    def find(self) -> bytes | None:
        """Return the last transaction applied; None where the subscription is not set up."""
        with translated_errors(self._where):
            if not has_table(self._session, WATERMARKS):
                return None
            row = self._session.execute(
                sql.SQL("SELECT transaction_timestamp FROM {} WHERE {} AND stream = 0").format(WATERMARKS, MINE),
                key_values(self._key)[1:],
            ).fetchone()
        return bytes(row[0]) if row else None

    def move(self, expected: bytes, xact_seqno: bytes) -> None:
        """Move the watermark to where an administrator wants the next delivery to begin. Raises FencedError where a
        delivery was faster."""
        with translated_errors(self._where), self._session.transaction():
            if self._locked_rows()[0].xact_seqno != expected:
                raise self._fenced()
            self._session.execute(
                sql.SQL("UPDATE {} SET transaction_timestamp = %s WHERE {} AND stream <> 0").format(WATERMARKS, MINE),
                [FIRST_XACT_SEQNO, *key_values(self._key)[1:]],
            )
            self.advance(xact_seqno)

    def lock(self, expected: bytes, stream: Stream, finishing: UnfinishedBatch | None = None) -> None:
        """Lock the watermark inside a transaction, to fence off other deliveries. Raises FencedError where one of them
        was here.

        Stream 0 also locks the rows that no stream of now has: one of an earlier delivery may still be about to commit.
        """
        chosen = sql.SQL("(stream = 0 OR stream >= %s)" if stream.number == 0 else "stream = %s")
        rows = self._session.execute(
            sql.SQL("SELECT stream, transaction_timestamp FROM {} WHERE {} AND {} ORDER BY stream FOR UPDATE").format(
                WATERMARKS, MINE, chosen
            ),
            [*key_values(self._key)[1:], stream.number or stream.streams],
        ).fetchall()
        if not rows or rows[0][0] != stream.number:
            raise self._not_set_up()
        if not is_at(expected, [(number, bytes(seqno)) for number, seqno in rows], finishing):
            raise self._fenced()

    def advance(self, xact_seqno: bytes) -> None:
        """Advance the watermark, inside the transaction that applied the commands."""
        self._session.execute(
            sql.SQL("UPDATE {} SET transaction_timestamp = %s, time = now() WHERE {} AND stream = 0").format(
                WATERMARKS, MINE
            ),
            [xact_seqno, *key_values(self._key)[1:]],
        )

    def record_stream(self, stream: Stream, record: StreamRecord) -> None:
        """Record what a stream applied, inside the transaction that applied its part of the commands."""
        self._session.execute(
            sql.SQL(
                "UPDATE {} SET transaction_timestamp = %s, batch_after = %s, batch_streams = %s, batch_division = %s, "
                "time = now() WHERE {} AND stream = %s"
            ).format(WATERMARKS, MINE),
            [record.last, record.after, record.streams, record.division, *key_values(self._key)[1:], stream.number],
        )

    @contextmanager
    def _fencing(self) -> Iterator[None]:
        try:
            yield
        except ReplicationError as error:
            if error.report.code == "55P03":
                raise self._fenced() from error
            if error.report.code in ("42P01", "42703", "3F000"):
                raise self._not_set_up() from error
            raise

    def _fenced(self) -> FencedError:
        return fenced(self._where)

    def _not_set_up(self) -> ConfigurationError:
        return not_set_up(self._where, self._key, self._session.info.dbname)
