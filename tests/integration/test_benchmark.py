"""The benchmark measures both systems, and notices where their ends are not equal."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest

from benchmarks.drains import measure
from benchmarks.ends import Servers, opened
from benchmarks.modes import measured_modes
from benchmarks.results import Phase
from benchmarks.workloads import vendor_scenario
from sandbox.embedded_postgres import PostgresServer
from sandbox.site import execute

_ROWS = 300


def test_a_backlog_is_drained_by_both_and_the_ends_are_compared(
    postgres: PostgresServer, tmp_path: Path, spark: Any
) -> None:
    servers, scenario, modes = Servers(postgres, postgres), vendor_scenario(_ROWS), measured_modes()
    with opened(servers, scenario, modes, tmp_path / "store", spark) as ends:
        measured = measure(ends, servers, scenario.workloads[0], 0)
        assert [(it.mode, it.phase) for it in measured] == list(product(modes, Phase))
        # The last one is the marker.
        assert {it.changes for it in measured} == {_ROWS + 1}
        assert all(it.seconds > 0 and it.reference_seconds > 0 for it in measured)
        assert {"read", "decode", "transform", "store"} <= measured[0].phases.keys()
        assert all((it.stored_bytes or 0) > _ROWS for it in measured if it.phase is Phase.LOG_READER)

        execute(ends.subscribers(modes[-1])[0], "UPDATE vendor SET name = 'another' WHERE vendor_id = 7")
        with pytest.raises(AssertionError, match="differ in vendor"):
            ends.check_equal()
