"""The session that applies commands at a Subscriber."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager

from tranrepl.errors import ConfigurationError, ErrorDetails, ErrorReport, ReplicationError
from tranrepl.failpoint import Failpoint, reach
from tranrepl.subscriber.applier_options import Applied
from tranrepl.subscriber.base.watermark import Watermark
from tranrepl.subscriber.batching.steps import Operations, SchemaStep, Step
from tranrepl.subscriber.subscription import ALONE, Stream, StreamRecord, UnfinishedBatch


class Applier(ABC):
    """Applies commands over one connection, in transactions that begin under the fence of the watermark."""

    def __init__(self, watermark: Watermark) -> None:
        self._watermark = watermark
        self._said: list[str] = []

    @abstractmethod
    def _errors(self) -> AbstractContextManager[None]:
        """Return what makes errors of the database ours."""

    @property
    @abstractmethod
    def bulk_operations(self) -> Mapping[int, Operations]:
        """Which operations of which articles (by article_id) may go in bulk; none where the options say so."""

    @abstractmethod
    def begin(self, watermark: bytes, stream: Stream = ALONE, finishing: UnfinishedBatch | None = None) -> None:
        """Open a transaction. Raises FencedError where the Subscriber does not stand at `watermark`, or streams have
        gone on from there, other than the unfinished batch says."""

    @abstractmethod
    def apply(self, steps: Sequence[Step]) -> None:
        """Apply commands in order, inside the transaction. What fails in bulk is undone, and goes serially.

        A `SchemaStep` alters the destination, makes the generated procedures of the new definition, and records that
        definition; from there on the applier knows nothing of the old one. `take_schema_changes` tells what was done.
        Where DDL ends the transaction, what came before is committed first with the place that
        `SubscriptionPosition.applied_before` gives back, and a new transaction goes on behind the change.

        A `ScriptStep` runs the script where the database is PostgreSQL; others leave it out, with a note.

        Raises DataError with the failing command's `xact_seqno`, `command_id` and article; ConfigurationError where a
        person must do something before a schema change can be applied, TransientError where its lock is not to be had.
        """

    def with_text(self, step: Step) -> Step:
        """Return the step with what will be copied for it, as far as that is known already. Another thread calls it."""
        return step

    @abstractmethod
    def take_applied(self) -> Applied:
        """Return what was applied since the last call, also where an error ended it."""

    @abstractmethod
    def take_skipped(self) -> list[ErrorReport]:
        """Return what the open transaction left out so far, as the options let it; each is given once."""

    @abstractmethod
    def take_notices(self) -> list[str]:
        """Return warnings that procedures gave since the last call."""

    def take_schema_changes(self) -> list[str]:
        """Return what schema changes did since the last call, statement by statement, and what they left alone; and
        which scripts ran."""
        said, self._said = self._said, []
        return said

    @abstractmethod
    def ready(self) -> None:
        """Let every constraint be checked that waits for the commit. Raises what keeps the transaction from it."""

    @abstractmethod
    def rollback(self) -> None:
        """Undo the open transaction, whatever state it is in."""

    def commit(self, xact_seqno: bytes) -> None:
        """Commit, with `xact_seqno` as the watermark."""
        with self._errors():
            self._before_commit()
            self._watermark.advance(xact_seqno)
            reach(Failpoint.WATERMARK_SET)
            self._commit()

    def commit_stream(self, stream: Stream, record: StreamRecord) -> None:
        """Commit the part of a stream other than 0."""
        with self._errors():
            self._before_commit()
            self._watermark.record(stream, record)
            self._commit()

    @abstractmethod
    def _before_commit(self) -> None:
        """Act before the watermark moves. Raises ConfigurationError where a procedure has ended the transaction."""

    @abstractmethod
    def _commit(self) -> None: ...

    @abstractmethod
    def renew(self) -> None:
        """Read again what decides about bulk, where a schema change was committed. Outside of a transaction."""

    @abstractmethod
    def look_again(self) -> None:
        """Read again what the Subscriber's catalogue says about how commands may be applied: for an applier that was
        kept for some time, in which somebody may have altered tables and procedures. Outside of a transaction."""

    @abstractmethod
    def flush(self) -> None:
        """Make sure that what was committed survives a crash of the server."""


@contextmanager
def naming_change(step: SchemaStep) -> Iterator[None]:
    """Let an error say that the delivery stopped before a schema change, and where that is stored."""
    try:
        yield
    except ReplicationError as error:
        error.add(ErrorDetails(schema_change=True))
        if isinstance(error, ConfigurationError):
            error.add(ErrorDetails(xact_seqno=step.xact_seqno.hex(), command_id=step.command_id))
        raise
