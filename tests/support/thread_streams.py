"""The streams of a delivery as threads of this process: the real ones, on real connections, without Spark."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.compute as pc

from tranrepl.distribution import draining
from tranrepl.distribution.delivery import Delivery
from tranrepl.distribution.stream_commands import STREAM_COMMANDS, Divider, stream_pieces
from tranrepl.distribution.streams import StreamDelivery, Vote, deliver_stream, together
from tranrepl.errors import TransientError
from tranrepl.jobs.results import JobResult
from tranrepl.subscriber.subscription import Stream

PATIENCE_SECONDS = 300


@dataclass(slots=True)
class Rounds:
    """Where the threads gather their ballots."""

    streams: int
    barrier: threading.Barrier = field(init=False)
    ballots: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self.barrier = threading.Barrier(self.streams, timeout=PATIENCE_SECONDS)
        self.ballots = [""] * self.streams

    def gather(self, stream: int, ballot: str) -> Sequence[str]:
        self.ballots[stream] = ballot
        self.barrier.wait()
        gathered = list(self.ballots)
        self.barrier.wait()
        return gathered


@dataclass(frozen=True, slots=True)
class ThreadVote:
    rounds: Rounds
    stream: int

    def gather(self, ballot: str) -> Sequence[str]:
        return self.rounds.gather(self.stream, ballot)


class DyingVote:
    """Stream 0 never comes back from the round in which the others have committed."""

    def __init__(self, vote: Vote) -> None:
        self._vote = vote
        self._rounds = 0

    def gather(self, ballot: str) -> Sequence[str]:
        self._rounds += 1
        gathered = self._vote.gather(ballot)
        if self._rounds == 3:
            raise TransientError("killed")
        return gathered


def deliver_in_threads(
    delivery: Delivery,
    commands: pa.Table,
    divider: Divider,
    *,
    chosen: Sequence[int] | None = None,
    vote: Callable[[Vote, int], Vote] = lambda vote, stream: vote,  # noqa: ARG005
) -> JobResult:
    """Deliver in threads; `chosen` gives each command's stream, whatever the divider says. `vote` may change a stream's
    vote.
    """
    divided = pa.Table.from_batches(list(divider(commands.to_batches())), STREAM_COMMANDS)
    if chosen is not None:
        divided = _with_streams(divided, chosen)
    rounds = Rounds(divider.streams)

    def run(stream: int) -> JobResult:
        own = divided.filter(pc.equal(divided["stream"], stream))
        own = own.sort_by([("xact_seqno", "ascending"), ("command_id", "ascending")])
        place = Stream(stream, divider.streams)
        return deliver_stream(
            delivery, place, stream_pieces(own.to_batches()), vote(ThreadVote(rounds, stream), stream)
        )

    with ThreadPoolExecutor(divider.streams) as pool:
        return together(list(pool.map(run, range(divider.streams))))


def _with_streams(divided: pa.Table, chosen: Sequence[int]) -> pa.Table:
    streams, given = divided["stream"].to_pylist(), iter(chosen)
    marked = divided["transactions"].is_valid().to_pylist()
    changed = [stream if mark else next(given) for stream, mark in zip(streams, marked, strict=True)]
    at = divided.schema.get_field_index("stream")
    return divided.set_column(at, "stream", pa.array(changed, pa.int32()))


@contextmanager
def streams_as_threads() -> Iterator[None]:
    """Start threads in the place of the barrier stage, whose tasks Spark alone starts together, while it lasts."""
    with patch.object(draining, "deliver_over_streams", _deliver_in_threads):
        yield


def _deliver_in_threads(commands: Any, divider: Divider, delivery: StreamDelivery) -> JobResult:
    stored = pa.Table.from_batches(list(commands.stored.commands()))
    return deliver_in_threads(delivery.delivery, stored, divider)
