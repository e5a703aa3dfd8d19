"""The backlog since each subscription's last run: what is registered and lies after its watermark, moment by moment."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import sqlalchemy as sa

from tranrepl.distributor.database.watermarks import KnownWatermark, known_watermarks
from tranrepl.distributor.monitoring.period import Period
from tranrepl.distributor.monitoring.publication import MonitoredRecord
from tranrepl.distributor.tables import msrepl_batches, mssubscriptions


def backlog_since_last_run(
    connection: sa.Connection, record: MonitoredRecord, period: Period, chosen: Sequence[int]
) -> Sequence[int | None]:
    """Return the largest backlog at the end of each part: None before the last run of all chosen subscriptions, for
    what lay before them then is not known any more.

    The batch that a watermark is inside of counts as a whole.
    """
    known = known_watermarks(connection, mssubscriptions.c.publication_id == record.publication_id)
    marks = {number: known[number] for number in chosen}
    registered = _registered(connection, record, period, marks) if marks else {}
    largest: list[int | None] = [None] * period.parts
    for number, mark in marks.items():
        begin = -1 if mark.time is None else period.part_of(mark.time)
        mine = registered.get(number, {})
        undelivered = 0
        for at in range(-1, period.parts):
            undelivered += mine.get(at, 0)
            if at >= max(begin, 0):
                largest[at] = max(undelivered, largest[at] or 0)
    return largest


def _registered(
    connection: sa.Connection, record: MonitoredRecord, period: Period, marks: Mapping[int, KnownWatermark]
) -> Mapping[int, Mapping[int, int]]:
    """Return the commands after each watermark that were registered in each part, by subscription."""
    batches = msrepl_batches.c
    after = sa.values(
        sa.column("subscription_id", sa.Integer), sa.column("watermark", sa.LargeBinary), name="after"
    ).data([(number, mark.xact_seqno) for number, mark in marks.items()])
    part = period.part_of_column(batches.entry_time).label("part")
    commands = sa.cast(sa.func.sum(batches.commands), sa.BigInteger).label("commands")
    query = (
        sa.select(after.c.subscription_id, part, commands)
        .select_from(after.join(msrepl_batches, batches.last_xact_seqno > after.c.watermark))
        .where(batches.publication_id == record.publication_id)
        .group_by(after.c.subscription_id, part)
    )
    found: dict[int, dict[int, int]] = defaultdict(dict)
    for row in connection.execute(query):
        found[row.subscription_id][row.part] = row.commands
    return found
