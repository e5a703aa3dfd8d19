"""Values of a Publisher that does not know the encoding of its text: what is no UTF-8 is refused, by table and key."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from tranrepl.errors import DataError
from tranrepl.publisher.changes import Buffer, Cells, Changes, ChangeSet, RefusedChange
from tranrepl.publisher.postgres.unconverted_text import no_utf8


def first_unreadable(changes: Changes) -> RefusedChange | None:
    """Return the first change with such a value in a published column."""
    return min(_refused(changes), key=lambda it: it.place, default=None)


def _refused(changes: Changes) -> Iterator[RefusedChange]:
    """Yield the refusal of the first unreadable text of each image of each set."""
    for it in changes.sets:
        for image in (it.before, it.after):
            at = None if image is None else _first_unreadable(changes.buffer, image)
            if image is not None and at is not None:
                row, column = divmod(at, image.starts.shape[1])
                yield RefusedChange(int(it.places[row]), _error(changes.buffer, it, image, row, column))


def _first_unreadable(buffer: Buffer, image: Cells) -> int | None:
    """Return the index of the first unreadable cell, counted row by row."""
    texts = buffer.strings(image.starts.ravel(), image.lengths.ravel())
    if _is_readable(texts):
        return None
    first, end = 0, len(texts)
    while end - first > 1:
        middle = (first + end) // 2
        first, end = (middle, end) if _is_readable(texts.slice(first, middle - first)) else (first, middle)
    return first


def _is_readable(texts: pa.StringArray) -> bool:
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _error(buffer: Buffer, changes: ChangeSet, image: Cells, row: int, column: int) -> DataError:
    article = changes.article
    values = [_bytes(buffer, image, row, at) for at in article.key_positions]
    return no_utf8(article, article.columns[column].name, values)


def _bytes(buffer: Buffer, image: Cells, row: int, column: int) -> bytes:
    start, length = int(image.starts[row, column]), max(0, int(image.lengths[row, column]))
    return np.ascontiguousarray(buffer.bytes[start : start + length]).tobytes()
