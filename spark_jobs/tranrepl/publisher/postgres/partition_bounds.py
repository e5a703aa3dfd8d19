"""Limits of partitions, as PostgreSQL's catalogue formats them.

Source: `get_range_partbound_string` and `pg_get_partkeydef_worker` in PostgreSQL's `ruleutils.c`.
"""

from __future__ import annotations

import re

from tranrepl.model.partition_rows import Edge, PartitionLimits

_VALUE = r"(?:'(?:[^']|'')*'|[^\s,()']+)"
_VALUES = rf"\(({_VALUE}(?:, {_VALUE})*)\)"
_RANGE = re.compile(rf"FOR VALUES FROM {_VALUES} TO {_VALUES}")
_LIST = re.compile(rf"FOR VALUES IN {_VALUES}")
_NAME = r'(?:"(?:[^"]|"")+"|[^\s"(),]+)'
_PLAIN_KEY = re.compile(rf"(?:RANGE|LIST) \(({_NAME}(?:, {_NAME})*)\)")
_LEAST, _GREATEST, _NULL = "MINVALUE", "MAXVALUE", "NULL"


def read_limits(bound: str) -> PartitionLimits | None:
    """Return the limits that a bound sets; None where values are hashed."""
    if bound == "DEFAULT":
        return PartitionLimits(is_default=True)
    listed = _LIST.fullmatch(bound)
    if listed is not None:
        # A column of the primary key is never NULL.
        return PartitionLimits(listed=tuple(_text(it) for it in re.findall(_VALUE, listed[1]) if it != _NULL))
    ends = _RANGE.fullmatch(bound)
    if ends is None:
        return None
    lower, upper = (re.findall(_VALUE, it) for it in ends.groups())
    return PartitionLimits(lower=_edge(lower, upper=False), upper=_edge(upper, upper=True))


def read_key_columns(key: str | None) -> tuple[str, ...] | None:
    """Return the columns of a key that compares them as their types do: with no collation or operator class of its
    own."""
    plain = None if key is None else _PLAIN_KEY.fullmatch(key)
    if plain is None:
        return None
    return tuple(map(unquoted, re.findall(_NAME, plain[1])))


def _edge(values: list[str], *, upper: bool) -> Edge | None:
    """Return one end of a range. What follows MINVALUE or MAXVALUE does not matter."""
    infinite = next((at for at, it in enumerate(values) if it in (_LEAST, _GREATEST)), None)
    known = tuple(map(_text, values[:infinite]))
    if infinite is None:
        return Edge(values=known, included=not upper)
    # Up to (1, MAXVALUE) are all rows with 1, and from there on none of them.
    return Edge(values=known, included=(values[infinite] == _GREATEST) is upper) if known else None


def _text(value: str) -> str:
    return value[1:-1].replace("''", "'") if value[0] == "'" else value


def unquoted(name: str) -> str:
    """Return a name that is written as in SQL: in quotes where it needs them."""
    return name[1:-1].replace('""', '"') if name.startswith('"') else name
