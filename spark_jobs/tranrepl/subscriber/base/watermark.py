"""The watermark at a Subscriber that SQLAlchemy reaches, and the model's tables there as setup makes them.

Source: `MSreplication_subscriptions`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext
from pydantic import TypeAdapter

from tranrepl.errors import ConfigurationError
from tranrepl.model.commands import FIRST_XACT_SEQNO
from tranrepl.subscriber.base.catalogue import Destination
from tranrepl.subscriber.base.column_steps import TableColumn
from tranrepl.subscriber.base.database import SqlDatabase
from tranrepl.subscriber.base.destination import refused
from tranrepl.subscriber.replication_tables import ARTICLES, METADATA, SNAPSHOTS, VERSION, WATERMARKS
from tranrepl.subscriber.stream_rows import StreamRow, is_at
from tranrepl.subscriber.subscription import (
    ALONE,
    CommandPlace,
    Stream,
    StreamRecord,
    SubscriptionKey,
    UnfinishedBatch,
    fenced,
    not_set_up,
)
from tranrepl.subscriber.tables_version import THIS_VERSION, UNKNOWN_VERSION, TablesVersion


class Watermark:
    """One subscription's row, read and written in whatever transaction is open."""

    def __init__(self, session: sa.Connection, database: SqlDatabase, key: SubscriptionKey, where: str) -> None:
        self._session = session
        self._database = database
        self._key = key
        self._where = where
        columns = WATERMARKS.c
        self._mine = sa.and_(
            columns.publisher_system == key.publisher_system,
            columns.publisher_db == key.publisher_db,
            columns.publication == key.publication,
            columns.subscription == key.subscription,
        )

    def exists(self) -> bool:
        """Return whether the table exists."""
        return sa.inspect(self._session).has_table(WATERMARKS.name)

    def find(self) -> bytes | None:
        value = self._session.scalar(
            sa.select(WATERMARKS.c.transaction_timestamp).where(self._mine, WATERMARKS.c.stream == 0)
        )
        return None if value is None else bytes(value)

    def locked(self, *, of: Stream = ALONE) -> list[StreamRow]:
        """Lock a stream's row where the database can; for stream 0 also those that no stream of now has: one of an
        earlier delivery may still be about to commit. Raises ConfigurationError where there is none."""
        columns = WATERMARKS.c
        chosen = columns.stream == of.number
        if of.number == 0:
            chosen |= columns.stream >= of.streams
        query = (
            sa.select(
                columns.stream,
                columns.transaction_timestamp,
                columns.batch_after,
                columns.batch_streams,
                columns.batch_division,
                columns.change_seqno,
                columns.change_command_id,
            )
            .where(self._mine, chosen)
            .order_by(columns.stream)
        )
        found = self._database.locked_rows(self._session, WATERMARKS, query)
        rows = [_stream_row(row) for row in found]
        if not rows or rows[0].stream != of.number:
            raise not_set_up(self._where, self._key, self._session.engine.url.database or "")
        return rows

    def fence(
        self, expected: bytes, stream: Stream = ALONE, finishing: UnfinishedBatch | None = None
    ) -> CommandPlace | None:
        """Lock the watermark and compare it; return the place before which all of the next transaction is applied, of
        which one connection has applied a part. Raises FencedError where another delivery was here."""
        locked = self.locked(of=stream)
        if not is_at(expected, [(row.stream, bytes(row.xact_seqno)) for row in locked], finishing):
            raise fenced(self._where)
        return locked[0].applied_before

    def advance(self, xact_seqno: bytes) -> None:
        self._update(
            0, transaction_timestamp=xact_seqno, change_seqno=None, change_command_id=None, change_columns=None
        )

    def begin_change(self, place: CommandPlace, columns: Sequence[TableColumn]) -> None:
        """Record that all before a schema change is applied, and the columns that its table has."""
        self._update(
            0,
            change_seqno=place.xact_seqno,
            change_command_id=place.command_id,
            change_columns=_TABLE_COLUMNS.dump_json(tuple(columns)).decode(),
        )

    def end_change(self) -> None:
        """Record that the schema change is made: its table has other columns from here on."""
        self._update(0, change_columns=None)

    def columns_before(self, place: CommandPlace) -> tuple[TableColumn, ...] | None:
        """Return the columns that the table had when a schema change was begun; None where this one was not, or is
        made."""
        columns = WATERMARKS.c
        found = self._session.scalar(
            sa.select(columns.change_columns).where(
                self._mine,
                columns.stream == 0,
                columns.change_seqno == place.xact_seqno,
                columns.change_command_id == place.command_id,
            )
        )
        return None if found is None else _TABLE_COLUMNS.validate_json(found)

    def record(self, stream: Stream, record: StreamRecord) -> None:
        """Record what a stream other than 0 applied."""
        self._update(
            stream.number,
            transaction_timestamp=record.last,
            batch_after=record.after,
            batch_streams=record.streams,
            batch_division=record.division,
        )

    def forget_streams(self) -> None:
        """Forget what streams applied before: where the watermark moves by hand, that says nothing any more."""
        self._session.execute(
            sa.update(WATERMARKS)
            .where(self._mine, WATERMARKS.c.stream != 0)
            .values(transaction_timestamp=FIRST_XACT_SEQNO)
        )

    def _update(self, stream: int, **values: object) -> None:
        self._session.execute(
            sa.update(WATERMARKS)
            .where(self._mine, WATERMARKS.c.stream == stream)
            .values(**values, time=sa.func.current_timestamp())
        )

    def start(self) -> bool:
        """Create the watermark: a new subscription has received nothing. Returns whether it was created; False where it
        exists."""
        if self.find() is not None or self._adopt_unidentified_rows():
            return False
        self._insert([0])
        return True

    def _adopt_unidentified_rows(self) -> bool:
        """Adopt rows that an earlier version wrote for the Publisher's address, and that do not say which server it is.
        Returns whether there were any."""
        key, of_name = self._key, {it: _of_name(it, self._key) for it in (WATERMARKS, SNAPSHOTS)}
        publisher = self._session.scalar(
            sa.select(WATERMARKS.c.publisher).where(of_name[WATERMARKS], WATERMARKS.c.stream == 0)
        )
        if publisher != key.publisher:
            return False
        for table, condition in of_name.items():
            self._session.execute(sa.update(table).where(condition).values(publisher_system=key.publisher_system))
        return True

    def start_streams(self, streams: int) -> None:
        """Create a row for each stream that has none."""
        query = sa.select(WATERMARKS.c.stream).where(self._mine)
        self._insert(sorted(set(range(1, streams)) - set(self._session.scalars(query))))

    def _insert(self, streams: Sequence[int]) -> None:
        rows = [
            {
                "publisher": self._key.publisher,
                "publisher_system": self._key.publisher_system,
                "publisher_db": self._key.publisher_db,
                "publication": self._key.publication,
                "subscription": self._key.subscription,
                "stream": stream,
                "subscription_type": 0,
                "transaction_timestamp": FIRST_XACT_SEQNO,
            }
            for stream in streams
        ]
        if rows:
            self._session.execute(sa.insert(WATERMARKS), rows)


_TABLE_COLUMNS = TypeAdapter(tuple[TableColumn, ...])


def _stream_row(row: sa.Row[*tuple[Any, ...]]) -> StreamRow:
    changed = None if row.change_seqno is None else CommandPlace(bytes(row.change_seqno), row.change_command_id)
    return StreamRow(
        row.stream, row.transaction_timestamp, row.batch_after, row.batch_streams, row.batch_division, changed
    )


def _of_name(table: sa.Table, key: SubscriptionKey) -> sa.ColumnElement[bool]:
    """Return the condition for rows of this name that do not say which server the Publisher is."""
    return sa.and_(
        table.c.publisher_system == "",
        table.c.publisher_db == key.publisher_db,
        table.c.publication == key.publication,
        table.c.subscription == key.subscription,
    )


_MIGRATED = ((WATERMARKS, "transaction_timestamp"), (SNAPSHOTS, "range_number"), (ARTICLES, "article_id"))
"""Tables that earlier versions made otherwise, each with a column that tells it from SQL Server's own of that name."""


def _tables_there(session: sa.Connection, database: SqlDatabase) -> dict[str, Destination]:
    """Return the tables that are there under the names of the model's, as the catalogue has them."""
    found = database.catalogue(session).destinations([(None, name) for name in METADATA.tables])
    return {name: it for (_, name), it in found.items()}


def _is_whole(table: sa.Table, found: Destination | None) -> bool:
    return found is not None and found.columns.keys() >= set(table.columns.keys())


def model_tables(session: sa.Connection, database: SqlDatabase) -> list[sa.Table]:
    """Return the model's tables that are there, and are ours: SQL Server's own replication has tables of these
    names."""
    there = _tables_there(session, database)
    return [table for name, table in METADATA.tables.items() if _is_whole(table, there.get(name))]


def require_fit_tables(session: sa.Connection, database: SqlDatabase, where: str) -> None:
    """Raise ConfigurationError where one of the model's tables may not take rows."""
    for (_, name), refusal in database.refused_tables(session, [(None, name) for name in METADATA.tables]).items():
        raise refused(where, name, refusal)


def create_tables(session: sa.Connection, database: SqlDatabase, where: str) -> None:
    """Create the model's tables. Idempotent. Raises ConfigurationError where tables of these names are another's, as
    SQL Server's own are."""
    there = _tables_there(session, database)
    for name, table in METADATA.tables.items():
        if name not in there:
            table.create(session)
    for table, ours in _MIGRATED:
        found = there.get(table.name)
        if not database.alters_primary_keys and (found is None or _is_earlier(found, table, ours)):
            _rebuild(session, table, is_earlier=_is_earlier(found, table, ours))
        elif found is not None and ours in found.columns:
            _add_missing_columns(session, table, found)
            _add_publisher_system(session, database, table, found)
    there = _tables_there(session, database)
    for name, table in METADATA.tables.items():
        if not _is_whole(table, there.get(name)):
            raise ConfigurationError(
                f"{where}: table {name} is another program's: SQL Server's own replication has one of that name",
                remedy="deliver into a database that takes part in no other replication",
            )
    _write_version(session)


def _is_earlier(found: Destination | None, table: sa.Table, ours: str) -> bool:
    return found is not None and ours in found.columns and table.c.publisher_system.name not in found.columns


def find_version(session: sa.Connection) -> TablesVersion | None:
    """Return which version made the tables; None where there are none of ours."""
    inspector = sa.inspect(session)
    row = None
    if inspector.has_table(VERSION.name):
        row = session.execute(sa.select(VERSION.c.revision, VERSION.c.version)).first()
    if row is not None:
        return TablesVersion(*row)
    return UNKNOWN_VERSION if inspector.has_table(WATERMARKS.name) else None


def _write_version(session: sa.Connection) -> None:
    if find_version(session) != THIS_VERSION:
        session.execute(sa.delete(VERSION))
        session.execute(sa.insert(VERSION).values(revision=THIS_VERSION.revision, version=THIS_VERSION.version))


def _add_publisher_system(session: sa.Connection, database: SqlDatabase, table: sa.Table, found: Destination) -> None:
    """Add the Publisher's system identifier to the primary key of a table that an earlier version made."""
    column = table.c.publisher_system
    if any(column.name in key for key in found.unique_keys):
        return
    operations = Operations(MigrationContext.configure(session))
    if column.name not in found.columns:
        operations.add_column(table.name, sa.Column(column.name, column.type, nullable=False, server_default=""))
    key = database.catalogue(session).primary_key((None, table.name))
    name = None if key is None else key.name
    operations.drop_constraint(name or "PRIMARY", table.name, type_="primary")
    operations.create_primary_key(f"pk_{table.name}", table.name, [it.name for it in table.primary_key])


def _rebuild(session: sa.Connection, table: sa.Table, *, is_earlier: bool) -> None:
    """Create a table again, where no primary key can be altered. An interrupted attempt is finished: the earlier table
    is dropped last."""
    operations = Operations(MigrationContext.configure(session))
    name = f"{table.name}_earlier"
    if is_earlier:
        operations.rename_table(table.name, name)
    elif not sa.inspect(session).has_table(name):
        return
    table.create(session, checkfirst=True)
    earlier = {it["name"] for it in sa.inspect(session).get_columns(name)}
    columns = [it.name for it in table.columns if it.name in earlier]
    rows: sa.Select[*tuple[Any, ...]] = sa.select(*[sa.column(it) for it in columns]).select_from(sa.table(name))
    session.execute(sa.insert(table).prefix_with("OR IGNORE").from_select(columns, rows, include_defaults=False))
    operations.drop_table(name)


def _add_missing_columns(session: sa.Connection, table: sa.Table, found: Destination) -> None:
    """Add the columns that a table of an earlier version lacks."""
    operations = Operations(MigrationContext.configure(session))
    for column in table.columns:
        if column.name not in found.columns and column.nullable:
            operations.add_column(table.name, sa.Column(column.name, column.type))
