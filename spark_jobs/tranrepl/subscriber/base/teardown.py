"""What setup made at a Subscriber for one publication, and its removal.

It is one transaction where DDL is transactional. Elsewhere an interrupted removal is gone on with by the next one: the
rows that say what is ours go after it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa

from tranrepl.errors import ConfigurationError, TransientError
from tranrepl.subscriber.base.model_database import ModelDatabase, execute_ddl
from tranrepl.subscriber.base.model_tables import model_tables
from tranrepl.subscriber.ownership import ModelTables, RegisteredProcedure, removal_at
from tranrepl.subscriber.replication_tables import ARTICLES, OBJECTS, SNAPSHOTS, VERSION, WATERMARKS, of_publication
from tranrepl.subscriber.subscription import SubscriptionKey
from tranrepl.subscriber.teardown import LOCK_SECONDS, Destinations, ModelRow, SubscriberRemoval, being_delivered


class Teardown:
    """The teardown of one publication in one database."""

    def __init__(self, session: sa.Connection, database: ModelDatabase, key: SubscriptionKey) -> None:
        self._session = session
        self._database = database
        self._key = key
        self.where = f"Subscriber {key.subscription}"

    def find(self, others: Destinations) -> SubscriberRemoval:
        """Find what is there. Raises TransientError where a delivery goes on, ConfigurationError where our role may not
        remove something."""
        with self._transaction():
            self._lock()
            names = self._database.capabilities.procedure_names
            there = self._there()
            tables = ModelTables(bool(self._of_subscriptions()), OBJECTS in there)
            created = self._created() if SNAPSHOTS in there else []
            found = removal_at(self._key, self._rows(), self._registered(), others, names, tables, created)
            problem = self._database.drop_problem(
                self._session, self.where, found.procedures, there if found.tables else ()
            )
        if problem is not None:
            raise problem
        return found

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        try:
            with self._database.transaction(self._session, self.where):
                yield
        except TransientError as error:
            if error.report.code in self._database.lock_timeouts:
                raise being_delivered(self.where) from error
            raise

    def _there(self) -> list[sa.Table]:
        """Return the model's tables that exist, and are ours."""
        there = model_tables(self._session, self._database)
        return [it for it in (WATERMARKS, SNAPSHOTS, ARTICLES, OBJECTS) if it in there]

    def _of_subscriptions(self) -> list[sa.Table]:
        return [it for it in self._there() if it is not OBJECTS]

    def _lock(self) -> None:
        """Lock the subscription's rows: deliveries hold a watermark, and snapshots their articles' rows, until they
        commit."""
        self._database.wait_for_lock(self._session, LOCK_SECONDS)
        for table in self._of_subscriptions():
            query = sa.select(table.c.publication).where(of_publication(table, self._key))
            self._database.locked_rows(self._session, table, query)

    def _rows(self) -> list[ModelRow]:
        rows: list[ModelRow] = []
        for table in self._of_subscriptions():
            names = ("publisher", "publisher_system", "publisher_db", "publication")
            rows += [ModelRow(*row) for row in self._session.execute(sa.select(*(table.c[it] for it in names)))]
        return rows

    def _created(self) -> list[str]:
        """Return the articles whose tables setup made."""
        columns = SNAPSHOTS.c
        query = sa.select(columns.article).where(of_publication(SNAPSHOTS, self._key), columns.created).distinct()
        return sorted(self._session.scalars(query))

    def _registered(self) -> list[RegisteredProcedure]:
        if OBJECTS not in self._there():
            return []
        rows = self._session.execute(sa.select(OBJECTS).order_by(OBJECTS.c.object_name)).all()
        as_made = self._database.as_made(self._session, {row.object_name: row.object_text for row in rows})
        return [
            RegisteredProcedure(
                row.object_name,
                row.publisher,
                row.publisher_db,
                row.publication,
                exists=row.object_name in as_made,
                edited=not as_made.get(row.object_name, True),
            )
            for row in rows
        ]

    def remove(self, found: SubscriberRemoval) -> None:
        """Remove what was found; idempotent. Raises as `find` does."""
        with self._database.together(self._session, self.where):
            with self._transaction():
                self._lock()
                # While the lock is held: DDL may end the transaction.
                for table in self._of_subscriptions():
                    self._session.execute(sa.delete(table).where(of_publication(table, self._key)))
            for name in found.procedures:
                self._run(*self._database.drops(self._session, name))
            with self._transaction():
                if OBJECTS in self._there():
                    self._give_up_procedures(found)
            if found.tables:
                self._drop_empty_tables()

    def _run(self, *statements: str) -> None:
        for statement in statements:
            try:
                with self._transaction():
                    execute_ddl(self._session, statement)
            except ConfigurationError as error:
                raise ConfigurationError(
                    error.message,
                    number=error.report.number,
                    database_code=error.report.database_code,
                    remedy=f"let somebody who may run this, then tear down again:\n{statement};",
                ) from error

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

    def _drop_empty_tables(self) -> None:
        """Drop the model's tables that hold no rows: of somebody that came meanwhile, or of a procedure that was
        edited."""
        with self._transaction():
            for table in self._there():
                self._database.lock_table(self._session, table)
                if not self._session.scalar(sa.select(sa.func.count()).select_from(table)):
                    table.drop(self._session, checkfirst=False)
            if not self._there() and self._database.has_table(self._session, VERSION):
                VERSION.drop(self._session, checkfirst=False)
            is_empty = not self._there()
        if is_empty:
            self._run(*self._database.shared_drops())

    def drop_statement(self, procedure: str) -> str:
        """Return the statement that drops a generated procedure, for a person to run."""
        return self._database.drop_statement(procedure)
