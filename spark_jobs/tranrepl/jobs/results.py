"""What a Spark job answers with, whether it succeeds or fails: a result file, so that its caller raises the typed error
and not Spark's traceback."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime

from pydantic import BaseModel, ConfigDict

from tranrepl.errors import ErrorReport
from tranrepl.jobs.validation_report import SubscriptionValidation
from tranrepl.model.latency import DeliveredMinute, LatencyByLeg, by_minute, together

MOST_NOTICES = 100


MOST_SKIPPED_REPORTED = 3


class TableProgress(BaseModel):
    """How far a table's snapshot is."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    article: str
    rows: int
    bytes: int
    """In the Publisher's text form."""
    share: float
    """The part of the table's pages, from 0 to 1."""
    seconds: float
    """Since the table's first range began; once it is whole, what it took."""

    @property
    def rate(self) -> float:
        """Bytes a second."""
        return self.bytes / self.seconds if self.seconds else 0.0

    @property
    def seconds_left(self) -> float | None:
        return self.seconds * (1 - self.share) / self.share if self.share else None


class TableChange(BaseModel):
    """One thing that a schema change did, in words."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    article: str
    what: str


class JobResult(BaseModel):
    """What a job did. Also the XCom of its task: nothing secret is in it, and no row data once it is
    `without_command`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    transactions: int = 0
    commands: int = 0
    batches: int = 0
    seconds: float = 0.0
    last_xact_seqno: str | None = None
    """Watermark after the job, in hexadecimal."""
    commands_by_article: dict[str, int] = {}
    latency_ms: int | None = None
    """Milliseconds from the last transaction's commit at the Publisher until this job was done with it."""
    latency: LatencyByLeg | None = None
    """How long the delivered commands took, leg by leg; None where it was not measured."""
    minutes: tuple[DeliveredMinute, ...] = ()
    """What was committed in each minute, as long as it is not recorded."""
    phases: dict[str, float] = {}
    """Seconds spent in each phase."""
    in_bulk: int = 0
    """Commands that went in bulk; the others went serially."""
    fallbacks: dict[str, int] = {}
    """Why commands that may go in bulk went serially, and in how many steps."""
    skipped: int = 0
    """Commands that were skipped, as `skip_errors` says; each is a row of `MSrepl_errors`."""
    first_skipped: tuple[ErrorReport, ...] = ()
    """The errors of the first of them, at most `MOST_SKIPPED_REPORTED`."""
    snapshot: tuple[TableProgress, ...] = ()
    """Tables that the job copied, or copies."""
    schema_changes: int = 0
    """Commands that are schema changes."""
    applied_schema_changes: tuple[str, ...] = ()
    """What schema changes did at the Subscriber, statement by statement, what they left alone, and which scripts ran:
    the first ones."""
    table_changes: tuple[TableChange, ...] = ()
    """What schema changes did that the log reader captured or a delivery applied: the first ones, each once."""
    file_edits: dict[str, str] = {}
    """By article: what is to be written into the file, since a schema change gave something another name."""
    schema_change_warnings: tuple[str, ...] = ()
    """What schema changes and rewritten tables cost or ask for: articles that wait for a snapshot or are stopped, and
    what is to be edited; and that the log holds messages which only look like ours. The notices have them too."""
    notices: tuple[str, ...] = ()
    """Warnings of the job, and what procedures at the Subscriber said: the first ones, each once."""
    validation: SubscriptionValidation | None = None
    error: ErrorReport | None = None

    def plus(self, later: JobResult) -> JobResult:
        """Add up both results, `later` being what the job did next: where it ended is where the two end."""
        return JobResult(
            transactions=self.transactions + later.transactions,
            commands=self.commands + later.commands,
            batches=self.batches + later.batches,
            seconds=self.seconds + later.seconds,
            last_xact_seqno=later.last_xact_seqno or self.last_xact_seqno,
            latency_ms=self.latency_ms if later.latency_ms is None else later.latency_ms,
            commands_by_article=dict(Counter(self.commands_by_article) + Counter(later.commands_by_article)),
            latency=_together(self.latency, later.latency),
            minutes=by_minute([*self.minutes, *later.minutes]),
            phases={
                name: self.phases.get(name, 0.0) + later.phases.get(name, 0.0)
                for name in {**self.phases, **later.phases}
            },
            in_bulk=self.in_bulk + later.in_bulk,
            fallbacks=dict(Counter(self.fallbacks) + Counter(later.fallbacks)),
            skipped=self.skipped + later.skipped,
            first_skipped=(*self.first_skipped, *later.first_skipped)[:MOST_SKIPPED_REPORTED],
            snapshot=self.snapshot + later.snapshot,
            schema_changes=self.schema_changes + later.schema_changes,
            applied_schema_changes=(*self.applied_schema_changes, *later.applied_schema_changes)[:MOST_NOTICES],
            table_changes=tuple(dict.fromkeys([*self.table_changes, *later.table_changes]))[:MOST_NOTICES],
            file_edits={**self.file_edits, **later.file_edits},
            schema_change_warnings=(*self.schema_change_warnings, *later.schema_change_warnings)[:MOST_NOTICES],
            notices=tuple(dict.fromkeys([*self.notices, *later.notices]))[:MOST_NOTICES],
            validation=later.validation or self.validation,
            error=later.error,
        )

    def recorded(self) -> JobResult:
        """Return the same result where its minutes are recorded: their latencies in sum."""
        measured = together(it.latency for it in self.minutes) if self.minutes else None
        return self.model_copy(update={"latency": _together(self.latency, measured), "minutes": ()})

    def noticing(self, notices: Sequence[str]) -> JobResult:
        """Return the same result with more notices."""
        return self.model_copy(update={"notices": tuple(dict.fromkeys([*self.notices, *notices]))[:MOST_NOTICES]})

    def warning_of_schema_changes(self, warnings: Sequence[str]) -> JobResult:
        """Return the same result with more warnings of schema changes, which are notices, too."""
        warnings_so_far = (*self.schema_change_warnings, *warnings)[:MOST_NOTICES]
        return self.noticing(warnings).model_copy(update={"schema_change_warnings": warnings_so_far})

    def without_command(self) -> JobResult:
        """Return the same result without the failing command's values: for an XCom, and for what stores it."""
        if self.error is None:
            return self
        return self.model_copy(update={"error": self.error.model_copy(update={"command": None})})

    def raise_error(self) -> None:
        """Raise what stopped the job, if anything did."""
        if self.error is not None:
            raise self.error.to_exception()


def _together(first: LatencyByLeg | None, later: LatencyByLeg | None) -> LatencyByLeg | None:
    return later if first is None else first if later is None else first.plus(later)


def latency_ms(commit_time: datetime) -> int:
    """Return the milliseconds since then; 0 where the Publisher's clock is ahead of ours."""
    return max(0, int((datetime.now(UTC) - commit_time).total_seconds() * 1000))
