"""The socket at which streams meet: everyone hears everyone, strangers nothing, and who is left alone learns it."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from tranrepl.distribution.all_gather_server import AllGatherServer
from tranrepl.errors import TransientError


@pytest.mark.parametrize(
    "said", [b"", b"\n", b"not json\n", b'["wrong token", "0"]\n', b'["\xc3\xa9", "0"]\n', b"[1]\n"]
)
def test_streams_hear_one_another_whoever_else_comes(said: bytes) -> None:
    with AllGatherServer("127.0.0.1", "127.0.0.1", 2) as place:
        with socket.create_connection((place.address.host, place.address.port)) as stranger:
            stranger.sendall(said)
            stranger.shutdown(socket.SHUT_WR)
            assert stranger.recv(100) == b""
        votes = [place.address.join(stream) for stream in (1, 0)]
        with ThreadPoolExecutor(2) as pool:
            for turn in ("first", "second"):
                heard = list(
                    pool.map(lambda it, turn=turn: it[1].gather(f"{turn} {it[0]}"), zip((1, 0), votes, strict=True))
                )
                assert heard == [[f"{turn} 0", f"{turn} 1"]] * 2
        for vote in votes:
            vote.close()


def test_who_waits_for_a_stream_that_is_gone_learns_it() -> None:
    with AllGatherServer("127.0.0.1", "127.0.0.1", 2) as place:
        gone, waiting = place.address.join(0), place.address.join(1)
        gone.close()
        with pytest.raises(TransientError, match="another stream's process was lost"):
            waiting.gather("")
        waiting.close()


def test_a_driver_that_is_gone_is_a_transient_error() -> None:
    with AllGatherServer("127.0.0.1", "127.0.0.1", 2) as place:
        alone = place.address.join(0)
    with pytest.raises(TransientError):
        alone.gather("")
    alone.close()
    with pytest.raises(TransientError, match="cannot reach its driver"):
        place.address.join(1)
