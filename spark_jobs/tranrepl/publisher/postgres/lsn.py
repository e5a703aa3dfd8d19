"""Log sequence numbers: PostgreSQL's positions. Integers in this folder, as in 16/B374D848 to people."""

from __future__ import annotations

import re

from tranrepl.model.position import POSITION_BYTES, Position


def lsn_text(lsn: int) -> str:
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def lsn_number(text: str) -> int:
    high, low = text.split("/")
    return int(high, 16) << 32 | int(low, 16)


def position_of(lsn: int) -> Position:
    """Return it as neutral code has it."""
    return Position(seqno_of(lsn))


def lsn_of(position: Position) -> int:
    return int.from_bytes(position.value, "big")


def seqno_of(commit_lsn: int) -> bytes:
    """Return the `xact_seqno` of the transaction whose commit record begins there: a multiple of eight bytes."""
    return commit_lsn.to_bytes(POSITION_BYTES, "big")


class LsnPositions:
    """A transaction's `xact_seqno` is the LSN of its commit record; a position is an LSN before which all is meant."""

    def text(self, position: Position) -> str:
        return lsn_text(lsn_of(position))

    def parse(self, text: str) -> Position:
        if not re.fullmatch(r"[0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8}", text):
            raise ValueError("allowed: an LSN, as in 16/B374D848")
        return position_of(lsn_number(text))

    def watermark(self, position: Position) -> bytes:
        return seqno_of(max(lsn_of(position), 1) - 1)

    def share(self, start: Position, end: Position, at: bytes) -> float:
        first, last = lsn_of(start), lsn_of(end)
        return min(1.0, max(0.0, (int.from_bytes(at, "big") - first) / max(1, last - first)))
