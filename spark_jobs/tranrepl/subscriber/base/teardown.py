"""What setup made at a Subscriber for one publication, and its removal.

It is one transaction where DDL is transactional. Elsewhere an interrupted removal is gone on with by the next one: the
rows that say what is ours go after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import sqlalchemy as sa

from tranrepl.errors import ConfigurationError, TransientError
from tranrepl.subscriber.base.database import SqlDatabase
from tranrepl.subscriber.base.execution import execute_ddl
from tranrepl.subscriber.base.replication_tables import replication_tables
from tranrepl.subscriber.capabilities import NameLimit
from tranrepl.subscriber.procedure_names import PREFIXES, procedure_name
from tranrepl.subscriber.replication_tables import ARTICLES, OBJECTS, SNAPSHOTS, VERSION, WATERMARKS, of_publication
from tranrepl.subscriber.subscription import SubscriptionKey
from tranrepl.subscriber.teardown import (
    LOCK_SECONDS,
    Destinations,
    ModelRow,
    SharedProcedure,
    SubscriberRemoval,
    being_delivered,
)


class Teardown:
    """The teardown of one publication in one database."""

    def __init__(self, session: sa.Connection, database: SqlDatabase, key: SubscriptionKey) -> None:
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
        there = replication_tables(self._session, self._database)
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
            for statements in self._database.drops(self._session, found.procedures).values():
                self._run(*statements)
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


@dataclass(frozen=True, slots=True)
class RegisteredProcedure:
    """A row of `MSreplication_objects`, and whether the procedure is there as it was made."""

    name: str
    publisher: str
    publisher_db: str
    publication: str
    exists: bool
    edited: bool
    """Its text is another one than was made."""


@dataclass(frozen=True, slots=True)
class ModelTables:
    """Which of the model's tables exist."""

    subscriptions: bool
    """Those of watermarks and of snapshots, or one of them."""
    objects: bool


def is_ours(row: ModelRow, key: SubscriptionKey) -> bool:
    """Return whether the row is this publication's."""
    return row.key == (key.publisher_system, key.publisher_db, key.publication)


def removal_at(
    key: SubscriptionKey,
    rows: Sequence[ModelRow],
    registered: Sequence[RegisteredProcedure],
    known: Destinations,
    procedure_names: NameLimit,
    tables: ModelTables,
    created: Iterable[str] = (),
) -> SubscriberRemoval:
    """Return what teardown removes of what is there. `rows`: of watermarks and snapshots, everybody's; `known`: without
    this publication."""
    others = list(dict.fromkeys(row for row in rows if not is_ours(row, key)))
    mine = [it for it in registered if _is_ours(it, key, others)]
    shared: list[SharedProcedure] = []
    for it in mine:
        new_owner = _new_owner(it.name, others, known, procedure_names)
        shared += [SharedProcedure(it.name, new_owner)] if new_owner is not None and it.exists else []
    kept = {it.name for it in shared}
    free = [it for it in mine if it.name not in kept]
    edited = tuple(it.name for it in free if it.exists and it.edited)
    return SubscriberRemoval(
        rows=sum(is_ours(row, key) for row in rows),
        procedures=tuple(it.name for it in free if it.exists and not it.edited),
        gone=tuple(it.name for it in free if not it.exists),
        edited=edited,
        shared=tuple(shared),
        created=tuple(created),
        tables=not others
        and len(mine) == len(registered)
        and (tables.subscriptions or (tables.objects and not edited)),
    )


def _is_ours(it: RegisteredProcedure, key: SubscriptionKey, others: Iterable[ModelRow]) -> bool:
    """Return whether a row that does not say which server the Publisher is belongs to this one: it does unless another
    one, of a publication and a database of the same names, was reached at that address."""
    if (it.publisher_db, it.publication) != (key.publisher_db, key.publication):
        return False
    return not any(
        (row.publisher, row.publisher_db, row.publication) == (it.publisher, it.publisher_db, it.publication)
        for row in others
    )


def _new_owner(
    name: str, others: Iterable[ModelRow], known: Destinations, procedure_names: NameLimit
) -> ModelRow | None:
    """Return another publication that calls the procedure; of one that is of another distribution database nobody can
    tell."""
    for row in others:
        tables = known.get(row.key)
        if tables is None or any(
            procedure_name(it, table, procedure_names) == name for table in tables for it in PREFIXES
        ):
            return row
    return None
