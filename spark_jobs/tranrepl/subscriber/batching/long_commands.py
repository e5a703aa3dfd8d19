"""Commands whose values are longer than a buffer takes, here or at a Subscriber."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import pyarrow as pa

from tranrepl.errors import ErrorKind, ErrorReport
from tranrepl.subscriber.batching.commit_batches import weights_of

Made = TypeVar("Made")
LIMIT_EXCEEDED: Final = "54000"
"""What PostgreSQL says of a message or line of more than 1 GB."""
REMEDY: Final = (
    "shorten the value at the Publisher, or leave its column out (`columns` of the article); `tranrepl skip FILE` "
    "skips the transaction, and `tranrepl reinitialize FILE -s NAME --article ARTICLE` reinitializes the article"
)
_LONG = 512 * 1024 * 1024


def unless_too_long(commands: pa.Table, make: Callable[[], Made]) -> Made | None:
    """Return what `make` makes of commands; None where they are more than Arrow's arrays of 32-bit offsets hold."""
    try:
        return make()
    except (pa.ArrowInvalid, pa.ArrowCapacityError):
        if commands.nbytes < _LONG:
            raise
        return None


def longest_command(commands: pa.Table) -> int:
    """Return the longest command's place."""
    return int(weights_of(commands).argmax())


def too_long(where: str) -> ErrorReport:
    return ErrorReport(
        kind=ErrorKind.DATA,
        message=f"{where}: the values of a command are longer than any buffer",
        database_code=LIMIT_EXCEEDED,
        remedy=REMEDY,
    )
