"""The result of a task or a run in a few words: "delivered 804 commands, latency 3.1 s".

Of a task, Airflow's list of task instances shows them in the column Map Index, which only mapped tasks use otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from airflow.sdk import Context

from tranrepl.printable import counted, duration

TEMPLATE = "{{ summary | default('') }}"
"""The `map_index_template` of a task that says what it did. Airflow renders it once more when the task has ended."""


def summarize(context: Context, words: str) -> None:
    """Let the task's instance show these words."""
    cast("dict[str, Any]", context)["summary"] = words


def delivered_in_words(commands: int, latency_ms: int | None) -> str:
    """Return what a delivery did, with its latency where it delivered."""
    if not commands:
        return "nothing to deliver"
    latency = f", latency {duration(latency_ms / 1000)}" if latency_ms is not None else ""
    return f"delivered {counted(commands, 'command')}{latency}"


def run_in_words(delivery: Mapping[str, Any]) -> str:
    """Return what all attempts of one run did; `delivery` is a Delivery's fields."""
    rows, repaired, skipped = delivery["snapshot_rows"], sum(delivery["repaired"].values()), delivery["skipped"]
    parts = [
        f"snapshot of {counted(rows, 'row')}" if rows else "",
        delivered_in_words(delivery["commands"], delivery["latency_ms"]),
        f"repaired {counted(repaired, 'row')}" if repaired else "",
        f"skipped {counted(skipped, 'command')}" if skipped else "",
    ]
    return ", ".join(filter(None, parts))
