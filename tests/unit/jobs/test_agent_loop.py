"""What ends a run of an agent before all is done."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from tranrepl.agent_loop import AgentRun
from tranrepl.jobs.shutdown import Shutdown, ShutdownRequest


class _Run(AgentRun):
    shutdown_grace_seconds = 0.0
    verb = "done"

    def drain(self, *, last: bool) -> None:
        raise NotImplementedError


@pytest.mark.parametrize("minutes", [None, 5], ids=["run", "continuous"])
def test_a_shutdown_cuts_continuous_runs_alone(minutes: int | None) -> None:
    # The retry of a failed batch is a run: cut short, it would end well with the batch undone.
    until = None if minutes is None else datetime.now(UTC) + timedelta(minutes=minutes)
    nothing, request = cast("Any", None), ShutdownRequest()
    run = _Run(nothing, nothing, nothing, Shutdown(until, request))
    assert not run.is_cut_short()
    request.ask()
    assert run.is_cut_short() is (minutes is not None)
