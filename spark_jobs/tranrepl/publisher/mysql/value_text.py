"""Values of a binary log as the server writes them as text, a column at a time.

What is made here lies in rows of one width, or close together; a cell is a place and a length in it. Text in UTF-8
stays where it is in the log.
"""

from __future__ import annotations

import socket
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv4Address

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tranrepl.errors import DataError
from tranrepl.model.arrays import Bytes, Ints
from tranrepl.publisher.changes import NULL
from tranrepl.publisher.mysql.charsets import BINARY, Charsets, is_utf8
from tranrepl.publisher.mysql.json_text import json_text
from tranrepl.publisher.mysql.row_places import LogBytes
from tranrepl.publisher.mysql.table_maps import ColumnType, LoggedColumn, decimal_bytes


@dataclass(frozen=True, slots=True)
class Texts:
    """Cells of one column: where each begins in `made`, and its length or NULL. They lie in the log itself where
    nothing was made."""

    made: Bytes | None
    starts: Ints
    lengths: Ints


def column_texts(
    data: LogBytes, column: LoggedColumn, type_name: str, starts: Ints, lengths: Ints, charsets: Charsets
) -> Texts:
    """Return the values at these places as text. `type_name` is the type in the server's catalogue, which knows more
    than the log does."""
    live = lengths != NULL
    if live.all():
        return _texts(data, column, type_name, starts, lengths, charsets)
    if not live.any():
        return Texts(None, np.zeros(len(starts), dtype=np.int64), lengths)
    found = _texts(data, column, type_name, starts[live], lengths[live], charsets)
    # A cell without a value lies where the one before it does: cells stay in the order of their buffer.
    before = np.maximum(np.cumsum(live) - 1, 0)
    at = found.starts[before]
    all_lengths = np.full(len(starts), NULL, dtype=np.int64)
    all_lengths[live] = found.lengths
    ends = at + found.lengths[before]
    first = np.cumsum(live) == 0
    return Texts(found.made, np.where(live | first, at, ends), all_lengths)


BYTES = "bytea"
_MARK = "\\x"
"""What bytes begin with in neutral code's text form."""
_INET4_BYTES = 4
_INTEGERS = {
    ColumnType.TINY: 1,
    ColumnType.SHORT: 2,
    ColumnType.INT24: 3,
    ColumnType.LONG: 4,
    ColumnType.LONGLONG: 8,
}


def _texts(  # noqa: C901 — a table of types
    data: LogBytes, column: LoggedColumn, type_name: str, starts: Ints, lengths: Ints, charsets: Charsets
) -> Texts:
    match column.type:
        case ColumnType.TINY | ColumnType.SHORT | ColumnType.INT24 | ColumnType.LONG | ColumnType.LONGLONG:
            return _integers(data, column, starts)
        case ColumnType.BIT:
            return _of_strings(pa.array(data.big(starts, column.bytes).view(np.uint64)).cast(pa.string()))
        case ColumnType.FLOAT | ColumnType.DOUBLE:
            return _of_strings(_floats(_reals(data, column, starts)))
        case ColumnType.DECIMAL:
            return _decimals(data, column, starts)
        case ColumnType.YEAR:
            year = data.number(starts, 1)
            return _fixed(_FOUR[np.where(year == 0, 0, year + 1900)])
        case ColumnType.DATE:
            return _dates(data, starts)
        case ColumnType.TIME:
            return _times(data, column, starts)
        case ColumnType.DATETIME:
            return _datetimes(data, column, starts)
        case ColumnType.TIMESTAMP:
            return _timestamps(data, column, starts)
        case ColumnType.ENUM:
            return _enum_labels(column, data.number(starts, column.bytes), charsets)
        case ColumnType.SET:
            return _set_labels(column, data.number(starts, column.bytes), charsets)
        case ColumnType.GEOMETRY | ColumnType.VECTOR:
            return _hexadecimal(data, starts, lengths, type_name)
        case ColumnType.JSON:
            return _each(data, starts, lengths, json_text)
        case ColumnType.BLOB_COMPRESSED | ColumnType.VARCHAR_COMPRESSED:
            return _each(
                data,
                starts,
                lengths,
                partial(_inflated, type_name=type_name, charset=_charset(column, charsets), of=charsets),
            )
        case _:
            return _characters(data, column, type_name, starts, lengths, charsets)


# Numbers


def _integers(data: LogBytes, column: LoggedColumn, starts: Ints) -> Texts:
    width = _INTEGERS[column.type]
    values = data.number(starts, width)
    if column.unsigned:
        wide: npt.NDArray[np.generic] = values.view(np.uint64) if width == 8 else values
        return _of_strings(pa.array(wide).cast(pa.string()))
    if width < 8:
        shift = 64 - 8 * width
        values = (values << shift) >> shift
    return _of_strings(pa.array(values).cast(pa.string()))


def _reals(data: LogBytes, column: LoggedColumn, starts: Ints) -> npt.NDArray[np.float64]:
    if column.type is ColumnType.FLOAT:
        # As 8 bytes, in whose digits a statement can write it too: the server shows 4 bytes with six digits.
        return data.numbers(starts, "<u4").astype(np.uint32).view(np.float32).astype(np.float64)
    return data.numbers(starts, "<i8").view(np.float64)


def _floats(values: npt.NDArray[np.float64]) -> pa.StringArray:
    """Return the shortest digits: without an exponent from 1e-15 on and before 1e15."""
    texts = pa.array(values).cast(pa.string())
    has_exponent = pc.match_substring(texts, "e")
    if not pc.any(has_exponent).as_py():
        return texts
    parts = pc.extract_regex(texts, r"^(?P<sign>-?)(?P<whole>\d)(?:\.(?P<rest>\d+))?e(?P<exponent>[+-]?\d+)$")
    sign, whole, rest, exponent = (pc.fill_null(pc.struct_field(parts, at), "") for at in range(4))
    power = pc.cast(pc.if_else(has_exponent, pc.replace_substring(exponent, "+", ""), "0"), pa.int64())
    point = pc.if_else(pc.equal(rest, ""), "", ".")
    scientific = pc.binary_join_element_wise(sign, whole, point, rest, "e", pc.cast(power, pa.string()), "")
    texts = pc.if_else(has_exponent, scientific, texts)
    for number in pc.unique(power.filter(has_exponent)).to_pylist():
        if -15 <= number < 15:
            plain = _without_exponent(sign, whole, rest, number)
            texts = pc.if_else(pc.and_(has_exponent, pc.equal(power, number)), plain, texts)
    return texts


def _without_exponent(sign: pa.StringArray, whole: pa.StringArray, rest: pa.StringArray, power: int) -> pa.StringArray:
    if power < 0:
        return pc.binary_join_element_wise(sign, "0.", "0" * (-power - 1), whole, rest, "")
    shifted = pc.utf8_rpad(pc.utf8_slice_codeunits(rest, 0, power), power, "0") if power else ""
    fraction = pc.utf8_slice_codeunits(rest, power)
    point = pc.if_else(pc.equal(fraction, ""), "", ".")
    return pc.binary_join_element_wise(sign, whole, shifted, point, fraction, "")


def _decimals(data: LogBytes, column: LoggedColumn, starts: Ints) -> Texts:
    digits, scale = column.metadata
    whole = digits - scale
    raw = data.bytes[starts[:, None] + np.arange(column.bytes)]
    negative = raw[:, 0] & 0x80 == 0
    raw ^= np.where(negative, 0xFF, 0).astype(np.uint8)[:, None]
    raw[:, 0] ^= 0x80
    # A sign, digits before the point, one of them at least, a point and digits after it.
    before = max(whole, 1)
    shown = np.full((len(starts), 1 + before + (1 + scale if scale else 0)), ord("0"), dtype=np.uint8)
    at = _digits(raw, 0, shown, 1, whole, rest_first=True) if whole else 0
    if scale:
        shown[:, 1 + before] = ord(".")
        _digits(raw, at, shown, 2 + before, scale, rest_first=False)
    significant = shown[:, 1 : 1 + before] != ord("0")
    first = np.where(significant.any(axis=1), significant.argmax(axis=1), before - 1)
    return _trimmed(shown, first + 1, negative)


def _digits(raw: Bytes, at: int, shown: Bytes, to: int, digits: int, *, rest_first: bool) -> int:
    """Write the digits of one side of the point; return where its bytes end. Nine digits are four bytes, and the rest
    is furthest from the point."""
    groups = [9] * (digits // 9)
    rest = [digits % 9] if digits % 9 else []
    for count in [*rest, *groups] if rest_first else [*groups, *rest]:
        value = np.zeros(len(raw), dtype=np.int64)
        for _ in range(decimal_bytes(count)):
            value = (value << 8) | raw[:, at]
            at += 1
        nine = np.concatenate(
            [_THREE[value // 1_000_000 % 1000], _THREE[value // 1000 % 1000], _THREE[value % 1000]], axis=1
        )
        shown[:, to : to + count] = nine[:, 9 - count :]
        to += count
    return at


# Times


def _numerals(width: int) -> Bytes:
    """Return the numbers of so many digits, shape (numbers, width)."""
    numbers = np.arange(10**width)
    places = 10 ** np.arange(width - 1, -1, -1)
    return (numbers[:, None] // places % 10 + ord("0")).astype(np.uint8)


_TWO, _THREE, _FOUR = _numerals(2), _numerals(3), _numerals(4)


def _dates(data: LogBytes, starts: Ints) -> Texts:
    value = data.number(starts, 3)
    return _fixed(_joined(len(starts), _FOUR[value >> 9], "-", _TWO[value >> 5 & 15], "-", _TWO[value & 31]))


def _datetimes(data: LogBytes, column: LoggedColumn, starts: Ints) -> Texts:
    value = data.big(starts, 5) - 0x8000000000
    months = value >> 22 & 0x1FFFF
    return _fixed(
        _joined(
            len(starts),
            *(_FOUR[months // 13], "-", _TWO[months % 13], "-", _TWO[value >> 17 & 31], " "),
            *(_TWO[value >> 12 & 31], ":", _TWO[value >> 6 & 63], ":", _TWO[value & 63]),
            *_fraction(data, column, starts + 5),
        )
    )


def _timestamps(data: LogBytes, column: LoggedColumn, starts: Ints) -> Texts:
    seconds = data.big(starts, 4)
    days = (seconds // 86_400).astype("datetime64[D]")
    months, years = days.astype("datetime64[M]"), days.astype("datetime64[Y]")
    year = years.astype(np.int64) + 1970
    month = (months - years.astype("datetime64[M]")).astype(np.int64) + 1
    day = (days - months.astype("datetime64[D]")).astype(np.int64) + 1
    of_day = seconds % 86_400
    fraction = data.big(starts + 4, column.fraction_bytes)
    zero = (seconds == 0) & (fraction == 0)
    return _fixed(
        _joined(
            len(starts),
            *(_FOUR[np.where(zero, 0, year)], "-", _TWO[np.where(zero, 0, month)], "-"),
            *(_TWO[np.where(zero, 0, day)], " "),
            *(_TWO[of_day // 3600], ":", _TWO[of_day // 60 % 60], ":", _TWO[of_day % 60]),
            *_fraction(data, column, starts + 4),
        )
    )


def _times(data: LogBytes, column: LoggedColumn, starts: Ints) -> Texts:
    bits = 8 * column.fraction_bytes
    value = data.big(starts, column.bytes) - (0x800000 << bits)
    negative = value < 0
    value = np.abs(value)
    seconds, fraction = value >> bits, value & ((1 << bits) - 1)
    hours = seconds >> 12 & 0x3FF
    shown = _joined(
        len(starts),
        *("0", _THREE[hours], ":", _TWO[seconds >> 6 & 63], ":", _TWO[seconds & 63]),
        *_of_second(fraction, column),
    )
    return _trimmed(shown, np.where(hours < 100, 2, 1), negative)


def _fraction(data: LogBytes, column: LoggedColumn, at: Ints) -> tuple[Bytes | str, ...]:
    return _of_second(data.big(at, column.fraction_bytes), column)


def _of_second(fraction: Ints, column: LoggedColumn) -> tuple[Bytes | str, ...]:
    """Return the fraction of a second in as many digits as the column has."""
    digits = column.metadata[0]
    if not digits:
        return ()
    micros = fraction * 100 ** (3 - column.fraction_bytes)
    return (".", np.concatenate([_THREE[micros // 1000 % 1000], _THREE[micros % 1000]], axis=1)[:, :digits])


def _joined(count: int, *pieces: Bytes | str) -> Bytes:
    """Return the pieces beside one another, shape (count, width)."""
    parts = [
        np.tile(np.frombuffer(it.encode(), dtype=np.uint8), (count, 1)) if isinstance(it, str) else it for it in pieces
    ]
    return np.concatenate(parts, axis=1)


# Text and bytes


def _charset(column: LoggedColumn, charsets: Charsets) -> str:
    charset = charsets.of(column.collation)
    if charset is None or not charsets.can_be_read(charset):
        raise DataError(
            f"column {column.name}: its character set ({charset or f'collation {column.collation}'}) cannot be read",
            remedy="give the column the character set utf8mb4",
        )
    return charset


def _characters(
    data: LogBytes, column: LoggedColumn, type_name: str, starts: Ints, lengths: Ints, charsets: Charsets
) -> Texts:
    charset = _charset(column, charsets)
    if is_utf8(charset):
        return Texts(None, starts, lengths)
    if charset != BINARY:
        made, offsets = charsets.as_utf8(*_gathered(data, starts, lengths), charset)
        return Texts(made, offsets[:-1], np.diff(offsets))
    match type_name:
        case "uuid":
            return _uuids(_padded(data, starts, lengths, 16))
        case "inet" | "inet4" | "inet6" if column.most_bytes == _INET4_BYTES:
            return _each_of(_padded(data, starts, lengths, _INET4_BYTES), lambda it: str(IPv4Address(it)))
        case "inet" | "inet6":
            return _each_of(_padded(data, starts, lengths, 16), _inet6)
    if column.type is ColumnType.STRING:
        padded = _HEXADECIMAL[_padded(data, starts, lengths, column.most_bytes)].reshape(len(starts), -1)
        return _fixed(_joined(len(starts), _MARK, padded) if type_name == BYTES else padded)
    return _hexadecimal(data, starts, lengths, type_name)


_HEXADECIMAL = np.array([[ord(it) for it in f"{number:02X}"] for number in range(256)], dtype=np.uint8)


def _hexadecimal(data: LogBytes, starts: Ints, lengths: Ints, type_name: str) -> Texts:
    values, offsets = _gathered(data, starts, lengths)
    digits = _HEXADECIMAL[values].ravel()
    if type_name != BYTES:
        return Texts(digits, 2 * offsets[:-1], 2 * lengths)
    # Each value begins with the mark.
    at = 2 * offsets[:-1] + len(_MARK) * np.arange(len(starts))
    made = np.empty(len(digits) + len(_MARK) * len(starts), dtype=np.uint8)
    is_digit = np.ones(len(made), dtype=np.bool_)
    for place, character in enumerate(_MARK):
        made[at + place] = ord(character)
        is_digit[at + place] = False
    made[is_digit] = digits
    return Texts(made, at, 2 * lengths + len(_MARK))


def _gathered(data: LogBytes, starts: Ints, lengths: Ints) -> tuple[Bytes, Ints]:
    """Return the values one after the other, and where each begins and the last one ends."""
    count = len(starts)
    # What is inflated may be larger than two gigabytes.
    bounds = np.zeros(2 * count + 1, dtype=np.int64)
    bounds[0:-1:2] = starts
    bounds[1::2] = starts + lengths
    bounds[-1] = bounds[-2] if count else 0
    # Every second piece of an array that has what lies between them too: one C++ pass copies them.
    pieces = pa.Array.from_buffers(pa.large_binary(), 2 * count, [None, pa.py_buffer(bounds), pa.py_buffer(data.bytes)])
    _, found, values = pieces.take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int64))).buffers()
    offsets = np.frombuffer(found, dtype=np.int64, count=count + 1)
    return np.frombuffer(values or b"", dtype=np.uint8, count=int(offsets[-1])), offsets


def _padded(data: LogBytes, starts: Ints, lengths: Ints, width: int) -> Bytes:
    """Return the values with the zero bytes at their ends that the log leaves out, shape (values, width)."""
    places = np.arange(width)
    return np.where(places < lengths[:, None], data.bytes[np.minimum(starts[:, None] + places, data.length)], 0).astype(
        np.uint8
    )


_OF_UUID = (8, 4, 4, 4, 12)


def _uuids(values: Bytes) -> Texts:
    shown = _HEXADECIMAL_LOWER[values].reshape(len(values), 32)
    pieces: list[Bytes | str] = []
    at = 0
    for width in _OF_UUID:
        pieces += [shown[:, at : at + width], "-"]
        at += width
    return _fixed(_joined(len(values), *pieces[:-1]))


_HEXADECIMAL_LOWER = np.array([[ord(it) for it in f"{number:02x}"] for number in range(256)], dtype=np.uint8)


def _inet6(value: bytes) -> str:
    """Return an address as the server does, which shortens a single group of zeros, too."""
    text = socket.inet_ntop(socket.AF_INET6, value)
    groups = text.split(":")
    if "::" in text or "0" not in groups:
        return text
    at = groups.index("0")
    return f"{':'.join(groups[:at])}::{':'.join(groups[at + 1 :])}"


def _inflated(value: bytes, type_name: str, charset: str, of: Charsets) -> str:
    """Return a value of a COMPRESSED column: its first byte says whether the rest is compressed, and in how many bytes
    its length follows."""
    if value:
        count = value[0] & 7
        value = (
            value[1:] if value[0] == 0 else zlib.decompress(value[1 + count :], -zlib.MAX_WBITS if value[0] & 8 else 15)
        )
    if charset != BINARY:
        return of.decoded(value, charset)
    return f"{_MARK if type_name == BYTES else ''}{value.hex().upper()}"


# Labels


def _enum_labels(column: LoggedColumn, numbers: Ints, charsets: Charsets) -> Texts:
    charset = _charset(column, charsets)
    # Number 0 is the value that is none of them.
    labels = pa.array(["", *(charsets.decoded(it, charset) for it in column.labels)])
    return _of_strings(labels.take(pa.array(numbers)))


def _set_labels(column: LoggedColumn, masks: Ints, charsets: Charsets) -> Texts:
    charset = _charset(column, charsets)
    labels = [charsets.decoded(it, charset) for it in column.labels]
    chosen, index = np.unique(masks, return_inverse=True)
    texts = [",".join(it for at, it in enumerate(labels) if mask >> at & 1) for mask in chosen.tolist()]
    return _of_strings(pa.array(texts, pa.string()).take(pa.array(index)))


# Cells


def _of_strings(array: pa.StringArray) -> Texts:
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    _, offsets_of, made = array.buffers()
    offsets = np.frombuffer(offsets_of, dtype=np.int32)[array.offset : array.offset + len(array) + 1].astype(np.int64)
    data = np.frombuffer(made, dtype=np.uint8) if made is not None else np.zeros(0, dtype=np.uint8)
    return Texts(data, offsets[:-1], np.diff(offsets))


def _fixed(shown: Bytes) -> Texts:
    count, width = shown.shape
    return Texts(shown.ravel(), np.arange(count, dtype=np.int64) * width, np.full(count, width, dtype=np.int64))


def _trimmed(shown: Bytes, first: Ints, negative: npt.NDArray[np.bool_]) -> Texts:
    """Return the rows from the character `first` on, with a sign before it where it is negative."""
    count, width = shown.shape
    rows = np.flatnonzero(negative)
    shown[rows, first[rows] - 1] = ord("-")
    first = first - negative
    return Texts(shown.ravel(), np.arange(count, dtype=np.int64) * width + first, width - first)


def _each(data: LogBytes, starts: Ints, lengths: Ints, text: Callable[[bytes], str]) -> Texts:
    """Return values that have no form that many of them can be read in at once."""
    whole = data.bytes.data
    values = [
        text(bytes(whole[start : start + length]))
        for start, length in zip(starts.tolist(), lengths.tolist(), strict=True)
    ]
    return _of_strings(pa.array(values, pa.string()))


def _each_of(values: Bytes, text: Callable[[bytes], str]) -> Texts:
    return _of_strings(pa.array([text(it.tobytes()) for it in values], pa.string()))
