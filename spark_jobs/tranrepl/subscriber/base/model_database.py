"""What differs between databases where the model's tables are read and written."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from enum import Enum, auto
from typing import Any

import sqlalchemy as sa


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

    @abstractmethod
    def transaction(self, session: sa.Connection, where: str) -> AbstractContextManager[None]:
        """Return what encloses a transaction; its errors are of `tranrepl.errors`."""

    def reading(self, session: sa.Connection, where: str) -> AbstractContextManager[None]:
        """Return what encloses statements that read, and need not see the same state."""
        return self.transaction(session, where)

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
