"""Messages cut at the ends of transactions, as far as memory allows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

HELD_BYTES = 8 * 1024 * 1024


def whole_transactions(
    batches: Iterable[pa.BinaryArray], most_bytes: int | None = HELD_BYTES
) -> Iterator[pa.BinaryArray]:
    """The same `pgoutput` messages, each batch ending with a transaction.

    A transaction of more than `most_bytes` comes in several batches; None holds every transaction, however large.
    """
    held: list[pa.BinaryArray] = []
    for batch in batches:
        end = _end_of_last_commit(batch)
        if end:
            yield _together([*held, batch.slice(0, end)])
            held = []
        if end < len(batch):
            held.append(batch.slice(end))
        if most_bytes is not None and sum(it.nbytes for it in held) > most_bytes:
            yield _together(held)
            held = []
    if held:
        yield _together(held)


def _end_of_last_commit(batch: pa.BinaryArray) -> int:
    """How many messages there are up to and with the last Commit; 0 where there is none."""
    if len(batch) == 0:
        return 0
    starts = np.frombuffer(batch.buffers()[1], dtype=np.int32)[batch.offset : batch.offset + len(batch)]
    kinds = np.frombuffer(batch.buffers()[2], dtype=np.uint8)[starts]
    commits = np.flatnonzero(kinds == ord("C"))
    return int(commits[-1]) + 1 if len(commits) else 0


def _together(arrays: list[pa.BinaryArray]) -> pa.BinaryArray:
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
