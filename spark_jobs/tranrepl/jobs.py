"""The contract between whoever starts a Spark job (the shell, an Airflow operator) and the job.

A request is a JSON file of mode 0600, without secrets: connections travel in the environment. The job answers with
a result file, whether it succeeds or fails, so that its caller raises the typed error and not Spark's traceback.
"""

from __future__ import annotations

import sys
from collections import Counter
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from tranrepl.errors import ErrorReport
from tranrepl.settings.publication import Publication
from tranrepl.validation_report import SubscriptionValidation

LOCAL_MASTER_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # A local master has no workers to talk to, and nothing of ours listens anywhere else.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # One stream of short-lived objects: the parallel collectors only take time from the Python side. So does the
    # optimising compiler, which is done when the job is.
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
}
"""What whoever submits a job adds for a `local` master."""

LOST_WORKER = "Python worker exited unexpectedly"
"""Spark's words for a Python process of an executor that was killed."""


MOST_NOTICES = 100
MOST_SKIPPED_TOLD = 3


class ApplyMode(StrEnum):
    """How a distribution job connects: the first attempt, and the retry over a single connection."""

    STREAMS = "streams"
    SINGLE_CONNECTION = "single_connection"


class LogReaderRequest(BaseModel):
    """Drain the Publisher's log into the store."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    job: Literal["log_reader"] = "log_reader"
    publication: Publication

    def connection_ids(self) -> list[str]:
        """The connections this job needs, each once."""
        return list(dict.fromkeys([self.publication.publisher.connection, self.publication.distributor.connection]))


class StoreCheckRequest(BaseModel):
    """Write into the store and remove it again: `check`, where the store is no mounted path."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    job: Literal["store_check"] = "store_check"
    publication: Publication

    def connection_ids(self) -> list[str]:
        """It needs none."""
        return []


class _SubscriptionRequest(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    publication: Publication
    subscription: str

    def connection_ids(self) -> list[str]:
        """The connections this job needs, each once. A distribution's Publisher only names the subscription."""
        subscriber = self.publication.subscription(self.subscription).connection
        publication = self.publication
        return list(dict.fromkeys([publication.publisher.connection, publication.distributor.connection, subscriber]))


class DistributionRequest(_SubscriptionRequest):
    """Deliver stored commands to one subscription."""

    job: Literal["distribution"] = "distribution"
    committed_before: datetime | None = None
    """Deliver no transaction from the first one on that was committed at or after this time. None: deliver all."""
    up_to: str | None = None
    """Deliver transactions up to this `xact_seqno`, in hexadecimal, and none after it. None: deliver all."""
    mode: ApplyMode = ApplyMode.STREAMS
    deliver_stopped: bool = False
    """Also where an article is stopped: what follows tells whether its rows are right."""


class SnapshotRequest(_SubscriptionRequest):
    """Give one subscription the Publisher's rows as of one point of the log."""

    job: Literal["snapshot"] = "snapshot"
    articles: tuple[str, ...] = ()
    """Only these of the articles that wait for a snapshot, by source. Empty: all of them."""


class Repair(StrEnum):
    """What a validation does about rows that differ."""

    NONE = "none"
    APPLY = "apply"
    SCRIPT = "script"


class ValidationRequest(_SubscriptionRequest):
    """Compare one subscription's tables with the Publisher's, at one transaction."""

    job: Literal["validation"] = "validation"
    articles: tuple[str, ...] = ()
    """Source tables of the only articles to compare. Empty: all."""
    rowcount_only: bool = False
    repair: Repair = Repair.NONE
    repair_script: Path | None = None
    """Where statements are appended that would make the Subscriber equal, for `Repair.SCRIPT`."""


class TableProgress(BaseModel):
    """How far a table's snapshot is."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    article: str
    rows: int
    bytes: int
    """In the Publisher's text form."""
    share: float
    """Of the table's pages, from 0 to 1."""
    seconds: float
    """Since the table's first range began; once it is whole, what it took."""

    @property
    def rate(self) -> float:
        """Bytes a second."""
        return self.bytes / self.seconds if self.seconds else 0.0

    @property
    def seconds_left(self) -> float | None:
        return self.seconds * (1 - self.share) / self.share if self.share else None


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
    """From the last transaction's commit at the Publisher to the end of what this job does with it."""
    phases: dict[str, float] = {}
    """Seconds spent in each phase."""
    in_bulk: int = 0
    """Of the commands, those that went in bulk; the others went one by one."""
    fallbacks: dict[str, int] = {}
    """Why commands that may go in bulk went one by one, and in how many steps."""
    skipped: int = 0
    """Commands that were skipped, as `skip_errors` says; each is a row of `MSrepl_errors`."""
    first_skipped: tuple[ErrorReport, ...] = ()
    """The errors of the first of them, at most `MOST_SKIPPED_TOLD`."""
    snapshot: tuple[TableProgress, ...] = ()
    """Tables that the job copied, or copies."""
    notices: tuple[str, ...] = ()
    """Warnings of the job, and what procedures at the Subscriber said: the first ones, each once."""
    validation: SubscriptionValidation | None = None
    error: ErrorReport | None = None

    def plus(self, later: JobResult) -> JobResult:
        """Both together, `later` being what the job did next: where it ended is where the two end."""
        return JobResult(
            transactions=self.transactions + later.transactions,
            commands=self.commands + later.commands,
            batches=self.batches + later.batches,
            seconds=self.seconds + later.seconds,
            last_xact_seqno=later.last_xact_seqno or self.last_xact_seqno,
            latency_ms=self.latency_ms if later.latency_ms is None else later.latency_ms,
            commands_by_article=dict(Counter(self.commands_by_article) + Counter(later.commands_by_article)),
            phases={
                name: self.phases.get(name, 0.0) + later.phases.get(name, 0.0)
                for name in {**self.phases, **later.phases}
            },
            in_bulk=self.in_bulk + later.in_bulk,
            fallbacks=dict(Counter(self.fallbacks) + Counter(later.fallbacks)),
            skipped=self.skipped + later.skipped,
            first_skipped=(*self.first_skipped, *later.first_skipped)[:MOST_SKIPPED_TOLD],
            snapshot=self.snapshot + later.snapshot,
            notices=tuple(dict.fromkeys([*self.notices, *later.notices]))[:MOST_NOTICES],
            validation=later.validation or self.validation,
            error=later.error,
        )

    def without_command(self) -> JobResult:
        """Return the same result without the failing command's values: for an XCom, and for whoever stores it."""
        if self.error is None:
            return self
        return self.model_copy(update={"error": self.error.model_copy(update={"command": None})})

    def raise_error(self) -> None:
        """Raise what stopped the job, if anything did."""
        if self.error is not None:
            raise self.error.to_exception()


def latency_ms(commit_time: datetime) -> int:
    """Milliseconds since then; none where the Publisher's clock is ahead of ours."""
    return max(0, int((datetime.now(UTC) - commit_time).total_seconds() * 1000))


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read."""
    path.touch(mode=0o600, exist_ok=False)
    path.write_text(text, encoding="utf-8")


def entry_point(job: Literal["log_reader", "distribution", "snapshot", "validation", "store_check"]) -> Path:
    """The script that `spark-submit` runs: beside the package in a checkout, inside it in an installed wheel."""
    package = Path(__file__).parent
    candidates = (package.parent / f"{job}.py", package / "spark_jobs" / f"{job}.py")
    return next(path for path in candidates if path.is_file())


def spark_submit_binary() -> str:
    """spark-submit beside this Python, where pyspark is installed there; else whatever PATH has."""
    beside_python = Path(sys.executable).with_name("spark-submit")
    return str(beside_python) if beside_python.exists() else "spark-submit"
