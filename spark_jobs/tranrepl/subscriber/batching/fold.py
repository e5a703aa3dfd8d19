"""Commands folded by article and key: what they come to, and what must be true before.

A row is in the table before its first command, or it is not; the same holds after its last. Between the two lie the
values that it ends with: of each column the one that was set last. The order of different rows is given up, which is
right where nothing at the Subscriber depends on it: no trigger, no procedure of its own, no key that changes its row.

Articles of one shape are folded together: to fold a few commands takes as long as to fold thousands.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tranrepl.model.arrays import Bytes, Ints
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.call_syntax import Image, sent
from tranrepl.model.command_rows import only_chunk
from tranrepl.model.commands import Operation
from tranrepl.model.row_images import NULL
from tranrepl.subscriber.batching.array_cells import ImageCells
from tranrepl.subscriber.batching.folded import Folded, FoldedUpdates, bit
from tranrepl.subscriber.batching.key_order import Columns, key_order

_FOLDED = ["operation", *Image]


class NotFoldableError(Exception):
    """Why commands of an article cannot be folded: serially, they may be applied all the same, or fail with an
    error."""

    def __init__(self, article: RegisteredArticle, why: str) -> None:
        super().__init__(why)
        self.article_id = article.article_id


def fold(commands: pa.Table, articles: Mapping[int, RegisteredArticle]) -> tuple[Folded, ...]:
    """Fold commands (row layout, in order): INSERT, UPDATE and DELETE. One result an article that has some, in the
    order of `article_id`.

    Raises NotFoldableError where an article's do not follow from one another, or an UPDATE changes a key.
    """
    numbers = commands["article_id"].to_numpy()
    order = np.argsort(numbers, kind="stable")
    present, starts = np.unique(numbers[order], return_index=True)
    of_article = dict(zip(present.tolist(), np.split(order, starts[1:]), strict=True))
    operations = commands["operation"].to_numpy()
    alike: dict[_Shape | None, list[RegisteredArticle]] = defaultdict(list)
    for number, places in of_article.items():
        inserts_only = (operations[places] == Operation.INSERT).all()
        alike[None if inserts_only else _Shape.of(articles[number])].append(articles[number])
    needed, folded = commands.select(_FOLDED).combine_chunks(), list[Folded]()
    for shape, members in alike.items():
        own = [of_article[it.article_id] for it in members]
        owners = np.repeat(np.arange(len(members)), [len(it) for it in own])
        part = needed.take(pa.array(np.concatenate(own))) if len(present) > 1 else needed
        folding = _Folding(members, part, owners)
        folded += folding.inserted() if shape is None else folding.folded()
    return tuple(sorted(folded, key=lambda it: it.article.article_id))


@dataclass(frozen=True, slots=True)
class _Shape:
    """What articles have in common that are folded together. The types of keys decide how they are ordered."""

    columns: int
    key_positions: tuple[int, ...]
    key_types: tuple[str, ...]
    unique_positions: tuple[int, ...]
    masked: bool

    @classmethod
    def of(cls, article: RegisteredArticle) -> _Shape:
        return cls(
            len(article.columns),
            article.key_positions,
            tuple(article.columns[at].type_name for at in article.key_positions),
            article.unique_positions,
            sent(article.propagation(Operation.UPDATE), Operation.UPDATE).mask,
        )


@dataclass(frozen=True)
class _Folding:
    """Commands of articles of one shape: by article, in order within. `owners` are places in `articles`."""

    articles: Sequence[RegisteredArticle]
    commands: pa.Table
    owners: Ints

    def inserted(self) -> Iterator[Folded]:
        """Fold commands that are all INSERTs. The table's own key finds a row that comes twice."""
        lines = only_chunk(self.commands, Image.AFTER)
        for article, own in zip(self.articles, self._parts(self.owners), strict=True):
            nothing = tuple(pa.array([], pa.string()) for _ in article.key_positions)
            yield Folded(article, nothing, None, _sliced(lines, own), nothing)

    def folded(self) -> Iterator[Folded]:
        """Fold commands, one group for each row. Groups are numbered in the order of their first commands, so by
        article too."""
        self._require_unchanged_keys()
        self._require_succession()
        first, last = self._sorted[self._starts], self._sorted[self._ends - 1]
        was_there, is_there = first != Operation.INSERT, last != Operation.DELETE
        left = np.add.reduceat(self._sorted == Operation.DELETE, self._starts) > 0
        updated = was_there & is_there & ~left
        return map(
            Folded,
            self.articles,
            self._keys_by_article(self._by_key(np.flatnonzero(was_there & left))),
            self._updates(np.flatnonzero(updated)),
            self._inserts(np.flatnonzero(is_there & ~updated)),
            self._keys_by_article(np.flatnonzero(~was_there & ~is_there)),
        )

    def _parts(self, owners: Ints) -> list[slice]:
        """Return where each article's rows stand among these owners, which are in order."""
        ends = np.searchsorted(owners, np.arange(len(self.articles)), side="right")
        return [slice(start, end) for start, end in pairwise([0, *ends.tolist()])]

    def _not_foldable(self, command: int | np.signedinteger, why: str) -> NotFoldableError:
        return NotFoldableError(self.articles[int(self.owners[command])], why)

    @cached_property
    def _article(self) -> RegisteredArticle:
        """Any of them: in what folding asks, they are the same."""
        return self.articles[0]

    @cached_property
    def _operations(self) -> Ints:
        return np.asarray(self.commands["operation"].to_numpy(), dtype=np.int64)

    def _require_unchanged_keys(self) -> None:
        updates = np.flatnonzero(self._operations == Operation.UPDATE)
        if len(updates) == 0:
            return
        if self._masked:
            set_bits = [bit(self._masks[updates], at) for at in self._article.key_positions]
            changed = np.logical_or.reduce(set_bits)
        else:
            places = pa.array(updates)
            after = [self._after.column(at, updates) for at in self._article.key_positions]
            same = [
                np.asarray(pc.equal(new, old.take(places)).to_numpy(zero_copy_only=False), dtype=np.bool_)
                for new, old in zip(after, self._keys, strict=True)
            ]
            changed = ~np.logical_and.reduce(same)
        if changed.any():
            raise self._not_foldable(updates[changed.argmax()], "an UPDATE changes the key")

    def _require_succession(self) -> None:
        """Raise NotFoldableError unless a row is inserted where it is not, and updated or deleted where it is."""
        inside = np.ones(len(self._sorted), dtype=np.bool_)
        inside[self._starts] = False
        gone = np.concatenate([[False], self._sorted[:-1] == Operation.DELETE])
        wrong = inside & (gone != (self._sorted == Operation.INSERT))
        if wrong.any():
            raise self._not_foldable(self._order[wrong.argmax()], "commands for one row do not follow from one another")

    # Groups: the commands of one key of one article, in order

    @cached_property
    def _keys(self) -> Columns:
        """What each command finds its row by."""
        inserted = self._operations == Operation.INSERT
        columns = []
        for at in self._article.key_positions:
            before, after = self._before.places(at), self._after.places(at) + len(self._before.values)
            column = self._values.take(pa.array(np.where(inserted, after, before)))
            null = pc.index(column, NULL).as_py()
            if null >= 0:
                raise self._not_foldable(null, "a key holds NULL")
            columns.append(column)
        return tuple(columns)

    @cached_property
    def _values(self) -> pa.StringArray:
        return pa.concat_arrays([self._before.values, self._after.values])

    @cached_property
    def _groups(self) -> Ints:
        names = self._keys[0] if len(self._keys) == 1 else pc.binary_join_element_wise(*self._keys, "\t")
        found = _numbered(names)
        return found if len(self.articles) == 1 else _numbered(pa.array(self.owners * len(found) + found))

    @cached_property
    def _order(self) -> Ints:
        """Commands by group, in order within."""
        if int(self._groups[-1]) == len(self._groups) - 1:
            return np.arange(len(self._groups))
        return np.argsort(self._groups, kind="stable")

    @cached_property
    def _starts(self) -> Ints:
        groups = self._groups[self._order]
        return np.flatnonzero(np.concatenate([[True], groups[1:] != groups[:-1]]))

    @cached_property
    def _ends(self) -> Ints:
        return np.concatenate([self._starts[1:], [len(self._order)]])

    @cached_property
    def _sorted(self) -> Ints:
        """Operations by group."""
        return self._operations[self._order]

    def _owners_of(self, groups: Ints) -> Ints:
        return self.owners[self._order[self._starts[groups]]]

    def _keys_of(self, groups: Ints) -> Columns:
        places = pa.array(self._order[self._starts[groups]])
        return tuple(column.take(places) for column in self._keys)

    def _keys_by_article(self, groups: Ints) -> Iterator[Columns]:
        columns = self._keys_of(groups)
        for own in self._parts(self._owners_of(groups)):
            yield tuple(_sliced(column, own) for column in columns)

    def _by_key(self, groups: Ints) -> Ints:
        """Sort the groups of each article by their keys: neighbours share a page of the key's index, and mostly one of
        the table."""
        within = self._owners_of(groups) if len(self.articles) > 1 else None
        return groups[key_order(self._keys_of(groups), within)]

    # Values

    @cached_property
    def _before(self) -> ImageCells:
        return ImageCells.of(only_chunk(self.commands, Image.BEFORE))

    @cached_property
    def _after(self) -> ImageCells:
        return ImageCells.of(only_chunk(self.commands, Image.AFTER))

    @cached_property
    def _masked(self) -> bool:
        return _Shape.of(self._article).masked

    @cached_property
    def _masks(self) -> Bytes:
        """What each command sets, as bits: an INSERT sets all."""
        width = (len(self._article.columns) + 7) // 8
        masks = np.full((len(self._operations), width), 0xFF, dtype=np.uint8)
        masks[self._operations == Operation.DELETE] = 0
        if self._masked:
            lengths, content = _mask_bytes(only_chunk(self.commands, Image.CHANGED))
            if (lengths > width).any():
                raise self._not_foldable((lengths > width).argmax(), "a mask is wider than its article")
            rows = np.zeros((len(lengths), width), dtype=np.uint8)
            rows[np.arange(width)[None, :] < lengths[:, None]] = content
            updates = self._operations == Operation.UPDATE
            masks[updates] = rows[updates]
        return masks

    def _last_setting(self, at: int) -> Ints:
        """Return for each group the command that sets a column last, shape (groups,); negative where none does."""
        sets = bit(self._masks, at)[self._order]
        places = np.maximum.reduceat(np.where(sets, np.arange(len(sets)), -1), self._starts)
        return np.where(places < 0, -1, self._order[places])

    def _updates(self, groups: Ints) -> Iterator[FoldedUpdates | None]:
        parts = self._parts(self._owners_of(groups))
        set_by_group = np.bitwise_or.reduceat(self._masks[self._order], self._starts, axis=0)
        groups = self._by_key_unless_another_moves(groups, set_by_group)
        keys, masks, columns = self._keys_of(groups), set_by_group[groups], []
        for at in range(len(self._article.columns) if len(groups) else 0):
            setting = self._last_setting(at)[groups]
            sets = setting >= 0
            if sets.any():
                columns.append((at, sets, self._after.column(at, setting)))
        for own in parts:
            values = {at: _sliced(column, own) for at, sets, column in columns if sets[own].any()}
            of_keys = tuple(_sliced(column, own) for column in keys)
            yield FoldedUpdates(of_keys, values, masks[own]) if own.start < own.stop else None

    def _by_key_unless_another_moves(self, groups: Ints, set_by_group: Bytes) -> Ints:
        """Sort groups by key, but those whose value of another unique column may pass from row to row by their first
        commands: each gives it up before the next one takes it."""
        ordered, owners = self._by_key(groups), self._owners_of(groups)
        for at in self._article.unique_positions:
            if at not in self._article.key_positions:
                moved = owners[bit(set_by_group[groups], at)]
                ordered = np.where(np.isin(owners, moved), groups, ordered)
        return ordered

    def _inserts(self, groups: Ints) -> Iterator[pa.StringArray]:
        last = self._order[self._ends[groups] - 1]
        if (self._operations[last] == Operation.INSERT).all():
            lines = only_chunk(self.commands, Image.AFTER).take(pa.array(last))
        else:
            settings = (self._last_setting(at)[groups] for at in range(len(self._article.columns)))
            columns = [self._after.column(at, setting) for at, setting in enumerate(settings)]
            lines = pc.binary_join_element_wise(*columns, "\t")
        for own in self._parts(self._owners_of(groups)):
            yield _sliced(lines, own)


def _sliced(column: pa.Array, part: slice) -> pa.Array:
    return column.slice(part.start, part.stop - part.start)


def _numbered(values: pa.Array) -> Ints:
    """Return a number for each value, equal ones alike, in the order of first occurrence; shape (values,)."""
    return np.asarray(values.dictionary_encode().indices.to_numpy(), dtype=np.int64)


def _mask_bytes(masks: pa.BinaryArray) -> tuple[Ints, npt.NDArray[np.uint8]]:
    """Return how many bytes each mask has, none where it is NULL, and all of these bytes."""
    offsets = np.frombuffer(masks.buffers()[1], dtype=np.int32)[masks.offset : masks.offset + len(masks) + 1]
    lengths = np.diff(offsets).astype(np.int64)
    if not lengths.any():
        return lengths, np.zeros(0, dtype=np.uint8)
    return lengths, np.frombuffer(masks.buffers()[2], dtype=np.uint8)[offsets[0] : offsets[-1]]
