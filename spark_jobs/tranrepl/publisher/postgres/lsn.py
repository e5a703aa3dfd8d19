"""Log sequence numbers: integers here, as in 16/B374D848 to PostgreSQL."""

from __future__ import annotations


def lsn_text(lsn: int) -> str:
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def lsn_number(text: str) -> int:
    high, low = text.split("/")
    return int(high, 16) << 32 | int(low, 16)
