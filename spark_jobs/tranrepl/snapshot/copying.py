"""Copying ranges from the Publisher's snapshot to the Subscriber: what a task of the snapshot job does."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

from tranrepl.connections import Connection
from tranrepl.errors import ErrorReport, ReplicationError
from tranrepl.publisher.snapshot import SnapshotSession, SnapshotSource, TableRange
from tranrepl.subscriber.applier_options import ApplierOptions
from tranrepl.subscriber.base.snapshot import Loader
from tranrepl.subscriber.registry import dialect_of
from tranrepl.subscriber.subscription import SubscriptionKey

SMALLEST_RANGE = 8 * 1024 * 1024
"""Bytes of a table that a range has at least."""
LARGEST_RANGE = 128 * 1024 * 1024
_RANGES_A_CORE = 4


class CopiedRange(BaseModel):
    """What became of a range. Errors are in it, never raised: the caller decides by their class."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    article: str
    number: int
    error: ErrorReport | None = None


@dataclass(frozen=True, slots=True)
class _Lines:
    """Rows of a range, which are read from the snapshot each time that they are iterated over."""

    session: SnapshotSession
    range: TableRange

    def __iter__(self) -> Iterator[bytes]:
        return self.session.lines(self.range)


@dataclass(frozen=True, slots=True)
class RangeCopy:
    """Copies ranges of one snapshot. It travels pickled inside the function that Spark runs, passwords and all."""

    source: SnapshotSource
    subscriber: Connection
    key: SubscriptionKey
    snapshot: str
    """Name under which the Subscriber was made ready."""
    options: ApplierOptions

    def __call__(self, ranges: Iterable[TableRange]) -> Iterator[CopiedRange]:
        left = deque(ranges)
        while left:
            opened = False
            try:
                with self._sessions() as (session, loader):
                    opened = True
                    while left:
                        loader.load(left[0].article, left[0].number, _Lines(session, left[0]))
                        done = left.popleft()
                        yield CopiedRange(article=done.name, number=done.number)
            except ReplicationError as problem:
                if not left:
                    # A session was lost when all was committed.
                    return
                # Neither session is fit for another range.
                failed = left.popleft()
                yield CopiedRange(article=failed.name, number=failed.number, error=problem.report)
                if not opened:
                    # Nor would there be any for the next one: the snapshot may be gone.
                    return

    @contextmanager
    def _sessions(self) -> Iterator[tuple[SnapshotSession, Loader]]:
        dialect = dialect_of(self.subscriber)
        with (
            self.source.session("tranrepl snapshot") as session,
            dialect.loader(self.subscriber, self.key, self.snapshot, self.options) as loader,
        ):
            yield session, loader


def range_bytes(total: int, cores: int) -> int:
    """Return how many bytes of a table a range should hold, so that all cores are busy to the end."""
    return min(LARGEST_RANGE, max(SMALLEST_RANGE, total // (cores * _RANGES_A_CORE)))
