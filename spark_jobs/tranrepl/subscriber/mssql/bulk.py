"""Folded commands applied in bulk at a SQL Server Subscriber.

Values are bulk copied into temporary tables only. Straight into a destination, bulk copy would put a column's default
in the place of NULL, and check no constraint unless asked to; from a temporary table, an INSERT is what the INSERT of
one row is. Bulk copy takes part in the open transaction, and locks nothing but the session's own table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
import sqlalchemy as sa

from tranrepl.model.commands import Operation
from tranrepl.subscriber.base.identifiers import Identifiers
from tranrepl.subscriber.base.staged_bulk import (
    MASK,
    BulkRules,
    BulkTarget,
    Stage,
    StagedBulk,
    image_columns,
    require,
    value_name,
)
from tranrepl.subscriber.batching.folded import FoldedUpdates
from tranrepl.subscriber.mssql.staged_values import Values, bulk_copy

_IDENTIFIERS = Identifiers("mssql")


class SqlServerBulk(StagedBulk[Values]):
    """Stages values of Python, a list a column."""

    def __init__(self, session: sa.Connection, rules: BulkRules[Values]) -> None:
        super().__init__(session, rules, _IDENTIFIERS)

    def stage_name(self, purpose: str, target: BulkTarget[Values]) -> str:
        return f"#tranrepl_{purpose}_{target.article.article_id}"

    def make(self, stage: Stage) -> None:
        name = self.quoted(stage.name)
        declared = ", ".join(f"{self.quoted(column)} {declaration}" for column, declaration in stage.columns)
        self.execute(
            f"if object_id(N'tempdb..{stage.name}') is not null drop table {name}; create table {name} ({declared})"
        )

    def staged(self, stage: Stage, values: Sequence[Values]) -> int:
        bulk_copy(self._session, stage.name, values)
        found: int = self.execute(f"select count(*) from {self.quoted(stage.name)}").scalar_one()
        return found

    def numbers(self, digits: pa.StringArray) -> Values:
        numbers: list[int] = digits.cast(pa.int8()).to_pylist()
        return numbers

    def masks(self, updates: FoldedUpdates) -> Values:
        rows, width = updates.masks.shape
        content = pa.py_buffer(updates.masks.tobytes())
        masks: list[bytes] = pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), rows, [None, content]).to_pylist()
        return masks

    def update_statement(self, joined: str, assigned: Sequence[tuple[str, str]]) -> str:
        changes = ", ".join(f"{column} = {value}" for column, value in assigned)
        return f"UPDATE destination SET {changes} FROM {joined}"

    def is_set(self, at: int) -> str:
        return f"substring(staged.{MASK}, {at // 8 + 1}, 1) & {1 << at % 8} <> 0"

    def insert(self, target: BulkTarget[Values], images: pa.StringArray) -> None:
        stage = Stage(
            self.stage_name("inserts", target),
            [(value_name(at), column.declaration) for at, column in enumerate(target.columns)],
        )
        self.make(stage)
        columns = image_columns(images, len(target.columns))
        self.fill(stage, [it.values(cells) for it, cells in zip(target.columns, columns, strict=True)])
        names = ", ".join(self.quoted(column.name) for column in target.columns)
        values = ", ".join(column.expression(f"staged.{value_name(at)}") for at, column in enumerate(target.columns))
        with self._identity_values(target):
            # What comes twice, or is there already, the unique key refuses.
            inserted = self.execute(
                f"INSERT INTO {self.table(target)} ({names}) SELECT {values} FROM {self.quoted(stage.name)} AS staged"
            )
        require(target, Operation.INSERT, inserted.rowcount, len(images))

    @contextmanager
    def _identity_values(self, target: BulkTarget[Values]) -> Iterator[None]:
        """Let INSERTs give an identity column its values. A rollback would not take that back."""
        if not any(column.identity for column in target.columns):
            yield
            return
        self.execute(f"set identity_insert {self.table(target)} on")
        try:
            yield
        finally:
            self.execute(f"set identity_insert {self.table(target)} off")
