"""What setup made at a Subscriber that SQLAlchemy reaches, for one publication, and its removal.

Where DDL commits by itself, an interrupted removal is gone on with by the next one: the rows that say what is ours go
after it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa

from tranrepl.errors import ConfigurationError, TransientError
from tranrepl.subscriber.base.database import SqlDatabase, translated_errors
from tranrepl.subscriber.base.model_tables import model_tables
from tranrepl.subscriber.base.procedures import ProcedureName, ProcedureScripter
from tranrepl.subscriber.ownership import ModelTables, RegisteredProcedure, removal_at
from tranrepl.subscriber.replication_tables import ARTICLES, OBJECTS, SNAPSHOTS, VERSION, WATERMARKS
from tranrepl.subscriber.subscription import SubscriptionKey
from tranrepl.subscriber.teardown import LOCK_SECONDS, Destinations, ModelRow, SubscriberRemoval, being_delivered


class SqlTeardown:
    """The teardown of one publication in one database."""

    def __init__(self, session: sa.Connection, database: SqlDatabase, key: SubscriptionKey) -> None:
        self._session = session
        self._database = database
        self._key = key
        self.where = f"Subscriber {key.subscription}"

    def find(self, others: Destinations) -> SubscriberRemoval:
        """Find what is there. Raises TransientError where a delivery goes on."""
        with self._transaction():
            self._lock()
            names = self._database.capabilities.procedure_names
            tables = ModelTables(bool(self._of_subscriptions()), OBJECTS in self._there())
            return removal_at(self._key, self._rows(), self._registered(), others, names, tables)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        try:
            with translated_errors(self.where, self._database), self._session.begin():
                yield
        except TransientError as error:
            if error.report.number in self._database.lock_timeouts:
                raise being_delivered(self.where) from error
            raise

    def _there(self) -> list[sa.Table]:
        """Return the model's tables that exist, and are ours."""
        there = model_tables(self._session, self._database)
        return [it for it in (WATERMARKS, SNAPSHOTS, ARTICLES, OBJECTS) if it in there]

    def _of_subscriptions(self) -> list[sa.Table]:
        return [it for it in self._there() if it is not OBJECTS]

    def _is_mine(self, table: sa.Table) -> sa.ColumnElement[bool]:
        columns, key = table.c, self._key
        unidentified = sa.and_(columns.publisher_system == "", columns.publisher == key.publisher)
        return sa.and_(
            columns.publisher_db == key.publisher_db,
            columns.publication == key.publication,
            sa.or_(columns.publisher_system == key.publisher_system, unidentified),
        )

    def _lock(self) -> None:
        """Lock the subscription's rows: deliveries hold a watermark, and snapshots their articles' rows, until they
        commit."""
        self._database.wait_for_lock(self._session, LOCK_SECONDS)
        for table in self._of_subscriptions():
            query = sa.select(table.c.publication).where(self._is_mine(table))
            self._database.locked_rows(self._session, table, query)

    def _rows(self) -> list[ModelRow]:
        rows: list[ModelRow] = []
        for table in self._of_subscriptions():
            names = ("publisher", "publisher_system", "publisher_db", "publication")
            rows += [ModelRow(*row) for row in self._session.execute(sa.select(*(table.c[it] for it in names)))]
        return rows

    def _registered(self) -> list[RegisteredProcedure]:
        scripter = self._database.scripter
        if scripter is None or OBJECTS not in self._there():
            return []
        found = []
        rows = self._session.execute(sa.select(OBJECTS).order_by(OBJECTS.c.object_name)).all()
        stored = scripter.stored(self._session, [ProcedureName(None, row.object_name) for row in rows])
        for row in rows:
            procedure = stored.get(ProcedureName(None, row.object_name))
            edited = procedure is not None and not scripter.made(row.object_text, procedure.body)
            found.append(
                RegisteredProcedure(
                    row.object_name,
                    row.publisher,
                    row.publisher_db,
                    row.publication,
                    exists=procedure is not None,
                    edited=edited,
                )
            )
        return found

    def remove(self, found: SubscriberRemoval) -> None:
        """Remove what was found; idempotent. Raises TransientError where a delivery goes on."""
        scripter = self._database.scripter
        with self._transaction():
            self._lock()
            # While the lock is held: DDL may end the transaction.
            for table in self._of_subscriptions():
                self._session.execute(sa.delete(table).where(self._is_mine(table)))
        if scripter is not None:
            for name in found.procedures:
                self._drop(scripter, name)
        with self._transaction():
            there = self._there()
            if OBJECTS in there:
                self._give_up_procedures(found)
        if found.tables:
            self._drop_empty_tables(scripter)

    def _drop(self, scripter: ProcedureScripter, name: str) -> None:
        with self._transaction():
            self._execute(scripter.drop(ProcedureName(None, name)))

    def _execute(self, statement: str) -> None:
        try:
            self._session.exec_driver_sql(statement, execution_options={"no_parameters": True})
        except sa.exc.DBAPIError as error:
            translated = self._database.translate(self.where, error)
            if isinstance(translated, ConfigurationError):
                raise ConfigurationError(
                    translated.message,
                    number=translated.report.number,
                    remedy=f"let somebody who may run this, then tear down again:\n{statement};",
                ) from error
            raise

    def _give_up_procedures(self, found: SubscriberRemoval) -> None:
        names = [*found.procedures, *found.gone]
        self._session.execute(sa.delete(OBJECTS).where(OBJECTS.c.object_name.in_(names)))
        for it in found.shared:
            self._session.execute(
                sa.update(OBJECTS)
                .where(OBJECTS.c.object_name == it.name)
                .values(
                    publisher=it.new_owner.publisher,
                    publisher_db=it.new_owner.publisher_db,
                    publication=it.new_owner.publication,
                )
            )

    def _drop_empty_tables(self, scripter: ProcedureScripter | None) -> None:
        with self._transaction():
            empty = [it for it in self._there() if not self._session.scalar(sa.select(sa.func.count()).select_from(it))]
            for table in empty:
                table.drop(self._session)
            if not self._there():
                VERSION.drop(self._session, checkfirst=True)
            if scripter is not None and not self._there():
                for shared in scripter.shared():
                    self._execute(scripter.drop(shared.name))

    def drop_statement(self, procedure: str) -> str:
        scripter = self._database.scripter
        return scripter.drop(ProcedureName(None, procedure)) if scripter else ""
