"""What both ends of a comparison agree on: numbers of rows, forms of values, and the places where tables are read.

Every row has two 64-bit numbers, alike at both ends: one of its key, one of all that is published of it. A table's or a
bucket's checksum is the exclusive or of its rows' numbers; a bucket holds the keys whose numbers end alike, so that it
means the same whatever either database thinks of order. The number of a row is no sum of its columns' numbers: two rows
that have exchanged a value do not cancel out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Protocol

Rows = list[tuple[Any, ...]]


class Checksum(Enum):
    """How a row becomes a number."""

    NATIVE = auto()
    """Hash functions of the databases' own over the values as they are: for two servers whose functions agree."""
    MD5 = auto()
    """Over the values in a text form that both databases can write."""


class Form(Enum):
    """The text in which both ends write a column's values, the same exactly where the values are."""

    NATIVE = auto()
    """A type that both ends know: the Publisher's text, cast to it."""
    OUTPUT = auto()
    """The Publisher's own text form."""
    CHARACTER = auto()
    """… without blanks at the end."""
    HEXADECIMAL = auto()
    NUMBER = auto()
    """Without zeros at the end of the fraction."""
    FLOATING = auto()
    """Sign, digits and magnitude."""
    DIGEST = auto()
    """The two halves of the MD5 of bytes, as integers."""
    DOUBLE = auto()
    """The bytes of an 8-byte float (IEEE 754), as an integer; 0 for both zeros."""
    SINGLE = auto()
    """… of a 4-byte float."""
    TIMESTAMP = auto()
    DATE = auto()
    TIME = auto()

    @property
    def plain(self) -> bool:
        """The text has neither | nor ~."""
        return self not in (Form.NATIVE, Form.OUTPUT, Form.CHARACTER, Form.HEXADECIMAL)


@dataclass(frozen=True, slots=True)
class ColumnForm:
    """A column's form; `type_name` is the type of Form.NATIVE, or the Subscriber's where another form stands for it."""

    form: Form
    type_name: str = ""


@dataclass(frozen=True, slots=True)
class Pages:
    """A part of a table; None: from its first, up to its last page."""

    first: int | None = None
    end: int | None = None


WHOLE = Pages()


class Side(Protocol):
    """Statements that return integers, unless they say otherwise."""

    def count(self, pages: Pages = WHOLE) -> str:
        """Select the number of rows, and 0."""
        ...

    def checksum(self, pages: Pages = WHOLE) -> str:
        """Select the number of rows and their checksum."""
        ...

    def buckets(self, buckets: int, pages: Pages = WHOLE) -> str:
        """Select bucket, rows and checksum; `buckets` is a power of two."""
        ...

    def numbers(self, buckets: int, chosen: Sequence[int]) -> str:
        """Select the number of the key and the number of the row, of the rows in these buckets."""
        ...

    def rows(self, keys: Sequence[int]) -> str:
        """Select, for the rows whose keys have these numbers: that number, the key's values as text, a digest of each
        column."""
        ...


Execute = Callable[[str], Rows]


class SharedPlace(Protocol):
    """A snapshot that any process can read in. It travels pickled, password and all; equal ones share a session."""

    def session(self) -> AbstractContextManager[Execute]:
        """Connect. Raises ReplicationError, also from what it yields."""
        ...

    def read(self, statement: str) -> SharedRead:
        """Return the statement as it is to be executed here."""
        ...


class HeldPlace(Protocol):
    """A snapshot that lives in sessions of this process alone."""

    def start(self, statement: str) -> Future[Rows]:
        """Execute in a thread. The future raises ReplicationError."""
        ...

    def read(self, statement: str) -> HeldRead:
        """Return the statement as it is to be executed here."""
        ...


@dataclass(frozen=True, slots=True)
class SharedRead:
    place: SharedPlace
    statement: str


@dataclass(frozen=True, slots=True)
class HeldRead:
    place: HeldPlace
    statement: str


@dataclass(frozen=True, slots=True)
class ComparedEnd:
    """One end of an article: its statements, where they are executed, and the parts that its table is read in."""

    side: Side
    place: SharedPlace | HeldPlace
    parts: tuple[Pages, ...] = (WHOLE,)

    def read(self, statement: str) -> SharedRead | HeldRead:
        return self.place.read(statement)
