"""State of the log reader, from its Publisher and from the distribution database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tranrepl import garbage_collection
from tranrepl.admin.status.report import LastError, LastRun, LogReaderStatus, RetainedLogStatus
from tranrepl.admin.status.server_answers import error_line
from tranrepl.distributor.database import DistributionDatabase, PublicationRecord
from tranrepl.errors import ConfigurationError, ReplicationError
from tranrepl.log_reader.continuity import find_break
from tranrepl.publisher.publisher import RetainedLog
from tranrepl.remedies import Place
from tranrepl.topology import Topology

_APPLICATION = "tranrepl status"


@dataclass(frozen=True, slots=True)
class PublisherAnswer:
    log_name: str
    log: str
    state: str | None
    """How the log is kept; None where it is not."""
    retained: RetainedLogStatus | None
    unread_log_bytes: int | None
    waits_for: str | None
    schema_changes_stop: str | None
    """Why they stop the publication; None where they are replicated."""


@dataclass(frozen=True, slots=True)
class LogContinuity:
    broken: str | None
    """Why the log cannot be read on; None where it can."""
    dangers: Sequence[str]
    """Why what is to be read next may soon be lost, and what to do."""


@dataclass(frozen=True, slots=True)
class LogReaderHistory:
    last_run: LastRun | None
    last_error: LastError | None


def ask_publisher(topology: Topology) -> PublisherAnswer:
    """Ask the Publisher alone. Raises what opening it raises, and ConfigurationError where what has our name is
    another's."""
    with topology.publisher(_APPLICATION) as publisher:
        health = publisher.health()
        replicated = topology.publication.replicate_ddl
        stop = publisher.schema_changes.why_not_captured() if replicated else "replicate_ddl is false"
    return PublisherAnswer(
        health.name,
        health.log,
        health.state,
        _retained(health.retained) if health.retained else None,
        health.unread_bytes,
        health.waits_for,
        stop,
    )


def _retained(kept: RetainedLog) -> RetainedLogStatus:
    oldest = kept.oldest_transaction
    return RetainedLogStatus(
        wal_status=kept.status,
        bytes=kept.size,
        bytes_left=kept.left,
        catalog_xmin_age=kept.catalog_xmin_age,
        oldest_transaction=oldest.who if oldest else None,
        oldest_transaction_seconds=oldest.seconds if oldest else None,
    )


def ask_history(database: DistributionDatabase, record: PublicationRecord, settings_file: str) -> LogReaderHistory:
    """Ask the distribution database alone."""
    known = database.overview.log_reader(record)
    return LogReaderHistory(LastRun.of(known.last_run), LastError.of(known.last_error, Place(settings_file)))


@garbage_collection.paused()
def ask_for_continuity(topology: Topology, database: DistributionDatabase, record: PublicationRecord) -> LogContinuity:
    """Return whether the log can be read on from where it is registered, and for how long."""
    with topology.publisher(_APPLICATION) as publisher:
        problem: ReplicationError | None = find_break(publisher, database, record)
        kept = publisher.health(record.registered_to).retained if problem is None else None
    try:
        # Its runs are refused before they begin, and no history has that.
        database.articles.active(topology.publication, record)
    except ConfigurationError as error:
        problem = problem or error
    dangers = [] if kept is None or problem is not None else [f"{it.text}: {it.remedy}" for it in kept.dangers]
    return LogContinuity(None if problem is None else str(problem), dangers)


def log_reader_status(
    record: PublicationRecord | None,
    publisher: PublisherAnswer | ReplicationError,
    history: LogReaderHistory | None,
    continuity: LogContinuity | ReplicationError | None,
) -> LogReaderStatus:
    """Return what the answers say together."""
    fields: dict[str, object] = {}
    if record is not None:
        seqno = record.registered_xact_seqno
        fields |= {"slot_name": record.log_name, "registered_xact_seqno": seqno.hex() if seqno else None}
    if isinstance(publisher, PublisherAnswer):
        fields |= _of_publisher(publisher)
    else:
        fields["publisher_problem"] = error_line("the Publisher", publisher)
    if isinstance(continuity, ReplicationError):
        fields["publisher_problem"] = f"it is not known whether the log can be read on: {continuity.message}"
    elif continuity is not None:
        fields |= {"problem": continuity.broken, "dangers": continuity.dangers}
    if history is not None:
        fields |= {"last_run": history.last_run, "last_error": history.last_error}
    return LogReaderStatus.model_validate(fields)


def _of_publisher(publisher: PublisherAnswer) -> Mapping[str, object]:
    return {
        "slot_name": publisher.log_name,
        "log": publisher.log,
        "slot": publisher.state,
        "retained": publisher.retained,
        "unread_log_bytes": publisher.unread_log_bytes,
        "waits_for": publisher.waits_for,
        "schema_changes_stop": publisher.schema_changes_stop,
    }
