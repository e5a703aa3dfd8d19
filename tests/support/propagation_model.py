"""A reference model of the Log Reader, row by row and obvious on purpose: which commands must go out.

Sources: "Transactional Articles - Specify How Changes Are Propagated" (call syntaxes), KB 238254 (row filters, deferred
updates).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tranrepl.model.bitmask import bitmask
from tranrepl.model.commands import Operation

Row = tuple[str | None, ...]
Command = tuple[str, Row | None, Row | None, str | None]
"""Operation, before image, after image (None for what does not travel), mask in hexadecimal."""


@dataclass(frozen=True)
class RowChange:
    """What a transaction did to one row, in all columns of the table."""

    operation: Operation
    before: Row | None = None
    after: Row | None = None


@dataclass(frozen=True)
class ArticleModel:
    """`positions` are the published columns, `key` and `unique` positions among these; `is_published` is the row
    filter over published values."""

    positions: tuple[int, ...]
    key: tuple[int, ...]
    unique: tuple[int, ...]
    is_published: Callable[[Row], bool]
    update_policy: str
    truncate: str
    ins_cmd: str
    upd_cmd: str
    del_cmd: str

    def commands(self, transaction: Sequence[RowChange]) -> list[Command]:
        """Return the commands of one transaction, in order."""
        changes = [self._project(change) for change in transaction]
        changes = [it for it in changes if it.operation is not Operation.UPDATE or it.before != it.after]
        alone = len(changes) == 1
        moved = [it for change in changes for it in self._filtered(change)]
        paired = [it for change in moved for it in self._paired(change, alone)]
        return [command for change in paired for command in self._sent(change)]

    def _project(self, change: RowChange) -> RowChange:
        return RowChange(change.operation, self._columns(change.before), self._columns(change.after))

    def _columns(self, row: Row | None) -> Row | None:
        return None if row is None else tuple(row[at] for at in self.positions)

    def _filtered(self, change: RowChange) -> Iterator[RowChange]:
        if change.operation is Operation.TRUNCATE:
            yield change
            return
        was = change.before is not None and self.is_published(change.before)
        will_be = change.after is not None and self.is_published(change.after)
        if was and will_be:
            yield change
        elif was:
            yield RowChange(Operation.DELETE, change.before)
        elif will_be:
            yield RowChange(Operation.INSERT, None, change.after)

    def _moves(self, change: RowChange) -> bool:
        return change.operation is Operation.UPDATE and any(
            change.before[at] != change.after[at]  # type: ignore[index]
            for at in self.unique
        )

    def _paired(self, change: RowChange, alone: bool) -> Iterator[RowChange]:
        deferred = self.update_policy == "always_pairs" or self._moves(change)
        if self.update_policy == "singleton_update" and alone:
            deferred = False
        if change.operation is Operation.UPDATE and deferred:
            yield RowChange(Operation.DELETE, change.before)
            yield RowChange(Operation.INSERT, None, change.after)
        else:
            yield change

    def _sent(self, change: RowChange) -> Iterator[Command]:
        before, after = change.before, change.after
        match change.operation:
            case Operation.INSERT if self.ins_cmd != "NONE":
                yield "INSERT", None, after, None
            case Operation.DELETE if self.del_cmd != "NONE" and before is not None:
                yield "DELETE", before if self.del_cmd == "XCALL" else self._key_of(before), None, None
            case Operation.TRUNCATE if self.truncate == "replicate" and self.del_cmd != "NONE":
                yield "TRUNCATE", None, None, None
            case Operation.UPDATE if self.upd_cmd != "NONE" and before is not None and after is not None:
                yield self._sent_update(before, after)

    def _sent_update(self, before: Row, after: Row) -> Command:
        changed = [at for at in range(len(after)) if before[at] != after[at]]
        mask = bitmask([at + 1 for at in changed], len(after)).hex()
        only_changed = tuple(value if at in changed else None for at, value in enumerate(after))
        match self.upd_cmd:
            case "CALL":
                return "UPDATE", self._key_of(before), after, None
            case "MCALL":
                return "UPDATE", self._key_of(before), after, mask
            case "XCALL":
                return "UPDATE", before, after, None
            case _:
                return "UPDATE", self._key_of(before), only_changed, mask

    def _key_of(self, row: Row) -> Row:
        """Return the key alone; what follows its last column is left off."""
        return tuple(value if at in self.key else None for at, value in enumerate(row[: max(self.key) + 1]))
