"""Folds as COPY's text, made while the commands before them are applied."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tranrepl.model.row_images import contents
from tranrepl.subscriber.batching.folded import Folded, FoldedUpdates
from tranrepl.subscriber.batching.key_order import KeyRange, dense_range


class KeyAction(IntEnum):
    """What is done about the row of a staged key."""

    ABSENT = 0
    """No row may have it: one is inserted later."""
    DELETE = 1


@dataclass(frozen=True, slots=True)
class KeyText:
    """A line is a `KeyAction`, then the key's columns."""

    text: memoryview
    deletes: KeyRange | None


@dataclass(frozen=True, slots=True)
class RowText:
    """A line is the key's columns, the values at `positions`, and the mask unless every row sets all of these."""

    text: memoryview
    positions: tuple[int, ...]
    always: frozenset[int]
    """Positions that every row sets."""
    updates: KeyRange | None

    @property
    def masked(self) -> bool:
        return len(self.always) < len(self.positions)


@dataclass(frozen=True, slots=True)
class FoldText:
    """None where there is nothing to copy."""

    folded: Folded
    keys: KeyText | None
    updates: RowText | None
    inserts: memoryview


def fold_text(folded: Folded) -> FoldText:
    return FoldText(
        folded,
        _key_text(folded) if len(folded.deletes[0]) or len(folded.absent[0]) else None,
        _row_text(folded.updates) if folded.updates is not None else None,
        _lines([folded.inserts]),
    )


def key_actions(folded: Folded) -> pa.StringArray:
    """Return the `KeyAction` of its deletes, then of its absent keys."""
    return pa.array(
        np.repeat([KeyAction.DELETE, KeyAction.ABSENT], [len(folded.deletes[0]), len(folded.absent[0])])
    ).cast(pa.string())


def _key_text(folded: Folded) -> KeyText:
    keys = [pa.concat_arrays(both) for both in zip(folded.deletes, folded.absent, strict=True)]
    return KeyText(_lines([key_actions(folded), *keys]), dense_range(folded.deletes))


def _row_text(updates: FoldedUpdates) -> RowText:
    positions = tuple(sorted(updates.values))
    always = frozenset(at for at in positions if updates.setting(at).all())
    columns = [*updates.keys, *(updates.values[at] for at in positions)]
    if len(always) < len(positions):
        columns.append(pc.binary_join_element_wise("\\\\x", updates.mask_digits(), ""))
    return RowText(_lines(columns), positions, always, dense_range(updates.keys))


def _lines(columns: list[pa.StringArray]) -> memoryview:
    # The line's end goes with the last column, so that one join makes all of the text.
    *others, last = columns
    ended = pc.binary_join_element_wise(last, "\n", "")
    return contents(pc.binary_join_element_wise(*others, ended, "\t") if others else ended).data
