"""Labels under the names that they had before: in rows of transactions that were open while a label was renamed.

Such a row is written before the rename and comes after it in the log. Which of the names the log shows depends on what
was decoded before the row, so that only the names themselves tell what it has: a name that no label has any more
is that of the renamed one. Where a label has the name again, nothing tells which of the two a row means.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tranrepl.errors import ConfigurationError
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.position import Position
from tranrepl.model.table_definition import DefinedColumn, RenamedLabel
from tranrepl.publisher.changes import Buffer, Bytes, Cells, Changes, ChangeSet, Ints, RefusedChange
from tranrepl.publisher.label_names import LabelNames, is_array_of, translated


def with_present_labels(changes: Changes, since: Position) -> tuple[Changes, RefusedChange | None]:
    """Return the changes with the names that labels have where each row stands, and the first change of which they do
    not tell what it has. Transactions that were open before `since` are in no part of the log that is still read."""
    texts = _Texts(changes.buffer)
    sets: list[ChangeSet] = []
    refused: list[RefusedChange] = []
    for given in changes.sets:
        names = list(_names_of_columns(given.article, since))
        before = _Image.of(given.before, names, texts)
        after = _Image.of(given.after, names, texts)
        sets.append(replace(given, before=before.cells, after=after.cells) if names else given)
        refused += [_refusal(given, it) for it in (before.unclear, after.unclear) if it is not None]
    first = min(refused, key=lambda it: it.place, default=None)
    return (changes if texts.is_empty else replace(changes, buffer=texts.buffer(), sets=sets)), first


def _names_of_columns(article: RegisteredArticle, since: Position) -> Iterator[LabelNames]:
    definition = article.definition
    renamed = [] if definition is None else [it for it in definition.renamed_labels if it.renamed_at >= since]
    if definition is None or not renamed:
        return
    for at, column in enumerate(article.columns):
        defined = definition.by_ordinal.get(column.ordinal)
        names = None if defined is None else _names(article, at, defined, renamed)
        if names is not None:
            yield names


def _names(
    article: RegisteredArticle, at: int, column: DefinedColumn, renamed: Sequence[RenamedLabel]
) -> LabelNames | None:
    now: dict[str, str] = {}
    unclear: set[str] = set()
    still_open: set[str] = set()
    labels: set[str] = set()
    for it in column.types or ():
        own = [label for label in renamed if label.type_oid == it.oid]
        # What was committed before the article began anew need not be told any more, and whoever was open then ended
        # before its rows were copied.
        open_since = [label for label in own if label.renamed_at > article.begins_after]
        meanings = _meanings(open_since, it.labels or ())
        labels |= set(it.labels or ())
        still_open |= {name for name, may_be in meanings.items() if may_be != {name}}
        unclear |= {name for name, may_be in meanings.items() if len(may_be) > 1}
        clear = {name: min(may_be) for name, may_be in _meanings(own, it.labels or ()).items() if len(may_be) == 1}
        now |= {name: label for name, label in clear.items() if name != label}
    if not now and not unclear:
        return None
    every_name = {*labels, *now, *now.values(), *unclear}
    return LabelNames(
        at,
        now,
        frozenset(unclear),
        frozenset(still_open),
        frozenset(labels),
        is_label=any(it.oid == column.type_oid and it.labels is not None for it in column.types or ()),
        is_array=is_array_of(column, every_name),
    )


def _meanings(renamed: Sequence[RenamedLabel], labels: Iterable[str]) -> dict[str, set[str]]:
    """Return by each name that a label had, which labels it may mean by the names that they have now."""
    found: dict[str, set[str]] = defaultdict(set)
    for number, it in enumerate(renamed):
        name = it.new_label
        for later in renamed[number + 1 :]:
            name = later.new_label if later.label == name else name
        found[it.label].add(name)
    for label in labels:
        if label in found:
            found[label].add(label)
    return found


@dataclass(slots=True)
class _Texts:
    """Values that are written anew, behind those of the buffer."""

    given: Buffer
    added: list[Bytes] = field(default_factory=list)
    end: int = 0

    def __post_init__(self) -> None:
        self.end = self.given.length

    @property
    def is_empty(self) -> bool:
        return not self.added

    def add(self, values: pa.StringArray) -> tuple[Ints, Ints]:
        """Return where the values are from now on, and their lengths."""
        values = pa.concat_arrays([values])
        bounds = np.frombuffer(values.buffers()[1], dtype=np.int32)[: len(values) + 1].astype(np.int64)
        self.added.append(np.frombuffer(values.buffers()[2], dtype=np.uint8)[bounds[0] : bounds[-1]])
        starts = bounds[:-1] - bounds[0] + self.end
        self.end += int(bounds[-1] - bounds[0])
        return starts, np.diff(bounds)

    def buffer(self) -> Buffer:
        return Buffer(np.concatenate([self.given.bytes[: self.given.length], *self.added]))


@dataclass(frozen=True, slots=True)
class _Unclear:
    """The first row of an image, and a column of it, whose label is not told."""

    row: int
    column: int
    value: str


@dataclass(frozen=True, slots=True)
class _Image:
    cells: Cells | None
    unclear: _Unclear | None = None

    @classmethod
    def of(cls, cells: Cells | None, names: Sequence[LabelNames], texts: _Texts) -> _Image:
        if cells is None or not names:
            return cls(cells)
        starts, lengths = cells.starts.copy(), cells.lengths.copy()
        unclear: list[_Unclear] = []
        for it in names:
            rows = _rows_with_names(lengths[:, it.at], it)
            values = texts.given.strings(starts[rows, it.at], lengths[rows, it.at])
            now, not_told = translated(values, it)
            first = np.flatnonzero(not_told)[:1].tolist()
            unclear += [_Unclear(int(rows[row]), it.at, values[row].as_py()) for row in first]
            changed = pc.not_equal(values, now).to_numpy(zero_copy_only=False)
            if changed.any():
                places = rows[changed]
                starts[places, it.at], lengths[places, it.at] = texts.add(now.filter(pa.array(changed)))
        return cls(Cells(starts, lengths), min(unclear, key=lambda found: found.row, default=None))


def _rows_with_names(lengths: Ints, names: LabelNames) -> Ints:
    """Return the rows that may have one of the names, shape (rows,)."""
    if not names.is_label:
        return np.flatnonzero(lengths >= 0)
    known = {len(name.encode()) for name in (*names.now, *names.unclear)}
    return np.flatnonzero(np.isin(lengths, list(known)))


def _refusal(changes: ChangeSet, unclear: _Unclear) -> RefusedChange:
    article, column = changes.article, changes.article.columns[unclear.column]
    reason = (
        f"a label of column {column.name} was renamed while transactions were open, and the log does not say which "
        f"label {unclear.value!r} is in their rows"
    )
    error = ConfigurationError(
        f"article {article.source}: {reason}. Everything committed before that is stored; nothing after it is read",
        remedy=f"`tranrepl reinitialize FILE --article {article.source}` copies its rows",
        article=str(article.source),
    )
    return RefusedChange(int(changes.places[unclear.row]), error, rows_unknown=reason)
