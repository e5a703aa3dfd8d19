"""A change that cannot become a command: reading ends before its transaction."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tranrepl.errors import ConfigurationError, DataError, ReplicationError
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.commands import FIRST_XACT_SEQNO
from tranrepl.model.position import Position, Positions
from tranrepl.publisher.changes import NOT_IN_LOG, Cells, Changes, ChangeSet, RefusedChange

_LONG_ROW = 256 * 1024 * 1024


def refuse_left_out(changes: ChangeSet, image: Cells, positions: Sequence[int]) -> None:
    """Raise RefusedChange where a value that is needed is not in the log; `image` holds the columns at `positions`. The
    Publisher knows the remedy (`LogRange.old_rows_remedy`)."""
    left_out = image.lengths == NOT_IN_LOG
    if not left_out.any():
        return
    article = changes.article
    names = ", ".join(article.columns[positions[at]].name for at in np.flatnonzero(left_out.any(axis=0)).tolist())
    error = DataError(
        f"article {article.source}: the log does not have the values of {names}, which must be sent",
        article=str(article.source),
    )
    raise RefusedChange(int(changes.places[left_out.any(axis=1)][0]), error, lacks_old_row=True)


def refused_truncate(article: RegisteredArticle) -> ReplicationError:
    return ConfigurationError(
        f"article {article.source}: the table was truncated, and its settings have truncate: error (error 4711)",
        remedy="set truncate: replicate or ignore and run `tranrepl setup FILE`; with ignore, the Subscriber keeps its "
        "rows",
        article=str(article.source),
    )


def refused_length(changes: Changes, positions: Positions) -> RefusedChange | None:
    """Return the refusal of the longest row among changes whose text no buffer takes; None where no row is long."""
    longest, found = _LONG_ROW, None
    for it in changes.sets:
        for image in (it.before, it.after):
            if image is None or not len(it.places):
                continue
            lengths = np.maximum(image.lengths, 0).sum(axis=1)
            row = int(lengths.argmax())
            if lengths[row] > longest:
                longest, found = int(lengths[row]), (it, image, row)
    if found is None:
        return None
    changed, image, row = found
    article, place = changed.article, int(changed.places[row])
    transaction = int(changes.transactions.of(changed.places[row : row + 1])[0])
    seqno = changes.transactions.xact_seqno(transaction) or FIRST_XACT_SEQNO
    key = _key_text(changes, article, image, row)
    error = DataError(
        f"article {article.source}: transaction {positions.text(Position(seqno))}: the values of row {key} are too "
        "long to be stored: as one line of text they come to more than 2 GB. Everything committed before that is "
        "stored; nothing after it is read",
        remedy="leave the column out (`columns` of the article), and reinitialize after this transaction, with "
        "`tranrepl reinitialize FILE`",
        database_code="54000",
        xact_seqno=seqno.hex(),
        article=str(article.source),
        key=key,
    )
    return RefusedChange(place, error)


def _key_text(changes: Changes, article: RegisteredArticle, image: Cells, row: int) -> str:
    texts = []
    for at in article.key_positions:
        start, length = int(image.starts[row, at]), max(int(image.lengths[row, at]), 0)
        value = changes.buffer.bytes[start : start + length].tobytes().decode(errors="replace")
        texts.append(f"{article.columns[at].name} = {value}")
    return ", ".join(texts)
