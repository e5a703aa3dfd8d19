"""Stored batches as if they had been read otherwise: a few transactions at a time, or committed at another time."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.observed import distribution_rows, stored_commands
from support.site import Site
from tranrepl.admin.cleanup import clean_up
from tranrepl.distributor import cleanup
from tranrepl.distributor.cleanup import Cleanup
from tranrepl.distributor.command_file import write_commands
from tranrepl.distributor.command_store import CommandStore
from tranrepl.model.command_rows import ROW_LAYOUT, xact_seqno_numbers

_ROW = """
INSERT INTO msrepl_batches (publication_id, folder, first_xact_seqno, last_xact_seqno, first_commit_time,
    last_commit_time, transactions, commands, log_bytes)
SELECT publication_id, %s, %s, %s, %s, %s, %s, %s, %s FROM mspublications
"""


def store_in_small_batches(site: Site, transactions: int = 1) -> int:
    """Store what is registered in batches of so many transactions each, and return how many there are then. Jobs know
    of those alone."""
    store = site.topology.store()
    rows = distribution_rows(site, "SELECT folder FROM msrepl_batches ORDER BY first_xact_seqno")
    folders = [str(folder) for (folder,) in rows]
    tables = [pq.read_table(pa.BufferReader(store.read(folder))) for folder in folders]
    batches = _cut(pa.concat_tables([ROW_LAYOUT.empty_table(), *tables]), transactions)
    with psycopg.connect(**site.databases.distribution.libpq_parameters("test")) as session:  # type: ignore[arg-type]
        session.execute("DELETE FROM msrepl_batches")
        session.cursor().executemany(_ROW, [_stored(store, batch) for batch in batches])
    store.remove(folders)
    return len(batches)


def _cut(commands: pa.Table, transactions: int) -> list[pa.RecordBatch]:
    (whole,) = commands.combine_chunks().to_batches()
    seqnos = xact_seqno_numbers(whole["xact_seqno"])
    starts = [0, *(at for at in range(1, len(seqnos)) if seqnos[at] != seqnos[at - 1]), len(seqnos)]
    cuts = [*starts[:-1:transactions], len(seqnos)]
    return [whole.slice(start, end - start) for start, end in pairwise(cuts)]


def _stored(store: CommandStore, commands: pa.RecordBatch) -> tuple[object, ...]:
    """Write a batch and return what is registered of it."""
    folder = write_commands(store, [commands])
    seqnos, times = commands["xact_seqno"].to_pylist(), commands["commit_time"].to_pylist()
    return folder, seqnos[0], seqnos[-1], min(times), max(times), len(set(seqnos)), len(commands), 100 * len(commands)


def clean_up_at_once(site: Site) -> Cleanup:
    """Clean up as if what is no batch had been found long ago."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cleanup, "ORPHAN_AGE", timedelta(0))
        return clean_up(site.topology)


def stored_folders(site: Site) -> set[str]:
    """Return the folders that are in the store."""
    return {it.name for it in site.topology.store().folders()}


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
