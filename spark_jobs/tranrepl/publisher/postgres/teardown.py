"""What setup made at a PostgreSQL Publisher for one publication, and its removal: slot, publication, identities,
and with the last publication what announces schema changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from psycopg import sql
from psycopg.errors import InsufficientPrivilege

from tranrepl.errors import ConfigurationError, TransientError
from tranrepl.model.catalogue import OldRowSetting
from tranrepl.model.names import TableName
from tranrepl.postgres.catalogue import qualified
from tranrepl.postgres.session import Session, translated_errors
from tranrepl.publisher.postgres.partitions import Partition, partitions
from tranrepl.publisher.postgres.replica_identity import IdentifiedTable, clause, identified_tables
from tranrepl.publisher.postgres.schema_change_setup import SchemaChangeSetup
from tranrepl.publisher.postgres.slot import ReplicationSlot
from tranrepl.publisher.publisher import Removal, RemovalStep

DROP_SCHEMA = "DROP SCHEMA tranrepl CASCADE"
"""Drops the event triggers with the functions that they call."""
_LOCK_TIMEOUT = "5s"
_UNSETTLED_PARTITION = "it is or was a partition, and what it had before is not known"
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

    def written(self, session: Session) -> RemovalStep:
        return RemovalStep(self.what, self.statement.as_string(session))


def require_no_reader(session: Session) -> None:
    """Raise TransientError where a log reader is connected to the database."""
    where = f"Publisher {session.info.dbname}"
    with translated_errors(where):
        reader = session.execute(_READERS).fetchone()
    if reader is not None:
        raise TransientError(
            f"{where}: the log reader is running (process {reader[0]} of the server)",
            remedy="wait for its end, or end it; then tear down again",
        )


@dataclass(frozen=True, slots=True)
class KnownIdentities:
    """What is known of replica identities before setup, by oid."""

    articles: frozenset[int]
    """Tables that are or were articles."""
    remembered: Mapping[int, OldRowSetting]
    unsettled: str
    """Why an article's is not known where it is not remembered."""
    partitions: Mapping[int, bool]
    """Those that the articles have or had, and whether the log says that one came."""

    def why_unsettled(self, object_id: int) -> str:
        return self.unsettled if object_id in self.articles else _UNSETTLED_PARTITION

    def with_made(self, found: Iterable[Partition], tables: Mapping[int, IdentifiedTable]) -> KnownIdentities:
        """Return the same with the partitions that CREATE TABLE made while their table was replicated with REPLICA
        IDENTITY FULL: they had the default, and the event trigger changed it at once."""
        made = [
            it.object_id
            for it in found
            if it.made_empty
            and self.partitions.get(it.object_id)
            and it.root in tables
            and tables[it.root].identity.is_full
        ]
        return replace(self, remembered={**dict.fromkeys(made, OldRowSetting("d")), **self.remembered})


def find_removal(
    session: Session, slot: ReplicationSlot, known: KnownIdentities, schema_changes: SchemaChangeSetup
) -> Removal:
    """Look for what is there.

    Raises TransientError where the slot is in use, ConfigurationError where our role may not remove something.
    """
    found = slot.require_idle()
    with translated_errors(slot.where):
        below = partitions(session, known.articles)
        wanted = {*known.articles, *known.partitions, *(it.object_id for it in below)}
        tables = identified_tables(session, slot.name, wanted)
        owned = session.execute(
            "SELECT pg_catalog.pg_has_role(pubowner, 'USAGE') FROM pg_catalog.pg_publication WHERE pubname = %s",
            [slot.name],
        ).fetchone()
    steps: list[_Step] = []
    if found is not None:
        drop = sql.SQL("SELECT pg_catalog.pg_drop_replication_slot({})").format(sql.Literal(slot.name))
        steps.append(_Step(f"replication slot {slot.name}", drop, True))
    if owned is not None:
        drop = sql.SQL("DROP PUBLICATION {}").format(sql.Identifier(slot.name))
        steps.append(_Step(f"publication {slot.name}", drop, bool(owned[0])))
    stays: list[str] = []
    known = known.with_made(below, tables)
    for object_id, table in tables.items():
        step, stay = _identity(table, known.remembered.get(object_id), known.why_unsettled(object_id))
        steps += [step] if step else []
        stays += [stay] if stay else []
    with translated_errors(slot.where):
        steps += [_Step(it.what, sql.SQL("; ").join(it.statements), it.allowed) for it in schema_changes.removal()]
    removal = [it.written(session) for it in steps]
    forbidden = [it for it, step in zip(removal, steps, strict=True) if not step.allowed]
    if forbidden:
        raise _forbidden(session, ", ".join(it.what for it in forbidden), forbidden)
    return Removal(tuple(removal), tuple(stays))


def remove(session: Session, removal: Removal, say: Callable[[str], None]) -> None:
    """Raise TransientError where a table stays locked by others, ConfigurationError where a right is missing."""
    where = f"Publisher {session.info.dbname}"
    with translated_errors(where):
        session.execute("SELECT pg_catalog.set_config('lock_timeout', %s, false)", [_LOCK_TIMEOUT])
        for at, step in enumerate(removal.steps):
            try:
                session.execute(step.statement.encode())
            except InsufficientPrivilege as error:
                raise _forbidden(session, step.what, removal.steps[at:]) from error
            say(f"{step.what} at {where}")


def _forbidden(session: Session, what: str, steps: Sequence[RemovalStep]) -> ConfigurationError:
    statements = "\n".join(f"{step.statement};" for step in steps)
    return ConfigurationError(
        f"Publisher {session.info.dbname}: role {session.info.user} may not change: {what}",
        number="42501",
        remedy=f"let its owner run this, then tear down again:\n{statements}",
    )


def _identity(table: IdentifiedTable, before: OldRowSetting | None, unsettled: str) -> tuple[_Step | None, str | None]:
    """Return the step that restores an identity, or why it stays."""
    if not table.identity.is_full or (before is not None and before.is_full):
        return None, None
    full = f"REPLICA IDENTITY FULL of {table.table}"
    if table.other_publication is not None:
        return None, f"{full}: publication {table.other_publication} has the table too"
    if before is None:
        back = table.set_to(OldRowSetting("d")).as_string(None)
        return None, f"{full}: {unsettled}; {back}; sets the default"
    if before.index is not None and before.index not in table.indexes:
        return None, f"{full}: it was USING INDEX {before.index}, which is gone"
    if table.fails_with(before):
        why = f"publication {table.published_by} has the table, whose UPDATEs would fail"
        return None, f"{full}: {why} with {clause(before).as_string(None)}"
    what = f"{full}: back to {clause(before).as_string(None)}"
    return _Step(what, table.set_to(before), table.owned), None


def drop_slot(name: str) -> str:
    return sql.SQL("SELECT pg_drop_replication_slot({})").format(sql.Literal(name)).as_string()


def drop_publication(name: str) -> str:
    return sql.SQL("DROP PUBLICATION {}").format(sql.Identifier(name)).as_string()


def statements_left(name: str, tables: Mapping[TableName, OldRowSetting]) -> list[str]:
    """Return the statements, in order, the last of them with the condition under which it is to be run. `name`: of the
    slot and the publication; `tables`: their replica identities before setup."""
    alter = sql.SQL("ALTER TABLE ONLY {} REPLICA IDENTITY {}")
    identities = [
        alter.format(qualified(table), clause(before)).as_string()
        for table, before in tables.items()
        if not before.is_full
    ]
    return [
        f"{drop_slot(name)};",
        f"{drop_publication(name)};",
        *(f"{it};" for it in identities),
        f"{DROP_SCHEMA};  -- only where that database has no other publication of ours",
    ]
