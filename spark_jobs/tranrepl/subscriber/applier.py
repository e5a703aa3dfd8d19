"""How commands are applied at a Subscriber: the interface of the session that does it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tranrepl.errors import ErrorReport
from tranrepl.settings.publication import Apply
from tranrepl.subscriber.batching.steps import Operations, Step
from tranrepl.subscriber.subscription import ALONE, Stream, StreamRecord, UnfinishedBatch


@dataclass(frozen=True, slots=True)
class ApplierOptions:
    """The options of an applier's session."""

    not_for_replication: bool = False
    """Foreign keys and ordinary triggers do not act on what it applies."""
    lock_timeout_seconds: float | None = None
    """How long a statement waits for a lock; None: as long as the server's settings say."""
    skip_errors: frozenset[str] = frozenset()
    """Numbers of data errors at which the failing command alone is left out."""
    apply: Apply = Apply.AUTO
    rows_are_copied: bool = False
    """The rows of tables whose schema it changes are copied anew after it: those that do not fit may be deleted."""
    shared_tables: frozenset[str] = frozenset()
    """Articles, by source, whose tables keep rows of others then: nothing that does not fit is deleted there."""


AS_CONFIGURED = ApplierOptions()
"""What the server's own settings say."""


@dataclass(frozen=True, slots=True)
class Applied:
    """What applying commands came to, beside the rows."""

    in_bulk: int = 0
    """Commands that went in bulk; all others, serially."""
    fallbacks: Mapping[str, int] = field(default_factory=dict)
    """Why steps that were tried in bulk went serially after all, and how often."""
    stage_seconds: float = 0.0


class Applier(Protocol):
    """Applies commands over one connection, in transactions that begin under the fence of the watermark."""

    @property
    def bulk_operations(self) -> Mapping[int, Operations]:
        """Which operations of which articles (by article_id) may go in bulk; none where the options say so."""
        ...

    def begin(self, watermark: bytes, stream: Stream = ALONE, finishing: UnfinishedBatch | None = None) -> None:
        """Open a transaction. Raises FencedError where the Subscriber does not stand at `watermark`, or streams have
        gone on from there, other than the unfinished batch says."""
        ...

    def apply(self, steps: Sequence[Step]) -> None:
        """Apply commands in order, inside the transaction. What fails in bulk is undone, and goes serially.

        A `SchemaStep` alters the destination, makes the generated procedures of the new definition, and records that
        definition; from there on the applier knows nothing of the old one. `take_schema_changes` tells what was done.
        Where DDL ends the transaction, what came before is committed first with the place that
        `SubscriptionPosition.applied_before` gives back, and a new transaction goes on behind the change.

        A `ScriptStep` runs the script where the database is PostgreSQL; others pass over it, which is told.

        Raises DataError with the failing command's `xact_seqno`, `command_id` and article; ConfigurationError where a
        person must do something before a schema change can be applied, TransientError where its lock is not to be had.
        """
        ...

    def with_text(self, step: Step) -> Step:
        """Return the step with what will be copied for it, as far as that is known already. Another thread calls it."""
        ...

    def take_applied(self) -> Applied:
        """Return what was applied since the last call, also where an error ended it."""
        ...

    def take_skipped(self) -> list[ErrorReport]:
        """Return what the open transaction left out so far, as the options let it; each is given once."""
        ...

    def take_notices(self) -> list[str]:
        """Return warnings that procedures gave since the last call."""
        ...

    def take_schema_changes(self) -> list[str]:
        """Return what schema changes did since the last call, statement by statement, and what they left alone; and
        which scripts ran."""
        ...

    def ready(self) -> None:
        """Let every constraint be checked that waits for the commit. Raises what keeps the transaction from it."""
        ...

    def rollback(self) -> None:
        """Undo the open transaction, whatever state it is in."""
        ...

    def commit(self, xact_seqno: bytes) -> None:
        """Commit, with `xact_seqno` as the watermark."""
        ...

    def commit_stream(self, stream: Stream, record: StreamRecord) -> None:
        """Commit the part of a stream other than 0."""
        ...

    def renew(self) -> None:
        """Read again what decides about bulk, where a schema change was committed. Outside of a transaction."""
        ...

    def look_again(self) -> None:
        """Read again what the Subscriber's catalogue says about how commands may be applied: for an applier that was
        kept for some time, in which somebody may have altered tables and procedures. Outside of a transaction."""
        ...

    def flush(self) -> None:
        """Make sure that what was committed survives a crash of the server."""
        ...
