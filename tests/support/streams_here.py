"""The streams of a delivery as threads of this process, where the job itself runs without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pyarrow as pa

from support.thread_streams import deliver_in_threads
from tranrepl.distribution import draining
from tranrepl.distribution.stream_commands import Divider
from tranrepl.distribution.streams import StreamDelivery
from tranrepl.jobs.results import JobResult


@contextmanager
def streams_as_threads() -> Iterator[None]:
    """Start threads in the place of the barrier stage, whose tasks Spark alone starts together, while it lasts."""
    with patch.object(draining, "deliver_over_streams", _deliver_in_threads):
        yield


def _deliver_in_threads(commands: Any, divider: Divider, delivery: StreamDelivery) -> JobResult:
    stored = pa.Table.from_batches(list(commands.stored.commands()))
    return deliver_in_threads(delivery.delivery, stored, divider)
