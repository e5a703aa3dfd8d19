"""Messages cut at the ends of transactions, as far as memory allows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

HELD_BYTES = 8 * 1024 * 1024
_LARGEST_ARRAY = 2**31 - 1


def whole_transactions(
    batches: Iterable[pa.BinaryArray], most_bytes: int = HELD_BYTES, least_bytes: int = 0
) -> Iterator[pa.BinaryArray]:
    """Yield the same `pgoutput` messages, each batch ending with a transaction; all but the last of `least_bytes` or
    more. A transaction of more than `most_bytes` comes in several batches, and what waited before it goes out as it
    is."""
    whole: list[pa.BinaryArray] = []
    begun: list[pa.BinaryArray] = []
    for batch in batches:
        end = _end_of_last_commit(batch)
        if end:
            whole += [*begun, batch.slice(0, end)]
            begun = []
        if end < len(batch):
            begun.append(batch.slice(end))
        too_large = _bytes_in(begun) > most_bytes
        if whole and (too_large or _bytes_in(whole) >= least_bytes):
            yield from _together(whole)
            whole = []
        if too_large:
            yield from _together(begun)
            begun = []
    yield from _together(whole)
    yield from _together(begun)


def _end_of_last_commit(batch: pa.BinaryArray) -> int:
    """Return how many messages there are up to and with the last Commit; 0 where there is none."""
    if len(batch) == 0:
        return 0
    starts = np.frombuffer(batch.buffers()[1], dtype=np.int32)[batch.offset : batch.offset + len(batch)]
    commits = np.flatnonzero(np.frombuffer(batch.buffers()[2], dtype=np.uint8)[starts] == ord("C"))
    return int(commits[-1]) + 1 if len(commits) else 0


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
