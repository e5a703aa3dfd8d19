"""Schema changes and scripts in the order of their commands, and which subscriptions have them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from tranrepl.distributor.monitoring.publication import MonitoredRecord, seqno_text
from tranrepl.distributor.monitoring.watermarks import known_watermarks
from tranrepl.distributor.tables import msschema_changes
from tranrepl.model.schema_change import ColumnAction, ColumnChange, SchemaChange


@dataclass(frozen=True, slots=True)
class StandingChange:
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


def newest_changes(connection: sa.Connection, record: MonitoredRecord, count: int) -> Sequence[StandingChange]:
    """Return the newest schema changes and scripts, in the order of their commands."""
    changes = msschema_changes.c
    query = (
        sa.select(changes.xact_seqno, changes.command_id, changes.change, changes.entry_time)
        .where(changes.publication_id == record.publication_id)
        .order_by(changes.xact_seqno.desc(), changes.command_id.desc())
        .limit(count)
    )
    rows = connection.execute(query).all()
    marks = known_watermarks(connection, record)
    reached = {it.subscription: marks[number].xact_seqno for number, it in record.subscriptions.items()}
    return [_change(row, reached) for row in reversed(rows)]


def _change(row: sa.Row[Any], reached: dict[str, bytes]) -> StandingChange:
    script = row.change.get("script")
    change = SchemaChange.model_validate(row.change) if script is None else None
    seqno = bytes(row.xact_seqno)
    return StandingChange(
        xact_seqno=seqno_text(seqno) or "",
        command_id=row.command_id,
        time=row.entry_time,
        article=None if change is None else str(change.source),
        what=[f"script {script}"] if change is None else list(_in_words(change)),
        delivered=[name for name, watermark in reached.items() if watermark >= seqno],
        waits_for=[name for name, watermark in reached.items() if watermark < seqno],
    )


def _in_words(change: SchemaChange) -> Iterator[str]:
    if change.new_article_id is None:
        yield f"{change.tag}: the article ends"
    for column in change.columns:
        yield _column_in_words(column)
    for label in change.labels:
        yield label.in_words()
    for partition in change.partitions:
        new = "" if partition.new_name is None else f" to {partition.new_name}"
        yield f"{partition.action} partition {partition.table}{new}"
    if change.rows_unknown is not None:
        yield f"rows not known: {change.rows_unknown}"
    yield from change.notes
    if not change.changes_destination and change.new_article_id and not (change.notes or change.rows_unknown):
        yield f"{change.tag}: nothing to do at the Subscribers"


def _column_in_words(column: ColumnChange) -> str:
    if column.action is ColumnAction.RENAME:
        return f"rename column {column.column} to {column.new_name}"
    if column.action is ColumnAction.DROP_NOT_NULL:
        return f"column {column.column}: drop not null"
    type_name = f" {column.type_name}" if column.type_name else ""
    return f"{column.action} column {column.column}{type_name}"
