"""The overview: every publication that one may read, the ones in trouble first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial

from pydantic import BaseModel

from tranrepl.admin.early_warnings import Known, WarningKind, standing_warnings
from tranrepl.admin.status.report import WRONG_STATES, SubscriptionState
from tranrepl.admin.status.server_answers import PendingAnswer, error_line
from tranrepl.admin.status.state import Thresholds, subscription_state
from tranrepl.distributor.database import DistributionDatabase
from tranrepl.distributor.database.overview import (
    AgentError,
    AgentRun,
    PublicationOverview,
    SubscriptionOverview,
)
from tranrepl.distributor.monitoring.publication import seqno_text
from tranrepl.distributor.tables import RunStatus
from tranrepl.errors import ReplicationError
from tranrepl.next_steps import Place, named, usual_file
from tranrepl_airflow.job_connections import resolve_connections
from tranrepl_airflow.monitor.asked_beside import AskedBeside, PublisherAnswer, StoreAnswer
from tranrepl_airflow.monitored import MonitoredPublication

LOOKED_BACK = timedelta(days=1)
CHART_PARTS = 48
_PATIENCE_SECONDS = 3.0
NOT_SET_UP = "It is not set up yet: set it up from the page Actions, or with tranrepl setup FILE"
WITHHELD = "Shown to those who may edit the DAG: it may hold values of rows."
_WITH_ERROR = (RunStatus.FAIL, RunStatus.RETRY)
_ORDER = {state: at for at, state in enumerate(SubscriptionState)}
_NONE = len(_ORDER)
_OF_RETAINED_LOG = (WarningKind.RETAINED_LOG, WarningKind.SLOT_IN_DANGER)


class Run(BaseModel):
    """How an agent's newest run goes, or went."""

    status: str
    time: datetime
    comments: str


class Error(BaseModel):
    """An agent's newest error. `healed`: a run that came after it ended well, or a person has acknowledged it."""

    time: datetime
    text: str
    xact_seqno: str | None
    """The transaction that could not be applied; None where it was none of a transaction, as a failed validation."""
    healed: bool
    acknowledged_at: datetime | None = None
    acknowledged_by: str | None = None


class Subscription(BaseModel):
    """Where a subscription stands."""

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
    estimated_seconds: float | None
    """Seconds to deliver them, at the rate of the last run that delivered."""
    delivery_rate: float | None
    """Commands a second."""
    last_run: Run | None
    last_error: Error | None


class RetainedLogState(BaseModel):
    """What the Publisher keeps for the slot."""

    bytes: int | None
    """None where it keeps none any more."""
    status: str | None
    """The server's own word: reserved, extended, unreserved or lost; None where there is no slot."""
    endangered: bool
    """Whether there is no slot, or early warnings tell of it."""
    problem: str | None
    """Why the Publisher could not be asked."""


class LogReader(BaseModel):
    """Where a publication's log reader stands."""

    last_run: Run | None
    last_error: Error | None
    retained: RetainedLogState | None
    """None before the Publisher's first answer."""
    failed: bool


class StandingWarning(BaseModel):
    """An early warning that stands, as alerts tell it once."""

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
    stored_commands: int | None = None
    stored_bytes: int | None = None
    """What the store takes; None before it has been looked at, or where the API server does not reach it."""
    warnings: list[StandingWarning] = []
    log_reader: LogReader | None = None
    subscriptions: list[Subscription] = []

    @property
    def worst(self) -> int:
        """The rank of what is worst, 0 first."""
        if self.problem is not None:
            return -1
        if self.log_reader is not None and self.log_reader.failed:
            return _ORDER[SubscriptionState.ERROR]
        ranks = [_ORDER[it.state] for it in self.subscriptions]
        return min([*ranks, _ORDER[SubscriptionState.PERFORMANCE_CRITICAL]] if self.warnings else ranks, default=_NONE)

    def warnings_of(self, subscription: str) -> list[StandingWarning]:
        """Return the warnings of one subscription, or, without its name, of none of them alone."""
        return [it for it in self.warnings if it.subscription == subscription]

    @property
    def needs_attention(self) -> bool:
        reader = self.log_reader
        return bool(
            self.problem is not None
            or self.warnings
            or (reader is not None and (reader.failed or (reader.retained and reader.retained.problem)))
            or any(it.needs_attention for it in self.subscriptions)
        )


@dataclass(frozen=True, slots=True)
class OverviewQuestion:
    """Asks the distribution databases of these publications. `texts_of`: those whose errors' texts are shown."""

    publications: Sequence[MonitoredPublication]
    texts_of: frozenset[str]
    beside: AskedBeside
    looked_back: timedelta = LOOKED_BACK
    """The time that the latencies are of."""

    def ask(self) -> list[MonitoredState]:
        """Return the publications, those in trouble first."""
        by_database: dict[str, list[MonitoredPublication]] = defaultdict(list)
        for it in self.publications:
            by_database[it.distributor].append(it)
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
        kept, store = self.beside.publishers.last(publication), self.beside.stores.last(known.store)
        warnings = _warnings(publication, known, kept, store)
        return MonitoredState(
            publication=publication.publication,
            problem=None,
            stored_commands=known.stored_commands,
            stored_bytes=store.bytes if store else None,
            warnings=warnings,
            log_reader=LogReader(
                last_run=_run(known.last_run, shown=shown),
                last_error=_error(known.last_error, shown=shown),
                retained=None if kept is None else _retained(kept, warnings),
                failed=known.last_run is not None and known.last_run.standing in _WITH_ERROR,
            ),
            subscriptions=sorted(
                (_subscription(publication.thresholds, it, shown=shown) for it in known.subscriptions),
                key=lambda it: (_ORDER[it.state], it.subscription),
            ),
        )


def _ask_database(
    connection_id: str, publications: Sequence[MonitoredPublication], looked_back: timedelta
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
) -> list[StandingWarning]:
    settings = publication.settings
    if settings is None:
        return []
    facts = Known(known, kept.retained if kept else None, store.space if store else None)
    place = Place(usual_file(publication.publication))
    return [
        StandingWarning(
            kind=it.kind,
            number=it.kind.number,
            subscription=it.subscription,
            text=it.text,
            remedy=named(it.remedy, place),
        )
        for it in standing_warnings(settings, facts, datetime.now(UTC))
    ]


def _retained(kept: PublisherAnswer, warnings: Sequence[StandingWarning]) -> RetainedLogState:
    log = kept.retained
    return RetainedLogState(
        bytes=log.size if log else None,
        status=log.status if log else None,
        endangered=any(it.kind in _OF_RETAINED_LOG for it in warnings) or (log is None and kept.problem is None),
        problem=kept.problem,
    )


def _subscription(thresholds: Thresholds, known: SubscriptionOverview, *, shown: bool) -> Subscription:
    since, undelivered = known.backlog.since, known.backlog.commands
    latency = None if since is None else max(0.0, (datetime.now(UTC) - since).total_seconds())
    state = subscription_state(thresholds, known.status, known.last_run.standing if known.last_run else None, latency)
    return Subscription(
        subscription=known.subscription,
        state=state,
        needs_attention=state in WRONG_STATES,
        latency_seconds=latency,
        last_latency_seconds=None if known.latency_ms is None else known.latency_ms / 1000,
        latencies_ms=list(known.latencies),
        undelivered_commands=undelivered,
        estimated_seconds=undelivered / known.delivery_rate if known.delivery_rate else None,
        delivery_rate=known.delivery_rate,
        last_run=_run(known.last_run, shown=shown),
        last_error=_error(known.last_error, shown=shown),
    )


def _run(run: AgentRun | None, *, shown: bool) -> Run | None:
    if run is None:
        return None
    # The comments of a run that failed repeat the error.
    comments = run.comments if shown or run.status not in _WITH_ERROR else WITHHELD
    return Run(status=run.status.name.lower(), time=run.time, comments=comments)


def _error(error: AgentError | None, *, shown: bool) -> Error | None:
    if error is None:
        return None
    return Error(
        time=error.time,
        text=error.text if shown else WITHHELD,
        xact_seqno=seqno_text(error.xact_seqno),
        healed=error.healed,
        acknowledged_at=error.acknowledged_at,
        acknowledged_by=error.acknowledged_by,
    )
