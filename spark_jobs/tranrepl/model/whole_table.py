"""The statements that compare a table without moving its rows, for databases that read it as a whole.

A row's number is the first eight bytes of the MD5 of its columns' texts, a key's that of its own; NULL is `~`, and a
text that may hold `|` or `~` stands for itself as its MD5.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from tranrepl.model.comparison import WHOLE, Pages


@dataclass(frozen=True, slots=True)
class ComparedColumn:
    """`text` is the form in which the value is compared, `shown` what people and statements know it by."""

    text: str
    shown: str
    plain: bool = False
    """`text` has neither | nor ~, and only ASCII."""


@dataclass(frozen=True, slots=True)
class WholeTable(ABC):
    """One end of a comparison. `table` is quoted; `key` are places among the columns."""

    table: str
    columns: tuple[ComparedColumn, ...]
    key: tuple[int, ...]

    @abstractmethod
    def digest(self, text: str) -> str:
        """Return the MD5, in hexadecimal, of a text in UTF-8."""

    @abstractmethod
    def number(self, texts: Sequence[str]) -> str:
        """Return the signed number of 64 bits of texts with | between."""

    @abstractmethod
    def listed(self, numbers: Sequence[int]) -> str:
        """Return what stands in the parentheses of IN."""

    @abstractmethod
    def checksum(self, pages: Pages = WHOLE) -> str:
        """Return the query of the number of rows, and the exclusive or of their numbers."""

    @abstractmethod
    def buckets(self, buckets: int, pages: Pages = WHOLE) -> str:
        """Return the query of the same for each bucket of keys."""

    def count(self, pages: Pages = WHOLE) -> str:
        del pages
        return f"SELECT COUNT(*), 0 FROM {self.table}"

    def numbers(self, buckets: int, chosen: Sequence[int]) -> str:
        key = self.key_number()
        return (
            f"SELECT {key}, {self.row_number()} FROM {self.table} "
            f"WHERE {key} & {buckets - 1} IN ({self.listed(chosen)})"
        )

    def rows(self, keys: Sequence[int]) -> str:
        key = self.key_number()
        shown = [self.columns[at].shown for at in self.key]
        digests = [self.digest(column.text) for column in self.columns]
        selected = ", ".join([key, *shown, *digests])
        return f"SELECT {selected} FROM {self.table} WHERE {key} IN ({self.listed(keys)})"

    def key_number(self) -> str:
        return self.number([self._marked(self.columns[at]) for at in self.key])

    def row_number(self) -> str:
        return self.number([self._marked(column) for column in self.columns])

    def _marked(self, column: ComparedColumn) -> str:
        return f"COALESCE({column.text if column.plain else self.digest(column.text)}, '~')"


class WholeNumbersTable(WholeTable):
    """Where numbers of 64 bits have bitwise operators."""

    @abstractmethod
    def exclusive_or(self, number: str) -> str:
        """Return the exclusive or of a number over rows; 0 over none."""

    def checksum(self, pages: Pages = WHOLE) -> str:
        del pages
        return f"SELECT COUNT(*), {self.exclusive_or(self.row_number())} FROM {self.table}"

    def buckets(self, buckets: int, pages: Pages = WHOLE) -> str:
        del pages
        return (
            f"SELECT {self.key_number()} & {buckets - 1} AS bucket, COUNT(*), {self.exclusive_or(self.row_number())} "
            f"FROM {self.table} GROUP BY bucket"
        )

    def listed(self, numbers: Sequence[int]) -> str:
        return ", ".join(map(str, numbers))
