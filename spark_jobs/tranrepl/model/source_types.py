"""A published column's type as PostgreSQL's catalogue spells it, taken apart: what another database needs to know."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto

from tranrepl.model.catalogue import ColumnDescription


class Family(Enum):
    """Types whose values are written and meant alike."""

    BOOLEAN = auto()
    SMALLINT = auto()
    INTEGER = auto()
    BIGINT = auto()
    NUMERIC = auto()
    REAL = auto()
    DOUBLE = auto()
    MONEY = auto()
    CHARACTER = auto()
    """`character(n)`: padded with blanks that mean nothing."""
    TEXT = auto()
    BYTES = auto()
    DATE = auto()
    TIME = auto()
    TIMESTAMP = auto()
    TIMESTAMP_WITH_ZONE = auto()
    UUID = auto()
    BITS = auto()
    """Digits that are no number."""
    OTHER = auto()
    """Whatever only PostgreSQL has (arrays, ranges, enums, json …): its text form is the value elsewhere."""


_FAMILIES = {
    "boolean": Family.BOOLEAN,
    "smallint": Family.SMALLINT,
    "integer": Family.INTEGER,
    "bigint": Family.BIGINT,
    "oid": Family.BIGINT,
    "numeric": Family.NUMERIC,
    "real": Family.REAL,
    "double precision": Family.DOUBLE,
    "money": Family.MONEY,
    "character": Family.CHARACTER,
    "bpchar": Family.CHARACTER,
    "character varying": Family.TEXT,
    "text": Family.TEXT,
    "name": Family.TEXT,
    '"char"': Family.TEXT,
    "bytea": Family.BYTES,
    "date": Family.DATE,
    "time without time zone": Family.TIME,
    "timestamp without time zone": Family.TIMESTAMP,
    "timestamp with time zone": Family.TIMESTAMP_WITH_ZONE,
    "uuid": Family.UUID,
    "bit": Family.BITS,
    "bit varying": Family.BITS,
}
_SPELLING = re.compile(
    r"(?P<name>[^(\[]+?) ?(\((?P<first>\d+)(,(?P<second>-?\d+))?\))?(?P<rest> with(out)? time zone)?"
)


@dataclass(frozen=True, slots=True)
class SourceType:
    """`length` is in characters; `precision` and `scale` are `numeric(precision, scale)`; None where not declared."""

    spelling: str
    family: Family
    length: int | None = None
    precision: int | None = None
    scale: int | None = None


def source_type(spelling: str) -> SourceType:
    """Parse a type's spelling by `format_type`, as in `numeric(10,2)`, `character varying(20)`, `timestamp(3) with time
    zone`."""
    match = _SPELLING.fullmatch(spelling)
    family = _FAMILIES.get(f"{match['name']}{match['rest'] or ''}", Family.OTHER) if match else Family.OTHER
    if match is None or match["first"] is None:
        length = 1 if spelling == "character" else None
        return SourceType(spelling, family, length=length)
    first = int(match["first"])
    if family is Family.NUMERIC:
        return SourceType(spelling, family, precision=first, scale=int(match["second"] or 0))
    if family in (Family.TEXT, Family.CHARACTER):
        return SourceType(spelling, family, length=first)
    return SourceType(spelling, family)


def is_unbounded(column: ColumnDescription) -> bool:
    """Return whether a value of this column may be of any length."""
    declared = source_type(column.type_name)
    if declared.family in (Family.TEXT, Family.BYTES):
        return declared.length is None
    return declared.family is Family.OTHER and column.toastable


def decimal_digits(source: SourceType) -> tuple[int, int] | None:
    """Return precision and scale that hold every value of a `numeric(p,s)`; None where it is not bounded.

    PostgreSQL allows a scale below zero and one above the precision, which others do not.
    """
    if source.precision is None or source.scale is None:
        return None
    scale = max(source.scale, 0)
    return max(source.precision - min(source.scale, 0), scale), scale
