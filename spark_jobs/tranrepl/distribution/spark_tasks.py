"""Deliveries in Spark's tasks: over one connection, or over several streams at once."""

from __future__ import annotations

from collections.abc import Sequence

from tranrepl.distribution.delivery import RESULT_DDL, Delivery
from tranrepl.distribution.stored_batches import Commands
from tranrepl.distribution.stream_commands import STREAM_COMMANDS_DDL, Divider
from tranrepl.distribution.streams import StreamDelivery, together
from tranrepl.errors import InternalError
from tranrepl.jobs.results import JobResult


def deliver_over_one_connection(commands: Commands, delivery: Delivery) -> JobResult:
    """Deliver by one task, and return its result."""
    (result,) = _results(commands.delivered(delivery), 1)
    return result


def deliver_over_streams(commands: Commands, divider: Divider, delivery: StreamDelivery) -> JobResult:
    """Deliver by a task for each stream, all at once, and return their results as one."""
    from pyspark.sql import functions as F  # noqa: N812

    divided = (
        commands.mapped(divider, STREAM_COMMANDS_DDL)
        .repartitionById(delivery.streams, F.col("stream"))
        .sortWithinPartitions("xact_seqno", "command_id")
    )
    delivered = divided.mapInArrow(delivery, RESULT_DDL, barrier=True).collect()
    return together(_results([row["result"] for row in delivered], delivery.streams))


def _results(delivered: Sequence[str], connections: int) -> list[JobResult]:
    """Return the result of each connection."""
    if len(delivered) != connections:
        raise InternalError(f"a delivery over {connections} connections gave {len(delivered)} results")
    return [JobResult.model_validate_json(result) for result in delivered]
