"""Commands, one by one, as a database takes them that has no way of its own to load many."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from tranrepl.model.call_syntax import Image
from tranrepl.model.commands import Operation
from tranrepl.model.row_images import values

Cells = list[str | None]


@dataclass(frozen=True, slots=True)
class Command:
    """One row of the layout. Images are values in text form by published column; what does not travel is None."""

    xact_seqno: bytes
    command_id: int
    article_id: int
    operation: Operation
    before: Cells
    after: Cells
    changed: bytes | None

    def value(self, image: Image, position: int) -> str | None:
        """Return the value at this position of an image; None for values at its end that do not travel and may be left
        off."""
        cells = self.before if image is Image.BEFORE else self.after
        return cells[position] if position < len(cells) else None


def command_rows(commands: pa.Table) -> Iterator[Command]:
    """Yield the commands of a table in the row layout, in its order."""
    names = ("xact_seqno", "command_id", "article_id", "operation", "before", "after", "changed")
    columns = (commands[name].to_pylist() for name in names)
    for xact_seqno, command_id, article_id, operation, before, after, changed in zip(*columns, strict=True):
        yield Command(
            xact_seqno,
            command_id,
            article_id,
            Operation(operation),
            [] if before is None else values(before),
            [] if after is None else values(after),
            changed,
        )
