"""Ranges of keys that an interrupted snapshot has copied, brought to the point of the snapshot that copies the others.

A row is the same at both points where no command between them has its key. The others are deleted, and loaded as the
later snapshot shows them, in one transaction with the point: all rows that are loaded are of one point at any time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from tranrepl.distribution.opening import OpenDistribution
from tranrepl.distributor.database import DistributionDatabase
from tranrepl.distributor.stored_commands import scan_batch
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.commands import Operation
from tranrepl.model.position import Position
from tranrepl.model.row_images import NULL, cells, image_lines, values
from tranrepl.printable import counted
from tranrepl.publisher.snapshot import Snapshot, SnapshotSession
from tranrepl.snapshot.opening import OpenSnapshot
from tranrepl.subscriber.registry import dialect_of
from tranrepl.subscriber.snapshot import CopiedArticle

_ROWS = (Operation.INSERT, Operation.UPDATE, Operation.DELETE)
_FIRST_KEYS_TOGETHER, _KEYS_TOGETHER, _BYTES_TOGETHER = 10, 500, 8 * 1024 * 1024
_FEW_KEYS, _MOST_KEYS, _SHARE = 10_000, 5_000_000, 20
"""A table is copied again where more keys than the few have changed, and more than the most or than one in so many of
the rows that were copied: each is read by itself."""
ReadLogPast = Callable[[DistributionDatabase, Position], None]
"""Reads the log until all before a position is registered."""


@dataclass(frozen=True, slots=True)
class ChangedSince:
    """An article of which ranges are brought forward."""

    bounds: Sequence[int]
    """Where its ranges begin, as `publisher.snapshot.key_ranges` takes them."""
    keys: pa.StringArray
    """Which rows were changed since, each key a line of its values."""


def changed_since(
    plan: OpenSnapshot,
    partly: Mapping[str, CopiedArticle],
    exported: Snapshot,
    read_log_past: ReadLogPast | None,
    say: Callable[[str], None],
) -> dict[str, ChangedSince]:
    """Return by name those of the articles that were copied in part of which rows were changed since, and nothing else
    was done. The log is read as far as the snapshot that goes on."""
    if not partly or read_log_past is None:
        return {}
    opened, found = plan.opened, dict[str, ChangedSince]()
    say("The log is read up to where this snapshot begins.")
    read_log_past(opened.database, exported.position)
    for it in (it for it in plan.articles if it.name in partly):
        copied = partly[it.name]
        most = max(_FEW_KEYS, min(_MOST_KEYS, copied.rows // _SHARE))
        keys = _changed_keys(opened, it.article, copied.xact_seqno, exported.xact_seqno, most)
        if keys is None:
            say(f"article {it.name}: copied again: its table was truncated or altered since an interrupted snapshot")
        elif len(keys) > most:
            many = counted(most, "row")
            say(f"article {it.name}: copied again: more than {many} changed since an interrupted snapshot")
        else:
            say(f"article {it.name}: {counted(len(keys), 'row')} changed since an interrupted snapshot")
            found[it.name] = ChangedSince(copied.bounds or (), keys)
    return found


def bring_forward(
    plan: OpenSnapshot,
    changed: Mapping[str, ChangedSince],
    snapshot: str,
    xact_seqno: bytes,
    holder: SnapshotSession,
) -> None:
    """Let the ranges that are copied of these articles show what `holder` does, up to a transaction. The distribution
    database keeps the commands before it until then."""
    opened, numbers = plan.opened, defaultdict[str, set[int]](set)
    for part in plan.target.loaded(snapshot) if changed else ():
        numbers[part.article].add(part.number)
    for it in (it for it in plan.articles if it.name in changed):
        rows = _rows_as_shown(holder, it.article, changed[it.name], numbers[it.name])
        dialect = dialect_of(opened.connection)
        with dialect.loader(opened.connection, opened.key, snapshot, plan.options) as loader:
            loader.replace(it.article, xact_seqno, changed[it.name].keys, rows)
        opened.database.snapshots.record_start(opened.subscription, [it.name], xact_seqno)


def _changed_keys(
    opened: OpenDistribution, article: RegisteredArticle, after: bytes, last: bytes, most: int
) -> pa.StringArray | None:
    """Return the keys, each a line of its values, of an article's commands after one transaction and up to another, by
    which all are registered; where there are more than `most`, some of them. None where commands do more than change
    rows, or do not have their keys."""
    chosen = (
        (pc.field("article_id") == pa.scalar(article.article_id, pa.int32()))
        & (pc.field("xact_seqno") > pa.scalar(after, pa.binary()))
        & (pc.field("xact_seqno") <= pa.scalar(last, pa.binary()))
    )
    found: list[pa.StringArray] = []
    for batch in opened.database.batches.after(opened.record, after):
        for rows in scan_batch(opened.record, batch, chosen, ["operation", "before", "after"]):
            keys = _keys(article, rows)
            if keys is None:
                return None
            found += keys
            if sum(map(len, found)) > 2 * most:
                found = [pc.unique(pa.chunked_array(found, pa.string()))]
                if len(found[0]) > most:
                    return found[0]
    return pc.unique(pa.chunked_array(found, pa.string()))


def _keys(article: RegisteredArticle, rows: pa.Table) -> list[pa.StringArray] | None:
    found: list[pa.StringArray] = []
    for operation in map(Operation, pc.unique(rows["operation"]).to_pylist()):
        some = rows.filter(pc.equal(rows["operation"], pa.scalar(int(operation), pa.int8())))
        if operation not in _ROWS:
            return None
        old = None if operation is Operation.INSERT else _key_cells(article, some["before"])
        new = None if operation is Operation.DELETE else _key_cells(article, some["after"])
        if old is not None and new is not None:
            # Of an UPDATE, unchanged values need not travel.
            new = [pc.if_else(pc.equal(now, NULL), then, now) for then, now in zip(old, new, strict=True)]
        found += [pc.binary_join_element_wise(*key, "\t") for key in (old, new) if key is not None]
        if any(pc.any(pc.equal(it, NULL)).as_py() for key in (old, new) if key is not None for it in key):
            return None
    return found


def _key_cells(article: RegisteredArticle, images: pa.ChunkedArray) -> list[pa.StringArray]:
    rows = cells(images.combine_chunks())
    return [pc.list_element(rows, at) for at in article.key_positions]


def _rows_as_shown(
    session: SnapshotSession, article: RegisteredArticle, changed: ChangedSince, loaded: set[int]
) -> Iterator[bytes]:
    """Yield the rows that the snapshot shows with the changed keys in the ranges that are loaded, by number, as
    `SnapshotSession.lines` does."""
    first, together = 0, _FIRST_KEYS_TOGETHER
    while first < len(changed.keys):
        some = [values(it) for it in changed.keys.slice(first, together).to_pylist()]
        # Bounds begin the ranges after the first.
        some = [it for it in some if bisect_right(changed.bounds, Decimal(it[0] or 0)) + 1 in loaded]
        rows = session.rows_of_keys(article, some) if some else {}
        lines = "".join(f"{it}\n" for it in image_lines(list(rows.values())).to_pylist()).encode()
        yield lines
        first += together
        # Rows may be of many megabytes each.
        together = max(1, min(_KEYS_TOGETHER, together * _BYTES_TOGETHER // max(1, len(lines))))
