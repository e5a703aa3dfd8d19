"""Labels under the names that they had before: in rows of transactions that were open while a label was renamed.

Such a row is written before the rename and comes after it in the log. Which of the names the log shows depends on what
was decoded before the row, so that only the names themselves tell what it has: a name that no label has any more
is that of the renamed one. Where a label has the name again, nothing tells which of the two a row means.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tranrepl.errors import ConfigurationError
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.position import Position
from tranrepl.model.table_definition import DefinedColumn, RenamedLabel
from tranrepl.publisher.changes import Bools, Buffer, Bytes, Cells, Changes, ChangeSet, Ints, RefusedChange

_QUOTED = re.compile(r"\s|^$|^null$", re.IGNORECASE)
_AROUND_ELEMENTS = re.compile(r'[{}",\\\x01]')
_QUOTED_OTHERWISE = re.compile(r'["\\]')


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


@dataclass(frozen=True, slots=True)
class _Names:
    """The names of the labels in one published column, as values may have them; at least one is an earlier one."""

    at: int
    """Which of the published columns it is."""
    now: Mapping[str, str]
    """By earlier names, the one that the label has now."""
    unclear: frozenset[str]
    """Names that may stand for several labels."""
    open: frozenset[str]
    """Earlier names that rows may have which Subscribers are to get."""
    labels: frozenset[str]
    is_label: bool
    """A value is one label: the column is of the enumerated type itself."""
    is_array: bool
    """A value is an array of labels, none of which looks like several elements."""


def _names_of_columns(article: RegisteredArticle, since: Position) -> Iterator[_Names]:
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
) -> _Names | None:
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
    return _Names(
        at,
        now,
        frozenset(unclear),
        frozenset(still_open),
        frozenset(labels),
        is_label=any(it.oid == column.type_oid and it.labels is not None for it in column.types or ()),
        is_array=column.type_name.endswith("[]") and not any(map(_AROUND_ELEMENTS.search, every_name)),
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
    def of(cls, cells: Cells | None, names: Sequence[_Names], texts: _Texts) -> _Image:
        if cells is None or not names:
            return cls(cells)
        starts, lengths = cells.starts.copy(), cells.lengths.copy()
        unclear: list[_Unclear] = []
        for it in names:
            rows = _rows_with_names(lengths[:, it.at], it)
            values = texts.given.strings(starts[rows, it.at], lengths[rows, it.at])
            translated, not_told = _translated(values, it)
            first = np.flatnonzero(not_told)[:1].tolist()
            unclear += [_Unclear(int(rows[row]), it.at, values[row].as_py()) for row in first]
            changed = pc.not_equal(values, translated).to_numpy(zero_copy_only=False)
            if changed.any():
                places = rows[changed]
                starts[places, it.at], lengths[places, it.at] = texts.add(translated.filter(pa.array(changed)))
        return cls(Cells(starts, lengths), min(unclear, key=lambda found: found.row, default=None))


def _rows_with_names(lengths: Ints, names: _Names) -> Ints:
    """Return the rows that may have one of the names, shape (rows,)."""
    if not names.is_label:
        return np.flatnonzero(lengths >= 0)
    known = {len(name.encode()) for name in (*names.now, *names.unclear)}
    return np.flatnonzero(np.isin(lengths, list(known)))


def _translated(values: pa.StringArray, names: _Names) -> tuple[pa.StringArray, Bools]:
    """Return the values with the labels' names of now, and which of them are not told, shape (values,)."""
    if names.is_array:
        return _translated_arrays(values, names)
    old = list(names.now)
    places = pc.index_in(values, value_set=pa.array(old, pa.string()))
    present = pa.array([names.now[it] for it in old], pa.string()).take(places)
    not_told = _is_any(values, names.unclear)
    if not names.is_label:
        # A value of a domain is a label; one of a composite type or a range, or one in quotation marks, has it inside.
        within = ~_is_any(values, {*names.labels, *names.now})
        for name in names.open:
            not_told |= within & _true(pc.match_substring(values, _longest_part(name)))
    return pc.coalesce(present, values), not_told


def _translated_arrays(values: pa.StringArray, names: _Names) -> tuple[pa.StringArray, Bools]:
    not_told = np.zeros(len(values), dtype=np.bool_)
    for name in names.unclear:
        not_told |= _true(pc.match_substring_regex(values, _element(name)))
    # At first each one gets a number, which is no label: another label may have its name now.
    for number, name in enumerate(names.now):
        values = _replaced(values, _element(name), f"\\1\x01{number}\x01\\2")
    for number, label in enumerate(names.now.values()):
        values = _replaced(values, _element(f"\x01{number}\x01"), f"\\1{_quoted(label)}\\2")
    return values, not_told


def _element(label: str) -> str:
    return rf"([{{,])\Q{_quoted(label)}\E([,}}])"


def _quoted(label: str) -> str:
    """Return a label as it stands in an array."""
    return f'"{label}"' if _QUOTED.search(label) else label


def _replaced(values: pa.StringArray, pattern: str, replacement: str) -> pa.StringArray:
    # What ends one element begins the next one: each second one is left the first time.
    for _ in range(2):
        values = pc.replace_substring_regex(values, pattern=pattern, replacement=replacement)
    return values


def _is_any(values: pa.StringArray, names: Iterable[str]) -> Bools:
    return _true(pc.is_in(values, value_set=pa.array(sorted(names), pa.string())))


def _true(found: pa.BooleanArray) -> Bools:
    result: Bools = pc.fill_null(found, fill_value=False).to_numpy(zero_copy_only=False)
    return result


def _longest_part(label: str) -> str:
    """Return the longest part of a label that stands alike within any other value."""
    return max(_QUOTED_OTHERWISE.split(label), key=len)


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
