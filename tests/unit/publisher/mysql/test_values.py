"""Values of a binary log are what their server writes as text."""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tranrepl.publisher.changes import NULL
from tranrepl.publisher.mysql.charsets import Charsets
from tranrepl.publisher.mysql.row_places import Images, LogBytes
from tranrepl.publisher.mysql.table_maps import ColumnType, LoggedColumn
from tranrepl.publisher.mysql.value_text import column_texts

_HERE = Path(__file__).parent
_SINGLE_BYTE = {"latin1": "cp1252", "latin2": "iso8859_2", "latin5": "iso8859_9", "latin7": "iso8859_13"} | {
    it: it for it in ("cp1250", "cp1251", "cp1256", "cp1257", "cp850", "cp852", "cp866", "koi8_r", "koi8_u")
}
_NAMES = {"koi8_r": "koi8r", "koi8_u": "koi8u"}


def _table(codec: str) -> list[str]:
    """Return 256 characters as a server gives them: of what Python has no character, the one of the same number."""
    found = []
    for number in range(256):
        try:
            found.append(bytes([number]).decode(codec))
        except UnicodeDecodeError:
            found.append(chr(number))
    return found


_TABLES = {_NAMES.get(name, name): _table(codec) for name, codec in _SINGLE_BYTE.items()}


def _values(file: str) -> list[dict[str, Any]]:
    return [it for it in json.loads((_HERE / file).read_text()) if it["type"] != "row"]


def _charset(value: dict[str, Any]) -> str:
    if "charset" in value:
        return str(value["charset"])
    named = re.search(r"character set (\w+)", value["type"])
    is_bytes = re.match(r"(var)?binary|\w*blob|uuid|inet", value["type"])
    return named[1] if named else "binary" if is_bytes else "utf8mb4"


def _unpacked(value: dict[str, Any], key: str) -> bytes | None:
    packed = value.get(f"{key}_zlib_base64")
    if packed is not None:
        return zlib.decompress(base64.b64decode(packed))
    if value.get("null"):
        return None
    if key == "text":
        text = value.get("text_as_double", value["text"])
        return None if text is None else str(text).encode()
    found = value.get("bytes_hex")
    return None if found is None else bytes.fromhex(found)


def _labels(value: dict[str, Any]) -> tuple[bytes, ...]:
    if isinstance(value.get("values"), str):
        return tuple(f"v{at}".encode() for at in range(300))
    in_hex = value.get("values_hex") or value.get("values")
    if in_hex is None:
        return tuple(it.encode() for it in re.findall(r"'([^']*)'", value["type"]))
    return tuple(bytes.fromhex(it) for it in in_hex)


def _column(value: dict[str, Any]) -> LoggedColumn:
    return LoggedColumn(
        ColumnType(value["real_type"]),
        bytes.fromhex(value["metadata_hex"]),
        True,
        "c",
        bool(value.get("unsigned")),
        1,
        _labels(value),
    )


def _read(value: dict[str, Any], count: int = 3) -> list[str | None]:
    """Return the value as it is read so many times at once, with a NULL between."""
    data = _unpacked(value, "bytes")
    if data is None:
        return [None] * count
    column = _column(value)
    size = int.from_bytes(data[: column.length_bytes], "little") if column.length_bytes else len(data)
    whole = np.frombuffer(b"\xaa" + data * count, dtype=np.uint8)
    starts = 1 + column.length_bytes + len(data) * np.arange(count)
    lengths = np.full(count, size)
    lengths[1] = NULL
    charset = _charset(value)
    log = LogBytes(whole)
    texts = column_texts(log, column, value["type"].split("(")[0], starts, lengths, Charsets({1: charset}, _TABLES))
    made = log.bytes if texts.made is None else texts.made
    assert (np.diff(texts.starts) >= 0).all()
    return [
        None if length == NULL else made[start : start + length].tobytes().decode()
        for start, length in zip(texts.starts.tolist(), texts.lengths.tolist(), strict=True)
    ]


def _each() -> Iterator[Any]:
    for file in ("mariadb_values.json", "mysql_values.json"):
        for at, value in enumerate(_values(file)):
            yield pytest.param(value, id=f"{file[:-12]}-{at}-{value['type'][:40]}")


@pytest.mark.parametrize("value", list(_each()))
def test_a_value_is_its_servers_text(value: dict[str, Any]) -> None:
    text = _unpacked(value, "text")
    expected = None if text is None else text.decode()
    if value["type"].startswith("vector") and expected is not None:
        expected = np.array(json.loads(expected), dtype="<f4").tobytes().hex().upper()
    assert _read(value) == [expected, None, expected]


@pytest.mark.parametrize("stored", [b"\x00ab", b"\x81\x02" + zlib.compress(b"ab")])
def test_compressed_bytes_have_the_mark_of_bytes(stored: bytes) -> None:
    column = LoggedColumn(ColumnType.BLOB_COMPRESSED, b"\x01", nullable=True, collation=1)
    texts = column_texts(
        LogBytes(np.frombuffer(stored, dtype=np.uint8)),
        column,
        "bytea",
        np.array([0]),
        np.array([len(stored)]),
        Charsets({1: "binary"}),
    )
    assert texts.made is not None
    assert texts.made.tobytes() == rb"\x6162"


@pytest.mark.parametrize("length", range(18))
def test_a_column_that_one_byte_changes_is_not_the_same(length: int) -> None:
    value = bytes(range(length))
    others = [value, *(value[:at] + b"\xff" + value[at + 1 :] for at in range(length))]
    # What lies behind a value is no part of it.
    log = LogBytes(np.frombuffer(b"".join(it + bytes([at]) * 9 for at, it in enumerate(others)), dtype=np.uint8))
    is_same = [_image(0, length).are_same(log, _image(at * (length + 9), length), 0) for at in range(len(others))]
    assert is_same == [length <= 16, *[False] * length]
    assert _image(0, NULL).are_same(log, _image(9, NULL), 0)
    assert not _image(0, NULL).are_same(log, _image(0, length), 0)


def _image(start: int, length: int) -> Images:
    return Images(np.array([[start]]), np.array([[length]]), np.array([start + length]))
