"""Commands as a staging table: one row a command, its arguments in slots that all articles share by type.

A staging row is `seq, kind, slot, slot, …`. `kind` numbers an (article, operation); each argument of a kind has a slot
of its type, and a slot serves one argument of every kind, so that the table is as wide as its widest kind and not as
all of them together. Where that is more than a table holds, all slots are elements of one array of text.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tranrepl.model.article import RegisteredArticle
from tranrepl.model.call_syntax import Argument, Image, arguments
from tranrepl.model.command_rows import only_chunk
from tranrepl.model.commands import Operation
from tranrepl.model.row_images import NULL, contents
from tranrepl.subscriber.batching.array_cells import ImageCells, array_cells, array_elements

WORTH_A_STATEMENT = 500
"""Commands of a kind, from which on it pays to create the dispatcher again."""
_FREQUENT = 8
_MOST_SLOTS = 1500
"""A table has 1,600 columns at most."""
_MOST_ARGUMENTS = 200
"""The most of one command: a row of more may be longer than a page, where the published row just fits into one."""
_ABSENT = -1
_OPERATIONS = max(Operation) + 1


@dataclass(frozen=True, slots=True, order=True)
class Kind:
    """What one command does to which article."""

    article_id: int
    operation: Operation

    @property
    def code(self) -> int:
        """A number, in the order of kinds."""
        return self.article_id * _OPERATIONS + self.operation


@dataclass(frozen=True, slots=True)
class Slot:
    name: str
    type_name: str


@dataclass(frozen=True, slots=True)
class StagingLayout:
    """The slots, and for each kind which slot each of its arguments takes."""

    kinds: tuple[Kind, ...]
    slots: tuple[Slot, ...]
    places: Mapping[Kind, Mapping[Argument, int]]

    @property
    def packed(self) -> bool:
        """Whether the slots are the elements of one array."""
        most_arguments = max((len(taken) for taken in self.places.values()), default=0)
        return len(self.slots) > _MOST_SLOTS or most_arguments > _MOST_ARGUMENTS


@dataclass(frozen=True, slots=True)
class Census:
    """Which kinds occur among commands, and the masks that many commands of a kind have."""

    kinds: frozenset[Kind]
    masks: Mapping[Kind, frozenset[bytes]]


@dataclass(frozen=True, slots=True)
class StagedText:
    """Commands as COPY's text, for the layout that they were laid out for."""

    layout: StagingLayout
    census: Census
    text: memoryview


def staging_layout(
    kinds: Iterable[Kind], articles: Mapping[int, RegisteredArticle], types: Mapping[tuple[Kind, Argument], str]
) -> StagingLayout:
    """Give every argument a slot of its type; `types` are SQL type names."""
    ordered = tuple(sorted(kinds))
    slots: list[Slot] = []
    by_type: dict[str, list[int]] = {}
    places: dict[Kind, dict[Argument, int]] = {}
    for kind in ordered:
        used: dict[str, int] = {}
        taken: dict[Argument, int] = {}
        for argument in arguments(articles[kind.article_id], kind.operation):
            type_name = types[kind, argument]
            of_type = by_type.setdefault(type_name, [])
            place = used.get(type_name, 0)
            if place == len(of_type):
                of_type.append(len(slots))
                slots.append(Slot(f"s{len(slots)}", type_name))
            taken[argument] = of_type[place]
            used[type_name] = place + 1
        places[kind] = taken
    return StagingLayout(ordered, tuple(slots), places)


def census_of(commands: pa.Table) -> Census:
    """Count the kinds and the frequent masks of commands in the row layout."""
    kinds = frozenset(_kind(code) for code in np.unique(kind_codes(commands)).tolist())
    return Census(kinds, frequent_masks(commands))


def frequent_masks(commands: pa.Table) -> dict[Kind, frozenset[bytes]]:
    """Return the masks that at least one in `_FREQUENT` commands of a kind has, where there are enough to matter."""
    encoded = only_chunk(commands.select(["changed"]).combine_chunks(), "changed").dictionary_encode()
    masked = np.flatnonzero(encoded.is_valid().to_numpy(zero_copy_only=False))
    places = encoded.indices.drop_null().to_numpy().astype(np.int64)
    distinct = len(encoded.dictionary)
    found, counts = np.unique(kind_codes(commands)[masked] * distinct + places, return_counts=True)
    of_kind: dict[Kind, Counter[bytes]] = defaultdict(Counter)
    for code, count in zip(found.tolist(), counts.tolist(), strict=True):
        of_kind[_kind(code // distinct)][encoded.dictionary[code % distinct].as_py()] = count
    return {
        kind: frozenset(mask for mask, count in masks.items() if _FREQUENT * count >= masks.total())
        for kind, masks in of_kind.items()
        if masks.total() >= WORTH_A_STATEMENT
    }


def copy_text(commands: pa.Table, layout: StagingLayout) -> memoryview:
    """Write the commands (row layout) in COPY's text format: columns `seq` (from 0), `kind`, then the slots, or the
    array of them."""
    commands = commands.combine_chunks()
    kind = _kind_numbers(commands, layout)
    cells = _Arguments.of(commands)
    columns: list[pa.Array] = [
        pa.array(np.arange(len(commands), dtype=np.int64)).cast(pa.string()),
        pa.array(kind).cast(pa.string()),
    ]
    columns += _packed_slots(cells, layout, kind) if layout.packed else _slots(cells, layout, kind)
    # The line's end goes with the last column, so that one join makes all of the text.
    columns[-1] = pc.binary_join_element_wise(columns[-1], "\n", "", null_handling="replace", null_replacement=NULL)
    lines = pc.binary_join_element_wise(*columns, "\t", null_handling="replace", null_replacement=NULL)
    return contents(lines).data


def _slots(cells: _Arguments, layout: StagingLayout, kind: npt.NDArray[np.int64]) -> list[pa.StringArray]:
    return [cells.column(_argument_of_kind(layout, slot), kind) for slot in range(len(layout.slots))]


def _packed_slots(cells: _Arguments, layout: StagingLayout, kind: npt.NDArray[np.int64]) -> list[pa.StringArray]:
    return [array_cells(_slots(replace(cells, values=array_elements(cells.values)), layout, kind))]


def _argument_of_kind(layout: StagingLayout, slot: int) -> list[Argument | None]:
    """Return which argument each kind puts into `slot`."""
    return [
        next((argument for argument, place in layout.places[kind].items() if place == slot), None)
        for kind in layout.kinds
    ]


def _kind_numbers(commands: pa.Table, layout: StagingLayout) -> npt.NDArray[np.int64]:
    """Return each command's place in `layout.kinds`, which is sorted; shape (commands,)."""
    known = np.array([kind.code for kind in layout.kinds], dtype=np.int64)
    return np.searchsorted(known, kind_codes(commands))


def kind_codes(commands: pa.Table) -> npt.NDArray[np.int64]:
    """Return the `code` of each command's kind, shape (commands,)."""
    article_id, operation = commands["article_id"].to_numpy(), commands["operation"].to_numpy()
    codes: npt.NDArray[np.int64] = article_id.astype(np.int64) * _OPERATIONS + operation
    return codes


def _kind(code: int) -> Kind:
    return Kind(code // _OPERATIONS, Operation(code % _OPERATIONS))


@dataclass(frozen=True, slots=True)
class _Arguments:
    """Every value of both images and the masks in one array, and where each command's begin in it."""

    values: pa.StringArray
    starts: Mapping[Image, npt.NDArray[np.int64]]

    @classmethod
    def of(cls, commands: pa.Table) -> _Arguments:
        before, after, changed = (only_chunk(commands, name) for name in ("before", "after", "changed"))
        before_cells, after_cells = ImageCells.of(before), ImageCells.of(after)
        masks = _hexadecimal(changed)
        values = pa.concat_arrays([before_cells.values, after_cells.values, masks])
        return cls(
            values,
            {
                Image.BEFORE: before_cells.starts,
                Image.AFTER: after_cells.starts + len(before_cells.values),
                Image.CHANGED: np.arange(len(commands), dtype=np.int64) + len(values) - len(masks),
            },
        )

    def column(self, argument_of_kind: Sequence[Argument | None], kind: npt.NDArray[np.int64]) -> pa.StringArray:
        """Return one slot of all commands: the value of whichever argument their kind puts there."""
        at = np.full(len(kind), _ABSENT, dtype=np.int64)
        for image, starts in self.starts.items():
            position = np.array(
                [
                    (argument.position or 0) if argument is not None and argument.image is image else _ABSENT
                    for argument in argument_of_kind
                ],
                dtype=np.int64,
            )[kind]
            at = np.where(position == _ABSENT, at, starts + position)
        absent = at == _ABSENT
        return self.values.take(pa.array(at, mask=absent) if absent.any() else pa.array(at))


def _hexadecimal(masks: pa.BinaryArray) -> pa.StringArray:
    """Write binary as bytea's hexadecimal text form, escaped."""
    offsets = np.frombuffer(masks.buffers()[1], dtype=np.int32)[masks.offset : masks.offset + len(masks) + 1]
    data = masks.buffers()[2]
    content = np.frombuffer(data, dtype=np.uint8)[offsets[0] : offsets[-1]] if data else np.zeros(0, np.uint8)
    digits = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)
    text = np.empty(2 * len(content), dtype=np.uint8)
    text[0::2], text[1::2] = digits[content >> 4], digits[content & 15]
    hexadecimal = pa.StringArray.from_buffers(
        len(masks), pa.py_buffer(((offsets - offsets[0]) * 2).astype(np.int32)), pa.py_buffer(text)
    )
    prefixed = pc.binary_join_element_wise("\\\\x", hexadecimal, "")
    return pc.if_else(masks.is_valid(), prefixed, pa.scalar(None, pa.string()))
