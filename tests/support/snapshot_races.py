"""Statements of somebody else at one point of a snapshot, or of the delivery after it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from support.site import Site
from support.statement_beside import BOUND_SECONDS, statement_beside
from tranrepl.distribution import delivery
from tranrepl.errors import FencedError, TransientError
from tranrepl.failpoint import Failpoint
from tranrepl.snapshot import initialization
from tranrepl.subscriber.base import snapshot as generic_loading
from tranrepl.subscriber.postgres import snapshot as loading

_MOST_TURNS = 8


@dataclass(frozen=True, slots=True)
class Race:
    point: Failpoint
    read_log: bool
    """The log reader registers what they did before the job goes on."""


@contextmanager
def racing_statements(
    site: Site, race: Race, statements: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Execute them at the Publisher when a job in this context comes to the point first; wait until they are done, or
    wait for the job. See that they were executed, and did not wait for long.
    """
    reached: list[Failpoint] = []
    with statement_beside(site.databases.publisher) as beside, monkeypatch.context() as patch:

        def reach(point: Failpoint, _stream: int = 0) -> None:
            if point is race.point and not reached:
                reached.append(point)
                beside.start(*statements)
                if race.read_log:
                    site.read_log().raise_error()

        for module in (initialization, loading, generic_loading, delivery):
            patch.setattr(module, "reach", reach)
        yield
        assert reached, race
        assert max(beside.seconds()) < BOUND_SECONDS, race


def run_until_settled(site: Site) -> None:
    """Read the log, take snapshots and deliver, again and again as a schedule does, until a turn has nothing to do."""
    for _ in range(_MOST_TURNS):
        try:
            read = site.read_log()
            read.raise_error()
            taken = site.take_snapshot()
            delivered = site.deliver()
            delivered.raise_error()
        except (TransientError, FencedError):
            continue
        if not (read.commands or taken.snapshot or delivered.commands):
            return
    raise AssertionError(f"not settled after {_MOST_TURNS} turns")
