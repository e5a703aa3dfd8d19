"""Messages cut at the ends of transactions, as far as memory allows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tranrepl.publisher.postgres.message_secret import MessageKind

Bools = npt.NDArray[np.bool_]
Tables = npt.NDArray[np.int64]
"""Object ids of tables."""

HELD_BYTES = 8 * 1024 * 1024
MOST_HELD_BYTES = 960 * 1024 * 1024
"""The most of a transaction that must be held: with a message of 1 GB more, it still is one array."""
_LARGEST_ARRAY = 2**31 - 1
_DIVIDING_PREFIXES = (MessageKind.SCHEMA.value, MessageKind.SCRIPT.value)
_PREFIX_AT = 10
_ABOUT_A_TABLE = np.frombuffer(b"IUDR", dtype=np.uint8)
_BIG_ENDIAN = 1 << np.array([24, 16, 8, 0])


class HeldTooLongError(Exception):
    """One transaction changes more rows of tables with DEFERRABLE keys than can be held."""


def whole_transactions(
    batches: Iterable[pa.BinaryArray],
    most_bytes: int = HELD_BYTES,
    least_bytes: int = 0,
    held_tables: Callable[[], Collection[int]] = tuple,
) -> Iterator[pa.BinaryArray]:
    """Yield the same `pgoutput` messages, each batch ending with a transaction; all but the last of `least_bytes` or
    more.

    A transaction of more than `most_bytes` comes in several batches, and what waited before it goes out as it is. One
    that changes `held_tables` (object ids) is held until its end; of more than `MOST_HELD_BYTES`, other tables' changes
    go out before. Raises HeldTooLongError where that is not enough. Which tables those are is asked again once all
    before a transaction that is cut, and up to the last schema change in it, has gone out: schema changes say it.
    """
    held = _sorted(held_tables())
    whole: list[pa.BinaryArray] = []
    begun: list[pa.BinaryArray] = []
    holding = False
    for batch in batches:
        end = _end_of_last_commit(batch)
        if end:
            if holding and _bytes_in(begun) + batch.nbytes > _LARGEST_ARRAY:
                yield from _together([*whole, *_parted(begun, held)[0]])
                raise HeldTooLongError
            whole += [*begun, batch.slice(0, end)]
            begun, holding = [], False
        if end < len(batch):
            begun.append(batch.slice(end))
            holding = holding or _changes(begun[-1], held)
        too_large = _is_too_large(begun, most_bytes, holding=holding)
        if whole and (too_large or _bytes_in(whole) >= least_bytes):
            yield from _together(whole)
            whole = []
        if too_large:
            going, begun = _parted_at_schema_change(begun)
            yield from _together(going)
            held = _sorted(held_tables())
            holding = any(_changes(it, held) for it in begun)
        if too_large and _is_too_large(begun, most_bytes, holding=holding):
            going, begun = _parted(begun, held) if holding else (begun, [])
            yield from _together(going)
            if _bytes_in(begun) > MOST_HELD_BYTES:
                raise HeldTooLongError
    yield from _together(whole)
    yield from _together(begun)


def _sorted(tables: Collection[int]) -> Tables:
    return np.array(sorted(tables), dtype=np.int64)


def _is_too_large(begun: list[pa.BinaryArray], most_bytes: int, *, holding: bool) -> bool:
    return _bytes_in(begun) > (MOST_HELD_BYTES if holding else most_bytes)


def _end_of_last_commit(batch: pa.BinaryArray) -> int:
    """Return how many messages there are up to and with the last Commit; 0 where there is none."""
    if len(batch) == 0:
        return 0
    commits = np.flatnonzero(_kinds(batch) == ord("C"))
    return int(commits[-1]) + 1 if len(commits) else 0


def _starts(batch: pa.BinaryArray) -> npt.NDArray[np.int32]:
    return np.frombuffer(batch.buffers()[1], dtype=np.int32)[batch.offset : batch.offset + len(batch)]


def _kinds(batch: pa.BinaryArray) -> npt.NDArray[np.uint8]:
    return np.frombuffer(batch.buffers()[2], dtype=np.uint8)[_starts(batch)]


def _changes(batch: pa.BinaryArray, tables: Tables) -> bool:
    return len(tables) > 0 and bool(_of_tables(batch, tables).any() or _truncated(batch, tables))


def _of_tables(batch: pa.BinaryArray, tables: Tables) -> Bools:
    """Return which messages are about these tables, but for TRUNCATEs, which may be about others too; shape
    (messages,)."""
    starts, data = _starts(batch), np.frombuffer(batch.buffers()[2], dtype=np.uint8)
    found = np.zeros(len(batch), dtype=np.bool_)
    rows = np.flatnonzero(np.isin(data[starts], _ABOUT_A_TABLE))
    object_ids = data[starts[rows][:, None] + np.arange(1, 5)].astype(np.int64) @ _BIG_ENDIAN
    found[rows] = np.isin(object_ids, tables)
    return found


def _truncated(batch: pa.BinaryArray, tables: Tables) -> int:
    """Return how many messages there are up to and with the last TRUNCATE of one of these tables; 0 where there is
    none."""
    for place in reversed(np.flatnonzero(_kinds(batch) == ord("T")).tolist()):
        named = np.frombuffer(batch[place].as_py()[6:], dtype=">u4")
        if np.isin(named, tables).any():
            return int(place) + 1
    return 0


def _schema_messages(batch: pa.BinaryArray) -> int:
    """Return how many messages there are up to and with the last one of a schema change or script; 0 where there is
    none."""
    places = np.flatnonzero(_kinds(batch) == ord("M")).tolist()
    ours = [place for place in places if batch[place].as_py()[_PREFIX_AT:].startswith(_DIVIDING_PREFIXES)]
    return int(ours[-1]) + 1 if ours else 0


def _parted_at_schema_change(batches: list[pa.BinaryArray]) -> tuple[list[pa.BinaryArray], list[pa.BinaryArray]]:
    """Return what there is up to and with the last schema change or script, and what follows it."""
    going: list[pa.BinaryArray] = []
    kept: list[pa.BinaryArray] = []
    for batch in batches:
        end = _schema_messages(batch)
        going += [*kept, batch.slice(0, end)] if end else []
        kept = [*([] if end else kept), batch.slice(end)]
    return going, [it for it in kept if len(it)]


def _parted(batches: list[pa.BinaryArray], tables: Tables) -> tuple[list[pa.BinaryArray], list[pa.BinaryArray]]:
    """Return what goes out, and what is held. A TRUNCATE ends what was held until then: no value stands twice beyond
    it. So does a schema change: what follows it is of another definition. And a script sees what came before it."""
    going: list[pa.BinaryArray] = []
    kept: list[pa.BinaryArray] = []
    for batch in batches:
        end = max(_truncated(batch, tables), _schema_messages(batch)) if len(tables) else 0
        going += [*kept, batch.slice(0, end)] if end else []
        kept = [] if end else kept
        rest = batch.slice(end)
        chosen = pa.array(_of_tables(rest, tables)) if len(rest) else pa.array([], pa.bool_())
        going.append(rest.filter(pc.invert(chosen)))
        kept.append(rest.filter(chosen))
    return [it for it in going if len(it)], [it for it in kept if len(it)]


def _bytes_in(arrays: list[pa.BinaryArray]) -> int:
    return sum(it.nbytes for it in arrays)


def _together(arrays: list[pa.BinaryArray]) -> Iterator[pa.BinaryArray]:
    """Join arrays to one; to several where one does not hold as much."""
    part: list[pa.BinaryArray] = []
    for it in arrays:
        if part and _bytes_in(part) + it.nbytes > _LARGEST_ARRAY:
            yield _one(part)
            part = []
        part.append(it)
    if part:
        yield _one(part)


def _one(arrays: list[pa.BinaryArray]) -> pa.BinaryArray:
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
