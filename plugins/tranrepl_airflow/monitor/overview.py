"""The overview: every publication that one may read, the ones in trouble first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial

from pydantic import BaseModel

from tranrepl.admin.early_warnings import Known, WarningKind, current_warnings
from tranrepl.admin.status.server_answers import PendingAnswer, error_line
from tranrepl.distributor.database import DistributionDatabase, RecordedError
from tranrepl.distributor.database.overview import (
    WRONG_STATES,
    NewestRun,
    PublicationOverview,
    SubscriptionOverview,
    SubscriptionState,
)
from tranrepl.distributor.tables import RunStatus
from tranrepl.errors import ReplicationError
from tranrepl.remedies import Place, named
from tranrepl.settings.publication import Publication
from tranrepl_airflow.job_connections import resolve_connections
from tranrepl_airflow.monitor.background_queries import BackgroundQueries, PublisherAnswer, StoreAnswer
from tranrepl_airflow.monitor.errors import WITHHELD, ShownError
from tranrepl_airflow.monitor.publications import DagState, MonitoredPublication

LOOKED_BACK = timedelta(days=1)
CHART_PARTS = 48
_PATIENCE_SECONDS = 3.0
NOT_SET_UP = "Not set up yet: set it up on the page Actions, or with `tranrepl setup FILE`"
_WITH_ERROR = (RunStatus.FAIL, RunStatus.RETRY)
_ORDER = {state: at for at, state in enumerate(SubscriptionState)}
_NONE = len(_ORDER)
_OF_RETAINED_LOG = (WarningKind.RETAINED_LOG, WarningKind.LOG_IN_DANGER)


class Run(BaseModel):
    """How an agent's newest run goes, or went."""

    status: str
    time: datetime
    comments: str


class Subscription(BaseModel):
    """State of a subscription."""

    subscription: str
    state: SubscriptionState
    needs_attention: bool
    latency_seconds: float | None
    """How long the first undelivered command has waited; None where nothing is undelivered."""
    last_latency_seconds: float | None
    """What the last delivery took, from commit to commit."""
    latencies_ms: list[int | None]
    """The longest latency of each half hour of the last day."""
    undelivered_commands: int
    undelivered_at_most: bool = False
    """The batch that the watermark is inside of counts as a whole."""
    estimated_seconds: float | None
    """Seconds to deliver them, at the rate of the last runs; None where none was measured, or the last run failed."""
    delivery_rate: float | None
    """Commands a second."""
    last_run: Run | None
    last_error: ShownError | None

    @property
    def last_error_is_of_validation(self) -> bool:
        """Whether rows differ, and nothing has failed since."""
        return self.last_error is not None and self.last_error.unresolved and self.last_error.of_validation


class RetainedLogState(BaseModel):
    """What the Publisher keeps of its log."""

    bytes: int | None
    """None where it keeps none any more."""
    status: str | None
    """The server's own word: reserved, extended, unreserved or lost, or how long; None where no log is kept."""
    endangered: bool
    """Whether no log is kept, or there is an early warning about it."""
    problem: str | None
    """Why the Publisher could not be asked."""


class LogReader(BaseModel):
    """State of a publication's log reader."""

    last_run: Run | None
    last_error: ShownError | None
    retained: RetainedLogState | None
    """None before the Publisher's first answer."""
    failed: bool

    @property
    def publisher_is_away(self) -> bool:
        """Whether the Publisher did not answer: how the last run went is not how the next one will."""
        return self.retained is not None and self.retained.problem is not None


class CurrentWarning(BaseModel):
    """An early warning whose reason is still there; its alert is sent once."""

    kind: str
    number: str
    """SQL Server's message; empty where it has none."""
    subscription: str
    """Empty where it concerns none of them alone."""
    text: str
    remedy: str


class MonitoredState(BaseModel):
    """A publication, with its log reader and subscriptions."""

    publication: str
    problem: str | None
    """Why nothing more is known: it is not set up, or its distribution database gives no answer."""
    dag: DagState = DagState()
    schedule: str | None = None
    latency_threshold: int | None = None
    stored_commands: int | None = None
    stored_bytes: int | None = None
    """What the store takes; None before it has been looked at, or where the API server does not reach it."""
    warnings: list[CurrentWarning] = []
    open_errors: int = 0
    log_reader: LogReader | None = None
    subscriptions: list[Subscription] = []

    @property
    def worst(self) -> int:
        """The rank of what is worst, 0 first."""
        if self.problem is not None:
            return -1
        reader = self.log_reader
        if reader is not None and reader.failed:
            return _ORDER[SubscriptionState.FAILED]
        ranks = [_ORDER[it.state] for it in self.subscriptions]
        is_warned = bool(self.warnings) or (reader is not None and reader.publisher_is_away)
        return min([*ranks, _ORDER[SubscriptionState.PERFORMANCE_CRITICAL]] if is_warned else ranks, default=_NONE)

    def warnings_of(self, subscription: str) -> list[CurrentWarning]:
        """Return the warnings of one subscription, or, without its name, of none of them alone."""
        return [it for it in self.warnings if it.subscription == subscription]

    @property
    def unsaid_warnings(self) -> list[CurrentWarning]:
        """The warnings but those of rows that differ where that is the subscription's last error, too."""
        said = {it.subscription for it in self.subscriptions if it.last_error_is_of_validation}
        return [it for it in self.warnings if it.kind != WarningKind.ROWS_DIFFER or it.subscription not in said]

    @property
    def needs_attention(self) -> bool:
        reader = self.log_reader
        return bool(
            self.problem is not None
            or self.warnings
            or (reader is not None and (reader.failed or reader.publisher_is_away))
            or any(it.needs_attention for it in self.subscriptions)
        )


@dataclass(frozen=True, slots=True)
class OverviewQuestion:
    """Asks the distribution databases of these publications. `texts_of`: those whose errors' texts are shown."""

    publications: Sequence[MonitoredPublication]
    texts_of: frozenset[str]
    background: BackgroundQueries
    looked_back: timedelta = LOOKED_BACK
    """The time that the latencies are of."""

    def ask(self) -> list[MonitoredState]:
        """Return the publications, those in trouble first."""
        by_database: dict[str, list[MonitoredPublication]] = defaultdict(list)
        for it in self.publications:
            by_database[it.distributor.connection].append(it)
        pending = [
            (
                mine,
                PendingAnswer(
                    f"connection {name}", partial(_ask_database, name, mine, self.looked_back), _PATIENCE_SECONDS
                ),
            )
            for name, mine in by_database.items()
        ]
        found = [state for mine, answer in pending for state in self._states(mine, answer.answer())]
        return sorted(found, key=lambda it: (it.worst, it.publication))

    def _states(
        self, publications: Sequence[MonitoredPublication], answer: Mapping[str, PublicationOverview] | ReplicationError
    ) -> Iterable[MonitoredState]:
        for it in publications:
            if isinstance(answer, ReplicationError):
                yield MonitoredState(
                    publication=it.publication, problem=error_line("the distribution database", answer)
                )
            elif it.publication in answer:
                yield self._state(it, answer[it.publication])
            else:
                yield MonitoredState(publication=it.publication, problem=NOT_SET_UP)

    def _state(self, publication: MonitoredPublication, known: PublicationOverview) -> MonitoredState:
        shown = publication.publication in self.texts_of
        kept = self.background.publisher(publication)
        store = self.background.store(known.store, publication.distributor.store_connection)
        warnings = _warnings(publication, known, kept, store)
        return MonitoredState(
            publication=publication.publication,
            problem=None,
            dag=publication.dag,
            schedule=publication.schedule,
            latency_threshold=publication.latency_threshold,
            stored_commands=known.stored_commands,
            stored_bytes=store.bytes if store else None,
            warnings=warnings,
            open_errors=_open_errors(known),
            log_reader=LogReader(
                last_run=_run(known.last_run, shown=shown),
                last_error=_error(known.last_error, publication, shown=shown),
                retained=None if kept is None else _retained(kept, warnings),
                failed=known.last_run is not None and known.last_run.failed,
            ),
            subscriptions=sorted(
                (_subscription(publication, it, shown=shown) for it in known.subscriptions),
                key=lambda it: (_ORDER[it.state], it.subscription),
            ),
        )


def _ask_database(
    connection_id: str, publications: Sequence[Publication], looked_back: timedelta
) -> dict[str, PublicationOverview]:
    connections = resolve_connections([connection_id])
    with DistributionDatabase(connections.by_id[connection_id]) as database:
        found = database.overview.of([it.publication for it in publications], looked_back, CHART_PARTS)
    return {it.publication: it for it in found}


def _warnings(
    publication: MonitoredPublication,
    known: PublicationOverview,
    kept: PublisherAnswer | None,
    store: StoreAnswer | None,
) -> list[CurrentWarning]:
    facts = Known(known, kept.retained if kept else None, store.space if store else None)
    place = Place(publication.settings_file)
    return [
        CurrentWarning(
            kind=it.kind,
            number=it.kind.number,
            subscription=it.subscription,
            text=it.text,
            remedy=named(it.remedy, place),
        )
        for it in current_warnings(publication, facts, datetime.now(UTC))
    ]


def _retained(kept: PublisherAnswer, warnings: Sequence[CurrentWarning]) -> RetainedLogState:
    log = kept.retained
    return RetainedLogState(
        bytes=log.size if log else None,
        status=log.status if log else None,
        endangered=any(it.kind in _OF_RETAINED_LOG for it in warnings) or (log is None and kept.problem is None),
        problem=kept.problem,
    )


def _subscription(publication: MonitoredPublication, known: SubscriptionOverview, *, shown: bool) -> Subscription:
    state = known.state(publication)
    return Subscription(
        subscription=known.subscription,
        state=state,
        needs_attention=state in WRONG_STATES,
        latency_seconds=known.latency_seconds,
        last_latency_seconds=known.last_latency_seconds,
        latencies_ms=list(known.latencies),
        undelivered_commands=known.backlog.commands,
        undelivered_at_most=known.backlog.at_most,
        estimated_seconds=known.estimated_seconds,
        delivery_rate=known.delivery_rate,
        last_run=_run(known.last_run, shown=shown),
        last_error=_error(known.last_error, publication, shown=shown),
    )


def _open_errors(known: PublicationOverview) -> int:
    of_log_reader = known.last_error is not None and known.last_error.unresolved
    return of_log_reader + sum(it.open_errors for it in known.subscriptions)


def _run(run: NewestRun | None, *, shown: bool) -> Run | None:
    if run is None:
        return None
    # The comments of a run that failed repeat the error.
    comments = run.comments if shown or run.status not in _WITH_ERROR else WITHHELD
    return Run(status=run.status.name.lower(), time=run.time, comments=comments)


def _error(error: RecordedError | None, publication: MonitoredPublication, *, shown: bool) -> ShownError | None:
    return None if error is None else ShownError.of(error, publication.settings_file, values=shown)
