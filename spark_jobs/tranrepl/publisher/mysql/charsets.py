"""Character sets of columns, and what their bytes are as UTF-8."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise

import numpy as np

from tranrepl.model.arrays import Bytes, Ints

BINARY = "binary"
_UTF8 = ("utf8", "utf8mb3", "utf8mb4", "ascii")
_CODECS = {
    "ucs2": "utf-16-be",
    "utf16": "utf-16-be",
    "utf16le": "utf-16-le",
    "utf32": "utf-32-be",
    "gbk": "gbk",
    "gb2312": "gb2312",
    "gb18030": "gb18030",
    "big5": "big5",
    "sjis": "shift_jis",
    "cp932": "cp932",
    "ujis": "euc_jp",
    "eucjpms": "euc_jp",
    "euckr": "cp949",
}
"""Python's names of character sets whose characters have more than one byte."""


@dataclass(frozen=True)
class Charsets:
    """What a server says of its character sets."""

    collations: Mapping[int, str]
    """The character set of each collation, by its number."""
    tables: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The 256 characters of each set of single bytes: the server's own, as Python's differ from them."""

    def of(self, collation: int | None) -> str | None:
        """Return the character set; None where the log or the server do not say which."""
        return None if collation is None else self.collations.get(collation)

    def can_be_read(self, charset: str | None) -> bool:
        return charset in (*_UTF8, BINARY) or charset in _CODECS or charset in self.tables

    def decoded(self, value: bytes, charset: str) -> str:
        """Return one value as text."""
        if charset in self.tables:
            return "".join(map(self.tables[charset].__getitem__, value))
        return value.decode(_CODECS.get(charset, "utf-8"))

    def as_utf8(self, data: Bytes, offsets: Ints, charset: str) -> tuple[Bytes, Ints]:
        """Return values that follow one another, and where each begins, as UTF-8. `offsets` has one entry more than
        there are values."""
        if charset in self.tables:
            characters, widths, has_ascii = _utf8_of(tuple(self.tables[charset]))
            if has_ascii and not (data & 0x80).any():
                return data, offsets
            width = widths[data]
            ends = np.concatenate([[0], np.cumsum(width)])
            chosen = np.arange(3)[None, :] < width[:, None]
            return characters[data][chosen], ends[offsets]
        # No way to find the ends of values after all are decoded at once: these sets are few tables' and old.
        whole = data.tobytes()
        codec = _CODECS[charset]
        values = [whole[start:end].decode(codec).encode() for start, end in pairwise(offsets.tolist())]
        lengths = np.fromiter(map(len, values), dtype=np.int64, count=len(values))
        return np.frombuffer(b"".join(values), dtype=np.uint8), np.concatenate([[0], np.cumsum(lengths)])


def is_utf8(charset: str) -> bool:
    return charset in _UTF8


@lru_cache(maxsize=64)
def _utf8_of(table: tuple[str, ...]) -> tuple[Bytes, Ints, bool]:
    """Return each byte's character in UTF-8, shape (256, 3), how many bytes that is, and whether the first half is
    ASCII."""
    encoded = [it.encode() for it in table]
    characters = np.zeros((256, 3), dtype=np.uint8)
    for at, it in enumerate(encoded):
        characters[at, : len(it)] = list(it)
    has_ascii = encoded[:128] == [bytes([it]) for it in range(128)]
    return characters, np.array([len(it) for it in encoded], dtype=np.int64), has_ascii
