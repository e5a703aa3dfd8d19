"""Where packets begin, found from many of them at once, is where they begin one after the other."""

from __future__ import annotations

import struct
from random import Random

import numpy as np
import pytest

from tranrepl.publisher.mysql import packets
from tranrepl.publisher.mysql.packets import event_packets


def _packet(body: bytes) -> bytes:
    event = bytes(9) + struct.pack("<I", 19 + len(body)) + bytes(6) + body
    return (len(event) + 1).to_bytes(3, "little") + bytes(2) + event


_LARGE = (0xF00000 + 1).to_bytes(3, "little") + bytes(2) + bytes(9) + struct.pack("<I", 0xF00000) + bytes(6)
"""The beginning of a packet that goes on far behind whatever it is in."""


def _bodies(random: Random, what: str) -> list[bytes]:
    """Return what events say: much of it looks like events."""
    match what:
        case "small":
            return [random.randbytes(random.randrange(300)) for _ in range(3000)]
        case "of many sizes":
            return [random.randbytes(random.choice((1, 30, 8000, 60_000))) for _ in range(60)]
        case "events in events":
            return [b"".join(_packet(random.randbytes(it)) for it in range(random.randrange(30))) for _ in range(600)]
        case "large ones in small ones":
            return [_LARGE * random.randrange(4) + random.randbytes(random.randrange(100)) for _ in range(3000)]
        case _:
            return [_packet(bytes(random.randrange(50)))[at:] for at in (0, 0, 1, 5) for _ in range(3000)]


@pytest.mark.parametrize(
    "what", ["small", "of many sizes", "events in events", "large ones in small ones", "parts of events"]
)
def test_packets_begin_where_the_ones_before_end(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    for seed in range(20):
        random = Random(seed)
        monkeypatch.setattr(packets, "_LANE_BYTES", random.choice((2048, 4096, 16 << 10)))
        before = random.randbytes(random.randrange(20))
        stream = [_packet(it) for it in _bodies(random, what)]
        begins = np.cumsum([len(before), *map(len, stream)])
        filled = int(begins[-1]) - random.choice((0, 1, len(stream[-1]) - 3))
        whole = begins[begins <= filled]
        data = np.frombuffer(bytearray(before + b"".join(stream)), dtype=np.uint8)
        found, end = event_packets(data, len(before), filled)
        assert end == whole[-1]
        assert found.tolist() == whole[:-1].tolist()
