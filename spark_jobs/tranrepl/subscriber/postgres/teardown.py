"""What setup made at a PostgreSQL Subscriber for one publication, and its removal, in one transaction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from psycopg import sql
from psycopg.errors import InsufficientPrivilege, LockNotAvailable

from tranrepl.errors import ConfigurationError
from tranrepl.postgres.session import Session, translated_errors
from tranrepl.subscriber.ownership import ModelTables, RegisteredProcedure, removal_at
from tranrepl.subscriber.postgres.database import has_table
from tranrepl.subscriber.postgres.procedures import PROCEDURE_NAMES, SCHEMA, ends_with_body, trusted
from tranrepl.subscriber.postgres.replication_tables import (
    ARTICLES,
    OBJECTS,
    SNAPSHOTS,
    VERSION,
    WATERMARKS,
)
from tranrepl.subscriber.subscription import SubscriptionKey
from tranrepl.subscriber.teardown import LOCK_SECONDS, Destinations, ModelRow, SubscriberRemoval, being_delivered

_MINE = sql.SQL(
    "publisher_db = %(db)s AND publication = %(publication)s AND "
    "(publisher_system = %(system)s OR (publisher_system = '' AND publisher = %(publisher)s))"
)
_PROCEDURES = """
SELECT p.proname::text, p.oid::regprocedure::text, p.prosrc, pg_catalog.pg_has_role(p.proowner, 'USAGE')
  FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
 WHERE n.nspname = %s AND p.proname = ANY (%s) ORDER BY p.proname
"""


class PostgresTeardown:
    """The teardown of one publication in one database."""

    def __init__(self, session: Session, key: SubscriptionKey) -> None:
        self._session = session
        self._key = key
        self._mine = {
            "db": key.publisher_db,
            "publication": key.publication,
            "system": key.publisher_system,
            "publisher": key.publisher,
        }
        self.where = f"Subscriber {key.subscription}"

    def find(self, others: Destinations) -> SubscriberRemoval:
        """Find what is there. Raises TransientError where a delivery goes on, ConfigurationError where our role may not
        remove something."""
        with self._transaction():
            self._lock()
            found = self._found(others)
            self._refuse_forbidden(found)
        return found

    def _found(self, others: Destinations) -> SubscriberRemoval:
        there = self._there()
        tables = ModelTables(any(it != OBJECTS for it in there), OBJECTS in there)
        return removal_at(self._key, self._rows(), self._registered(), others, PROCEDURE_NAMES, tables, self._created())

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with translated_errors(self.where):
            try:
                with self._session.transaction():
                    self._session.execute(
                        "SELECT pg_catalog.set_config('lock_timeout', %s, true)", [f"{LOCK_SECONDS}s"]
                    )
                    yield
            except LockNotAvailable:
                raise being_delivered(self.where) from None

    def _there(self) -> list[sql.Identifier]:
        """Return the model's tables that exist, and have rows of publications."""
        return [it for it in (WATERMARKS, SNAPSHOTS, ARTICLES, OBJECTS) if has_table(self._session, it)]

    def _lock(self) -> None:
        """Lock the subscription's rows: deliveries hold a watermark, and snapshots their articles' rows, until they
        commit."""
        for table in self._there():
            if table != OBJECTS:
                self._session.execute(sql.SQL("SELECT FROM {} WHERE {} FOR UPDATE").format(table, _MINE), self._mine)

    def _rows(self) -> list[ModelRow]:
        rows: list[ModelRow] = []
        for table in self._there():
            if table != OBJECTS:
                query = sql.SQL("SELECT publisher, publisher_system, publisher_db, publication FROM {}").format(table)
                rows += [ModelRow(*row) for row in self._session.execute(query)]
        return rows

    def _created(self) -> list[str]:
        """Return the articles whose tables setup made."""
        if not has_table(self._session, SNAPSHOTS):
            return []
        query = sql.SQL("SELECT DISTINCT article FROM {} WHERE {} AND created ORDER BY article")
        return [str(it) for (it,) in self._session.execute(query.format(SNAPSHOTS, _MINE), self._mine)]

    def _registered(self) -> list[RegisteredProcedure]:
        if not has_table(self._session, OBJECTS):
            return []
        query = sql.SQL(
            "SELECT object_name, publisher, publisher_db, publication, object_text FROM {} ORDER BY object_name"
        )
        rows = self._session.execute(query.format(OBJECTS)).fetchall()
        bodies: dict[str, list[str]] = {}
        for name, _, body, _ in self._procedures([row[0] for row in rows]):
            bodies.setdefault(name, []).append(body)
        return [
            RegisteredProcedure(
                name,
                publisher,
                publisher_db,
                publication,
                exists=name in bodies,
                edited=not all(ends_with_body(text, body) for body in bodies.get(name, [])),
            )
            for name, publisher, publisher_db, publication, text in rows
        ]

    def _procedures(self, names: list[str]) -> list[tuple[str, str, str, bool]]:
        """Name, signature, body, and whether our role owns it."""
        return [(*row,) for row in self._session.execute(_PROCEDURES, [SCHEMA, names]).fetchall()]

    def _refuse_forbidden(self, found: SubscriberRemoval) -> None:
        """Raise ConfigurationError for what only an owner may drop, before anything is changed anywhere."""
        drops = [
            (f"procedure {name}", sql.SQL("DROP PROCEDURE {}").format(trusted(signature)))
            for name, signature, _, owned in self._procedures(list(found.procedures))
            if not owned
        ]
        if found.tables:
            drops += [
                (table.as_string(None), sql.SQL("DROP TABLE {}").format(table))
                for table in self._there()
                if not self._owns(table)
            ]
        if drops:
            statements = "\n".join(f"{statement.as_string(self._session)};" for _, statement in drops)
            raise self._forbidden(", ".join(what for what, _ in drops), statements)

    def _forbidden(self, what: str, statements: str) -> ConfigurationError:
        return ConfigurationError(
            f"{self.where}: role {self._session.info.user} may not change: {what}",
            number="42501",
            remedy=f"let the owner run this, then tear down again:\n{statements}",
        )

    def _owns(self, table: sql.Identifier) -> bool:
        query = "SELECT pg_catalog.pg_has_role(relowner, 'USAGE') FROM pg_catalog.pg_class WHERE oid = to_regclass(%s)"
        return self._session.execute(query, [table.as_string(None)]).fetchone() == (True,)

    def remove(self, found: SubscriberRemoval) -> None:
        """Remove what was found; idempotent. Raises as `find` does."""
        with self._transaction():
            self._lock()
            for _, signature, _, _ in self._procedures(list(found.procedures)):
                self._execute(sql.SQL("DROP PROCEDURE {}").format(trusted(signature)))
            there = self._there()
            if OBJECTS in there:
                self._give_up_procedures(found)
            for table in there:
                if table != OBJECTS:
                    self._execute(sql.SQL("DELETE FROM {} WHERE {}").format(table, _MINE), self._mine)
            for table in there if found.tables else ():
                if not self._holds_rows(table):
                    self._execute(sql.SQL("DROP TABLE {}").format(table))
            if found.tables and not self._there() and has_table(self._session, VERSION):
                self._execute(sql.SQL("DROP TABLE {}").format(VERSION))

    def _give_up_procedures(self, found: SubscriberRemoval) -> None:
        names = [*found.procedures, *found.gone]
        self._execute(sql.SQL("DELETE FROM {} WHERE object_name = ANY (%(names)s)").format(OBJECTS), {"names": names})
        for it in found.shared:
            self._execute(
                sql.SQL(
                    "UPDATE {} SET publisher = %(publisher)s, publisher_db = %(db)s, publication = %(publication)s "
                    "WHERE object_name = %(name)s"
                ).format(OBJECTS),
                {
                    "name": it.name,
                    "publisher": it.new_owner.publisher,
                    "db": it.new_owner.publisher_db,
                    "publication": it.new_owner.publication,
                },
            )

    def _holds_rows(self, table: sql.Identifier) -> bool:
        """Return whether the table holds rows: somebody's that came meanwhile, or of a procedure that was edited."""
        self._execute(sql.SQL("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE").format(table))
        query = sql.SQL("SELECT EXISTS (SELECT FROM {})").format(table)
        return self._session.execute(query).fetchone() == (True,)

    def _execute(self, statement: sql.Composed, values: Mapping[str, object] | None = None) -> None:
        try:
            self._session.execute(statement, values)
        except InsufficientPrivilege as error:
            text = f"{statement.as_string(self._session)};"
            raise self._forbidden(str(error.diag.message_primary), text) from error

    def drop_statement(self, procedure: str) -> str:
        return sql.SQL("DROP PROCEDURE {}").format(sql.Identifier(SCHEMA, procedure)).as_string(None)
