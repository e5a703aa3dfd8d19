"""Stored transactions whose commits were in another time, as if the log had been read then."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from support.observed import distribution_rows, stored_commands
from support.site import Site


def move_commits(site: Site, minute: datetime, interval: timedelta) -> list[int]:
    """Move the stored transactions into the minute's first three intervals; return how many each has."""
    store = Path(site.publication.distributor.store)
    (file,) = store.glob("*/part-0.parquet")
    commands = pq.read_table(file)
    seqnos = sorted(set(commands["xact_seqno"].to_pylist()))
    seconds = {seqno: 1 + 28 * number // len(seqnos) for number, seqno in enumerate(seqnos)}
    field = commands.schema.field("commit_time")
    times = [minute + timedelta(seconds=seconds[it]) for it in commands["xact_seqno"].to_pylist()]
    column = pa.array(times, pa.timestamp("us", tz="UTC")).cast(field.type)
    pq.write_table(commands.set_column(commands.schema.get_field_index("commit_time"), field, column), file)
    distribution_rows(
        site,
        f"UPDATE msrepl_batches SET first_commit_time = '{minute + timedelta(seconds=1)}', "
        f"last_commit_time = '{minute + timedelta(seconds=max(seconds.values()))}'",
    )
    moved = {it.xact_seqno: it.commit_time for it in stored_commands(site)}
    counted = Counter(int((time - minute) / interval) for time in moved.values())
    return [counted[number] for number in range(3)]
