"""Names of labels in values: those of one enumerated type, or of what is made of it, under other names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tranrepl.model.table_definition import DefinedColumn
from tranrepl.publisher.changes import Bools

_QUOTED = re.compile(r"\s|^$|^null$", re.IGNORECASE)
_AROUND_ELEMENTS = re.compile(r'[{}",\\\x01]')
_QUOTED_OTHERWISE = re.compile(r'["\\]')


@dataclass(frozen=True, slots=True)
class LabelNames:
    """The names of the labels in one published column, as values may have them; at least one is an earlier one."""

    at: int
    """Which of the columns it is."""
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


def is_array_of(column: DefinedColumn, labels: Iterable[str]) -> bool:
    """Return whether a value is an array of labels, none of which looks like several elements."""
    return column.type_name.endswith("[]") and not any(map(_AROUND_ELEMENTS.search, labels))


def translated(values: pa.StringArray, names: LabelNames) -> tuple[pa.StringArray, Bools]:
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


def _translated_arrays(values: pa.StringArray, names: LabelNames) -> tuple[pa.StringArray, Bools]:
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
