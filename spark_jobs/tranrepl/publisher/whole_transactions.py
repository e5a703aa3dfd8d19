"""Messages cut at the ends of transactions, as far as memory allows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

HELD_BYTES = 8 * 1024 * 1024


def whole_transactions(
    batches: Iterable[pa.BinaryArray], most_bytes: int | None = HELD_BYTES, least_bytes: int = 0
) -> Iterator[pa.BinaryArray]:
    """The same `pgoutput` messages, each batch ending with a transaction; all but the last of `least_bytes` or more.

    A transaction of more than `most_bytes` comes in several batches, and what waited before it goes out as it is; None
    holds every transaction, however large.
    """
    whole: list[pa.BinaryArray] = []
    begun: list[pa.BinaryArray] = []
    for batch in batches:
        end = _end_of_last_commit(batch)
        if end:
            whole += [*begun, batch.slice(0, end)]
            begun = []
        if end < len(batch):
            begun.append(batch.slice(end))
        too_large = most_bytes is not None and _bytes_in(begun) > most_bytes
        if whole and (too_large or _bytes_in(whole) >= least_bytes):
            yield _together(whole)
            whole = []
        if too_large:
            yield _together(begun)
            begun = []
    for rest in (whole, begun):
        if rest:
            yield _together(rest)


def _end_of_last_commit(batch: pa.BinaryArray) -> int:
    """How many messages there are up to and with the last Commit; 0 where there is none."""
    if len(batch) == 0:
        return 0
    starts = np.frombuffer(batch.buffers()[1], dtype=np.int32)[batch.offset : batch.offset + len(batch)]
    kinds = np.frombuffer(batch.buffers()[2], dtype=np.uint8)[starts]
    commits = np.flatnonzero(kinds == ord("C"))
    return int(commits[-1]) + 1 if len(commits) else 0


def _bytes_in(arrays: list[pa.BinaryArray]) -> int:
    return sum(it.nbytes for it in arrays)


def _together(arrays: list[pa.BinaryArray]) -> pa.BinaryArray:
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
