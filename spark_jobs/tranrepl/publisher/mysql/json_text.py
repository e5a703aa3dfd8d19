"""MySQL's binary JSON as the server writes it as text."""

from __future__ import annotations

import base64
import struct

from tranrepl.errors import DataError
from tranrepl.publisher.mysql.table_maps import decimal_bytes

_LITERALS = {0: "null", 1: "true", 2: "false"}
_NUMBERS = {5: "<h", 6: "<H", 7: "<i", 8: "<I", 9: "<q", 10: "<Q"}
_INLINE = {4: 1, 5: 2, 6: 2}
_INLINE_IN_LARGE = {**_INLINE, 7: 4, 8: 4}
_ESCAPES = {
    **{at: f"\\u{at:04x}" for at in range(32)},
    ord('"'): '\\"',
    ord("\\"): "\\\\",
    8: "\\b",
    9: "\\t",
    10: "\\n",
    12: "\\f",
    13: "\\r",
}
_DECIMAL, _TIMES, _TIME, _DATE = 246, (12, 7), 11, 10


def json_text(value: bytes) -> str:
    """Return a document. Raises DataError where it is none."""
    if not value:
        return "null"
    try:
        return _value(value[0], value[1:])
    except (IndexError, KeyError, struct.error, UnicodeDecodeError) as error:
        raise DataError("a JSON value of the binary log cannot be read") from error


def _value(kind: int, data: bytes) -> str:
    if kind in (0, 1, 2, 3):
        return _container(data, is_object=kind < 2, is_large=kind % 2 == 1)
    if kind == 4:
        return _LITERALS[data[0]]
    if kind in _NUMBERS:
        return str(struct.unpack_from(_NUMBERS[kind], data)[0])
    if kind == 11:
        return double_text(struct.unpack_from("<d", data)[0])
    if kind == 12:
        length, at = _length(data, 0)
        return _quoted(data[at : at + length].decode())
    if kind == 15:
        length, at = _length(data, 1)
        return _opaque(data[0], data[at : at + length])
    raise KeyError(kind)


def _container(data: bytes, *, is_object: bool, is_large: bool) -> str:
    width, form = (4, "<I") if is_large else (2, "<H")
    (count,) = struct.unpack_from(form, data)
    at = 2 * width
    keys: list[str] = []
    if is_object:
        for number in range(count):
            (start,) = struct.unpack_from(form, data, at + number * (width + 2))
            (length,) = struct.unpack_from("<H", data, at + number * (width + 2) + width)
            keys.append(_quoted(data[start : start + length].decode()))
        at += count * (width + 2)
    inline = _INLINE_IN_LARGE if is_large else _INLINE
    values = []
    for number in range(count):
        entry = at + number * (1 + width)
        kind = data[entry]
        if kind in inline:
            values.append(_value(kind, data[entry + 1 : entry + 1 + width]))
        else:
            (start,) = struct.unpack_from(form, data, entry + 1)
            values.append(_value(kind, data[start:]))
    if is_object:
        return "{" + ", ".join(f"{key}: {value}" for key, value in zip(keys, values, strict=True)) + "}"
    return "[" + ", ".join(values) + "]"


def _length(data: bytes, at: int) -> tuple[int, int]:
    """Return a length of seven bits a byte, and where what it measures begins."""
    length = shift = 0
    while True:
        byte = data[at]
        at += 1
        length |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return length, at


def _quoted(text: str) -> str:
    return f'"{text.translate(_ESCAPES)}"'


def double_text(value: float) -> str:
    """Return the shortest digits: without an exponent from 1e-15 on and before 1e15, and with a fraction there."""
    mantissa, _, exponent = f"{value!r}".partition("e")
    if not exponent:
        text = mantissa
    else:
        sign, digits = mantissa[: mantissa.startswith("-")], mantissa.lstrip("-").replace(".", "")
        power = int(exponent)
        if -15 <= power < 0:
            return f"{sign}0.{'0' * (-power - 1)}{digits}"
        return f"{mantissa}e{power}"
    whole, _, rest = text.partition(".")
    if len(whole.lstrip("-")) > 15 and rest == "0":
        digits = whole.lstrip("-")
        shown = digits.rstrip("0")
        tail = f".{shown[1:]}" if len(shown) > 1 else ""
        return f"{whole[: whole.startswith('-')]}{shown[0]}{tail}e{len(digits) - 1}"
    return text


def _opaque(kind: int, data: bytes) -> str:
    if kind == _DECIMAL:
        return _decimal(data)
    if kind in (*_TIMES, _TIME, _DATE):
        return f'"{_moment(kind, int.from_bytes(data[:8], "little", signed=True))}"'
    return f'"base64:type{kind}:{base64.b64encode(data).decode()}"'


def _decimal(data: bytes) -> str:
    """Return a DECIMAL: its precision, its scale, and groups of digits with the sign in their first bit."""
    whole, scale = data[0] - data[1], data[1]
    raw = bytearray(data[2:])
    sign = "" if raw[0] & 0x80 else "-"
    raw[0] ^= 0x80
    if sign:
        raw = bytearray(it ^ 0xFF for it in raw)
    digits = []
    for count in (whole % 9, *[9] * (whole // 9), *[9] * (scale // 9), scale % 9):
        width = decimal_bytes(count)
        digits.append(f"{int.from_bytes(raw[:width], 'big'):0{count}}" if count else "")
        del raw[:width]
    text = "".join(digits)
    before = text[:whole].lstrip("0") or "0"
    return f"{sign}{before}.{text[whole:]}" if scale else f"{sign}{before}"


def _moment(kind: int, packed: int) -> str:
    sign, packed = ("-", -packed) if packed < 0 else ("", packed)
    micros, value = packed & 0xFFFFFF, packed >> 24
    clock = f"{value >> 6 & 63:02}:{value & 63:02}.{micros:06}"
    if kind == _TIME:
        return f"{sign}{value >> 12 & 0x3FF:02}:{clock}"
    months = value >> 22
    day = f"{months // 13:04}-{months % 13:02}-{value >> 17 & 31:02}"
    return day if kind == _DATE else f"{day} {value >> 12 & 31:02}:{clock}"
