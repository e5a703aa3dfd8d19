"""What differs between databases where the model's tables are read and written."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from enum import Enum, auto
from typing import Any

import sqlalchemy as sa

from tranrepl.errors import ConfigurationError
from tranrepl.model.catalogue import ForeignKeyDescription
from tranrepl.model.names import TableName
from tranrepl.subscriber.capabilities import Capabilities
from tranrepl.subscriber.foreign_keys import ForeignKey


class RowLock(Enum):
    """How a row of the model's tables is locked."""

    EXCLUSIVE = auto()
    """Nobody else locks it."""
    SHARED = auto()
    """Others may lock it so, and nobody writes it."""


class ModelDatabase(ABC):
    """One kind of database, as all that is the same for every kind needs it."""

    lock_timeouts: frozenset[str] = frozenset()
    """Codes of the error that a wait for a lock has taken too long."""

    @property
    @abstractmethod
    def capabilities(self) -> Capabilities: ...

    def not_for_replication_problems(self, session: sa.Connection, where: str) -> Iterator[ConfigurationError]:
        """Yield a problem where the session cannot keep foreign keys from acting."""
        del session
        able = self.capabilities
        if not able.not_for_replication:
            yield ConfigurationError(
                f"{where}: not_for_replication: "
                + (able.why_for_replication or f"a session of {able.title} cannot keep foreign keys from acting"),
                remedy="not_for_replication: false; drop or disable what must not act at the Subscriber's tables",
            )

    @abstractmethod
    def transaction(self, session: sa.Connection, where: str) -> AbstractContextManager[None]:
        """Return what encloses a transaction; its errors are of `tranrepl.errors`."""

    def reading(self, session: sa.Connection, where: str) -> AbstractContextManager[None]:
        """Return what encloses statements that read, and need not see the same state."""
        return self.transaction(session, where)

    def together(self, session: sa.Connection, where: str) -> AbstractContextManager[None]:
        """Return what encloses transactions that are one where DDL is part of a transaction."""
        del session, where
        return nullcontext()

    @abstractmethod
    def name(self, session: sa.Connection) -> str:
        """Return the name of the database that the session is in."""

    @abstractmethod
    def has_table(self, session: sa.Connection, table: sa.Table) -> bool:
        """Return whether a table of the model's is there."""

    @abstractmethod
    def model_columns(self, session: sa.Connection, names: Sequence[str]) -> Mapping[str, Collection[str]]:
        """Return the columns of the tables that are there under these names, where the model's are."""

    @abstractmethod
    def require_fit_tables(self, session: sa.Connection, where: str, names: Sequence[str]) -> None:
        """Raise ConfigurationError where setup may not use tables that are there under these names."""

    def locked_rows(
        self,
        session: sa.Connection,
        table: sa.Table,
        query: sa.Select[*tuple[Any, ...]],
        lock: RowLock = RowLock.EXCLUSIVE,
    ) -> Sequence[sa.Row[*tuple[Any, ...]]]:
        """Return the rows of one of the model's tables that a query finds, locked until the transaction ends, where the
        database locks rows at all."""
        del table
        return session.execute(query.with_for_update(read=lock is RowLock.SHARED)).all()

    @abstractmethod
    def wait_for_lock(self, session: sa.Connection, seconds: int) -> None:
        """Set how long the session waits for a row that another one has locked."""

    def insert_new(self, session: sa.Connection, table: sa.Table, rows: Sequence[Mapping[str, object]]) -> int:
        """Insert rows; return how many. Where the database can, those are left out that another session has inserted
        meanwhile."""
        session.execute(sa.insert(table), rows)
        return len(rows)

    # Destinations

    @abstractmethod
    def foreign_keys(self, session: sa.Connection, table: TableName) -> Sequence[ForeignKeyDescription]:
        """Return a table's foreign keys, where setup makes any."""

    def foreign_keys_of(
        self, session: sa.Connection, tables: Sequence[TableName]
    ) -> Mapping[TableName, Sequence[ForeignKeyDescription]]:
        """Return the foreign keys of tables."""
        return {it: self.foreign_keys(session, it) for it in tables}

    def place(self, table: TableName) -> tuple[str | None, str]:
        """Return schema and name of a destination table."""
        return table.schema, table.table

    @abstractmethod
    def add_foreign_key_text(self, key: ForeignKey) -> str:
        """Return the statement that creates a foreign key."""

    # Teardown

    @abstractmethod
    def as_made(self, session: sa.Connection, texts: Mapping[str, str]) -> Mapping[str, bool]:
        """Return which of the generated procedures of these texts are there, and whether each is as its text made
        it."""

    @abstractmethod
    def drop_statement(self, procedure: str) -> str:
        """Return the statement that drops a generated procedure."""

    def drops(self, session: sa.Connection, procedure: str) -> Sequence[str]:
        """Return the statements that drop all that is there under the name of a generated procedure."""
        del session
        return [self.drop_statement(procedure)]

    def shared_drops(self) -> Sequence[str]:
        """Return the statements that drop procedures which all articles share."""
        return ()

    def drop_problem(
        self, session: sa.Connection, where: str, procedures: Sequence[str], tables: Sequence[sa.Table]
    ) -> ConfigurationError | None:
        """Return that our role may not drop one of these, where that is known before."""
        del session, where, procedures, tables
        return None

    @abstractmethod
    def lock_table(self, session: sa.Connection, table: sa.Table) -> None:
        """Keep other sessions from writing to a table until the transaction ends, where the database can."""


def execute_ddl(session: sa.Connection, statement: str) -> None:
    """Execute DDL as it is written: no parameters, and no marks for them."""
    session.exec_driver_sql(statement, execution_options={"no_parameters": True})
