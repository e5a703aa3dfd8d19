"""What setup made at a PostgreSQL Publisher for one publication, and its removal: slot, publication, identities."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from psycopg import sql
from psycopg.errors import InsufficientPrivilege

from tranrepl.errors import ConfigurationError, TransientError
from tranrepl.model.catalogue import ReplicaIdentity
from tranrepl.postgres.session import Session, translated_errors
from tranrepl.publisher.postgres.publisher import PostgresPublisher
from tranrepl.publisher.postgres.replica_identity import IdentifiedTable, clause, identified_tables

_LOCK_TIMEOUT = "5s"
_READERS = """
SELECT pid FROM pg_catalog.pg_stat_activity
 WHERE datname = current_database() AND application_name = 'tranrepl log reader' LIMIT 1
"""


@dataclass(frozen=True, slots=True)
class _Step:
    what: str
    statement: sql.Composed
    allowed: bool
    """Our role owns what it removes or alters."""


@dataclass(frozen=True, slots=True)
class PublisherRemoval:
    """What goes, in this order, and what is left as it is, in words."""

    steps: tuple[_Step, ...]
    stays: tuple[str, ...]

    @property
    def removed(self) -> tuple[str, ...]:
        return tuple(step.what for step in self.steps)


class PublisherTeardown:
    """Of one publication in one database."""

    def __init__(self, session: Session, publication: str) -> None:
        self._session = session
        self._publisher = PostgresPublisher(session, publication)
        self._name = self._publisher.object_name
        self.where = self._publisher.where

    def require_no_reader(self) -> None:
        """Raise TransientError where a log reader is connected to the database."""
        with translated_errors(self.where):
            reader = self._session.execute(_READERS).fetchone()
        if reader is not None:
            raise TransientError(
                f"{self.where}: the log reader is running (process {reader[0]} of the server)",
                remedy="wait for its end, or end it; then tear down again",
            )

    def find(
        self, object_ids: Collection[int], remembered: Mapping[int, ReplicaIdentity], unsettled: str
    ) -> PublisherRemoval:
        """What is there. `object_ids`: tables that are or were articles; `remembered`: identities before setup, by oid;
        `unsettled`: why one that is not remembered is not known.

        Raises TransientError where the slot is in use, ConfigurationError where our role may not remove something.
        """
        slot = self._publisher.require_idle_slot()
        with translated_errors(self.where):
            tables = identified_tables(self._session, self._name, object_ids)
            owned = self._session.execute(
                "SELECT pg_catalog.pg_has_role(pubowner, 'USAGE') FROM pg_catalog.pg_publication WHERE pubname = %s",
                [self._name],
            ).fetchone()
        steps: list[_Step] = []
        if slot is not None:
            drop = sql.SQL("SELECT pg_catalog.pg_drop_replication_slot({})").format(sql.Literal(self._name))
            steps.append(_Step(f"replication slot {self._name}", drop, True))
        if owned is not None:
            drop = sql.SQL("DROP PUBLICATION {}").format(sql.Identifier(self._name))
            steps.append(_Step(f"publication {self._name}", drop, bool(owned[0])))
        stays: list[str] = []
        for object_id, table in tables.items():
            step, stay = _identity(table, remembered.get(object_id), unsettled)
            steps += [step] if step else []
            stays += [stay] if stay else []
        self._refuse_forbidden(steps)
        return PublisherRemoval(tuple(steps), tuple(stays))

    def _refuse_forbidden(self, steps: list[_Step]) -> None:
        forbidden = [step for step in steps if not step.allowed]
        if forbidden:
            raise self._forbidden(", ".join(step.what for step in forbidden), forbidden)

    def _forbidden(self, what: str, steps: list[_Step]) -> ConfigurationError:
        statements = "\n".join(f"{step.statement.as_string(self._session)};" for step in steps)
        return ConfigurationError(
            f"{self.where}: role {self._session.info.user} may not change: {what}",
            number="42501",
            remedy=f"let its owner run this, then tear down again:\n{statements}",
        )

    def remove(self, removal: PublisherRemoval, say: Callable[[str], None]) -> None:
        """Raises TransientError where a table stays locked by others, ConfigurationError where a right is missing."""
        with translated_errors(self.where):
            self._session.execute("SELECT pg_catalog.set_config('lock_timeout', %s, false)", [_LOCK_TIMEOUT])
            for at, step in enumerate(removal.steps):
                try:
                    self._session.execute(step.statement)
                except InsufficientPrivilege as error:
                    raise self._forbidden(step.what, list(removal.steps[at:])) from error
                say(f"{step.what} at {self.where}")


def _identity(
    table: IdentifiedTable, before: ReplicaIdentity | None, unsettled: str
) -> tuple[_Step | None, str | None]:
    """The step that puts an identity back, or why it stays."""
    if not table.identity.is_full or (before is not None and before.is_full):
        return None, None
    full = f"REPLICA IDENTITY FULL of {table.table}"
    if table.other_publication is not None:
        return None, f"{full}: publication {table.other_publication} has the table too"
    if before is None:
        back = table.set_to(ReplicaIdentity("d")).as_string(None)
        return None, f"{full}: {unsettled}; {back}; sets the default"
    if before.index is not None and before.index not in table.indexes:
        return None, f"{full}: it was USING INDEX {before.index}, which is gone"
    what = f"{full}: back to {clause(before).as_string(None)}"
    return _Step(what, table.set_to(before), table.owned), None
