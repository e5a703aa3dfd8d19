"""Text of a PostgreSQL database whose encoding is SQL_ASCII: any bytes, which the server neither converts nor checks
where a session asks for the same; and the first change whose text cannot be read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from tranrepl.errors import DataError
from tranrepl.model.article import RegisteredArticle
from tranrepl.postgres.session import Session
from tranrepl.publisher.changes import Buffer, Cells, Changes, ChangeSet, RefusedChange

SQL_ASCII = "SQL_ASCII"
AS_IT_IS = (
    f"SELECT pg_catalog.set_config('client_encoding', '{SQL_ASCII}', false) "
    f"WHERE pg_catalog.current_setting('server_encoding') = '{SQL_ASCII}'"
)
"""The client encoding of a session that reads such text unchecked: a server that checks it names neither table nor
key."""

_NOT_IN_REPERTOIRE = "22021"


def is_unconverted(session: Session) -> bool:
    """Return whether the server does not know the encoding of its text."""
    return session.info.parameter_status("server_encoding") == SQL_ASCII


def no_utf8(article: RegisteredArticle, column: str, key: Sequence[bytes]) -> DataError:
    """Return the error of a value that is no UTF-8, in the row of this key."""
    names = [article.columns[at].name for at in article.key_positions]
    shown = [value.decode(errors="backslashreplace") for value in key]
    where = ", ".join(f"{name} = {value}" for name, value in zip(names, shown, strict=True))
    return DataError(
        f"article {article.source}: column {column} holds bytes that are no UTF-8 ({where}): the Publisher's database "
        f"is {SQL_ASCII}, which takes any",
        database_code=_NOT_IN_REPERTOIRE,
        remedy=f"UPDATE {article.source} so that {column} is UTF-8 there. The log still has the value, which cannot "
        "be read: then reinitialize after it, with `tranrepl reinitialize FILE`",
        article=str(article.source),
        key=where,
    )


def refuse_unreadable_lines(article: RegisteredArticle, lines: bytes) -> None:
    """Check whole rows in COPY's text form. Raises DataError at the first that is no UTF-8."""
    try:
        lines.decode()
    except UnicodeDecodeError as error:
        begin = lines.rfind(b"\n", 0, error.start) + 1
        cells = lines[begin : lines.find(b"\n", error.start)].split(b"\t")
        column = article.columns[lines.count(b"\t", begin, error.start)].name
        raise no_utf8(article, column, [cells[at] for at in article.key_positions]) from None


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
