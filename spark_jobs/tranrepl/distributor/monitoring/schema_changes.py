"""Schema changes and scripts in the order of their commands, and which subscriptions have them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from tranrepl.distributor.database.watermarks import known_watermarks
from tranrepl.distributor.monitoring.publication import MonitoredRecord, seqno_text
from tranrepl.distributor.tables import msschema_changes, mssubscriptions
from tranrepl.model.schema_change import SchemaChange
from tranrepl.schema.words import parts_in_words


@dataclass(frozen=True, slots=True)
class StoredChange:
    """A schema change or script that is stored."""

    xact_seqno: str
    command_id: int
    time: datetime
    """When it was registered."""
    article: str | None
    """None for a script."""
    what: Sequence[str]
    """What it does, a line each."""
    delivered: Sequence[str]
    """Subscriptions that have it."""
    waits_for: Sequence[str]
    """Subscriptions that do not have it yet."""


def newest_changes(connection: sa.Connection, record: MonitoredRecord, count: int) -> Sequence[StoredChange]:
    """Return the newest schema changes and scripts, in the order of their commands."""
    changes = msschema_changes.c
    query = (
        sa.select(changes.xact_seqno, changes.command_id, changes.change, changes.entry_time)
        .where(changes.publication_id == record.publication_id)
        .order_by(changes.xact_seqno.desc(), changes.command_id.desc())
        .limit(count)
    )
    rows = connection.execute(query).all()
    marks = known_watermarks(connection, mssubscriptions.c.publication_id == record.publication_id)
    reached = {it.subscription: marks[number].xact_seqno for number, it in record.subscriptions.items()}
    return [_change(row, reached) for row in reversed(rows)]


def _change(row: sa.Row[Any], reached: dict[str, bytes]) -> StoredChange:
    script = row.change.get("script")
    change = SchemaChange.model_validate(row.change) if script is None else None
    seqno = bytes(row.xact_seqno)
    return StoredChange(
        xact_seqno=seqno_text(seqno) or "",
        command_id=row.command_id,
        time=row.entry_time,
        article=None if change is None else str(change.source),
        what=[f"script {script}"] if change is None else _in_words(change),
        delivered=[name for name, watermark in reached.items() if watermark >= seqno],
        waits_for=[name for name, watermark in reached.items() if watermark < seqno],
    )


def _in_words(change: SchemaChange) -> list[str]:
    parts = [*parts_in_words(change), *change.notes]
    return parts or [f"{change.tag}: nothing to do at the Subscribers"]
