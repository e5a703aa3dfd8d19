"""Folded commands applied in bulk at a MariaDB or MySQL Subscriber.

Values travel in INSERTs of many rows, into the table itself or a temporary one: strict, as the statement for one row
is. `LOAD DATA LOCAL` cuts and skips what does not fit (it implies IGNORE); staged for that reason, it costs the same.
An UPDATE or DELETE joins the temporary table. SQLAlchemy's sessions count rows that were found, not those that changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa

from tranrepl.model.commands import Operation
from tranrepl.model.row_images import contents
from tranrepl.subscriber.base.staged_bulk import (
    MASK,
    BulkRules,
    BulkTarget,
    Stage,
    StagedBulk,
    image_columns,
    require,
)
from tranrepl.subscriber.batching.folded import FoldedUpdates
from tranrepl.subscriber.mariadb.literals import hexadecimal
from tranrepl.subscriber.mariadb.sql_text import IDENTIFIERS

_STATEMENT_BYTES = 1 << 20
"""The length of an INSERT; more in one costs memory and wins nothing."""
_PACKET_HEADER = 8


class MariaDbBulk(StagedBulk[pa.StringArray]):
    """Stages literals."""

    join = "STRAIGHT_JOIN"

    def __init__(self, session: sa.Connection, rules: BulkRules[pa.StringArray]) -> None:
        super().__init__(session, rules, IDENTIFIERS)
        self._largest: int = session.scalar(sa.text("SELECT @@max_allowed_packet"))

    def stage_name(self, purpose: str, target: BulkTarget[pa.StringArray]) -> str:
        return f"tranrepl_{purpose}_{target.article.article_id}"

    def make(self, stage: Stage) -> None:
        """Create the table again: a TRUNCATE would commit."""
        declared = ", ".join(f"{self.quoted(name)} {declaration}" for name, declaration in stage.columns)
        self.execute(f"DROP TEMPORARY TABLE IF EXISTS {self.quoted(stage.name)}")
        self.execute(f"CREATE TEMPORARY TABLE {self.quoted(stage.name)} ({declared}) ENGINE=InnoDB")

    def staged(self, stage: Stage, values: Sequence[pa.StringArray]) -> int:
        return self._insert_into(self.quoted(stage.name), [name for name, _ in stage.columns], values)

    def numbers(self, digits: pa.StringArray) -> pa.StringArray:
        return digits

    def masks(self, updates: FoldedUpdates) -> pa.StringArray:
        return hexadecimal(updates.mask_digits())

    def update_statement(self, joined: str, assigned: Sequence[tuple[str, str]]) -> str:
        changes = ", ".join(f"destination.{column} = {value}" for column, value in assigned)
        return f"UPDATE {joined} SET {changes}"

    def found_by(self, target: BulkTarget[pa.StringArray]) -> str:
        """Name the key's index. Without it, a table that statistics take for small is read as a whole: the stream waits
        for rows that another stream of ours has changed, which waits for this one."""
        return "" if target.key_index is None else f"FORCE INDEX ({self.quoted(target.key_index)}) "

    def is_set(self, at: int) -> str:
        return f"ORD(SUBSTRING(staged.{MASK}, {at // 8 + 1}, 1)) & {1 << at % 8}"

    def insert(self, target: BulkTarget[pa.StringArray], images: pa.StringArray) -> None:
        columns = image_columns(images, len(target.columns))
        values = [it.values(column) for it, column in zip(target.columns, columns, strict=True)]
        # What comes twice, or is there already, the unique key refuses.
        met = self._insert_into(self.table(target), [it.name for it in target.columns], values)
        require(target, Operation.INSERT, met, len(images))

    def _insert_into(self, table: str, columns: Sequence[str], values: Sequence[pa.StringArray]) -> int:
        start = f"INSERT INTO {table} ({', '.join(map(self.quoted, columns))}) VALUES "
        rows = pc.binary_join_element_wise(pc.binary_join_element_wise("(", values[0], ""), *values[1:], ",")
        room = min(_STATEMENT_BYTES, self._largest - _PACKET_HEADER) - len(start.encode())
        met = 0
        for block in _blocks(pc.binary_join_element_wise(rows, "),", ""), room):
            # Without the last comma. A row that no packet holds is refused before it is sent.
            met += self.execute(start + block[:-1].tobytes().decode()).rowcount
        return met


def _blocks(rows: pa.StringArray, most_bytes: int) -> Iterator[np.ndarray[tuple[int], np.dtype[np.uint8]]]:
    """Yield the bytes of whole rows together: of `most_bytes`, or of a single row."""
    offsets = np.frombuffer(rows.buffers()[1], dtype=np.int32)[rows.offset : rows.offset + len(rows) + 1]
    start = 0
    while start < len(rows):
        fitting = int(np.searchsorted(offsets, offsets[start] + most_bytes, side="right")) - 1
        end = max(start + 1, fitting)
        yield contents(rows.slice(start, end - start))
        start = end
