"""Routes below `/publication/NAME`: a page for each part, and the same as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any
from urllib.parse import quote

from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import APIRouter, Depends, FastAPI, HTTPException, Query, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse

from tranrepl.distributor.monitoring.charts import Charts, charts
from tranrepl.distributor.monitoring.published_articles import PublishedArticle, published_articles
from tranrepl.distributor.monitoring.registered_settings import RegisteredSettings, registered_settings
from tranrepl.distributor.monitoring.runs import Agent
from tranrepl.distributor.monitoring.schema_changes import StoredChange, newest_changes
from tranrepl.distributor.monitoring.snapshots import SubscriptionSnapshot, newest_snapshots
from tranrepl.model.latency import Leg
from tranrepl_airflow.dag_builder import (
    ADMINISTRATION_SUFFIX,
    REINITIALIZATION_SUFFIX,
    SETUP_SUFFIX,
    VALIDATION_SUFFIX,
)
from tranrepl_airflow.monitor.access import MAY_SEE_MONITOR, ReaderDep
from tranrepl_airflow.monitor.actions import Action
from tranrepl_airflow.monitor.agent_history import AgentHistory, HistoryQuestion
from tranrepl_airflow.monitor.background_queries import BackgroundQueries
from tranrepl_airflow.monitor.chart_words import quantiles_in_words
from tranrepl_airflow.monitor.compared_rows import ComparedRow, compared_rows
from tranrepl_airflow.monitor.errors import ErrorList, ErrorQuestion
from tranrepl_airflow.monitor.overview import LOOKED_BACK, NOT_SET_UP, MonitoredState, OverviewQuestion
from tranrepl_airflow.monitor.publication_charts import ChartRange, publication_charts
from tranrepl_airflow.monitor.publications import MonitoredPublication, readable_publication
from tranrepl_airflow.monitor.queries import PendingPart, Query as PartQuery
from tranrepl_airflow.monitor.rendering import PARTS, Renderer, mount_of
from tranrepl_airflow.monitor.task_logs import DagRunOfTasks
from tranrepl_airflow.monitor.triggering import allowed_actions
from tranrepl_airflow.monitor.validation_results import ValidationRun, newest_validations

_MOST_CHANGES = 100
_BEFORE_SETUP = frozenset({Action.CHECK, Action.SETUP})
_NO_LATENCIES = timedelta(seconds=1)
"""Only one part draws them, and a day of them is not read for the others."""

_SUFFIXES = {
    VALIDATION_SUFFIX: "validations",
    REINITIALIZATION_SUFFIX: "snapshots",
    SETUP_SUFFIX: "actions",
    ADMINISTRATION_SUFFIX: "actions",
}
"""A publication's other DAGs, by the suffix of their ids, and the part of its page that is about what they do."""

Name = Annotated[str, Query(max_length=200)]
Chosen = Annotated[ChartRange, Query(alias="range")]
Before = Annotated[datetime | None, Query()]
BeforeError = Annotated[int | None, Query()]


@dataclass(frozen=True, slots=True)
class Selection:
    """A publication, and whether its reader may see values of rows."""

    publication: MonitoredPublication
    may_edit: bool
    user: BaseUser

    @property
    def name(self) -> str:
        return self.publication.publication


def select_publication(name: str, reader: ReaderDep, user: GetUserDep) -> Selection:
    """Return the publication of this name. Raises HTTPException as `readable_publication` does."""
    return Selection(readable_publication(name, reader), name in reader.editable, user)


SelectionDep = Annotated[Selection, Depends(select_publication)]


def publication_of(dag_id: str) -> tuple[str, str | None]:
    """Return the publication that a DAG is one of, and the part of its page that is about the DAG; None: the first."""
    for suffix, part in _SUFFIXES.items():
        if dag_id.endswith(suffix):
            return dag_id.removesuffix(suffix), part
    return dag_id, None


class PublicationRoutes:
    """None of them is `async`: a database that is slow would hold the whole API server."""

    def __init__(self, renderer: Renderer, background: BackgroundQueries) -> None:
        self._renderer = renderer
        self._background = background

    def add_to(self, app: FastAPI) -> None:
        """Let the app answer."""
        pages = APIRouter(prefix="/publication/{name}", dependencies=[MAY_SEE_MONITOR])
        data = APIRouter(prefix="/api/publication/{name}", dependencies=[MAY_SEE_MONITOR])
        for part in PARTS:
            method, path = part.replace("-", "_") or "state", f"/{part}" if part else ""
            pages.get(path, response_class=HTMLResponse, response_model=None)(getattr(self, f"{method}_page"))
            data.get(path)(getattr(self, method))
        data.get("/charts")(self.charts)
        pages.get("/runs/{run_id}", response_class=HTMLResponse, response_model=None)(self.run_page)
        app.include_router(pages)
        app.include_router(data)

    # State and charts

    def state(self, selection: SelectionDep) -> MonitoredState:
        """Return the state of the publication and its subscriptions."""
        return self._state(selection)

    def charts(self, selection: SelectionDep, chosen: Chosen = ChartRange.SIX_HOURS, subscription: Name = "") -> Charts:
        """Return the values of the charts, of one subscription or of all."""
        return PendingPart(selection.publication, _charts(chosen, subscription)).answer()

    def state_page(
        self,
        request: Request,
        name: str,
        reader: ReaderDep,
        user: GetUserDep,
        chosen: Chosen = ChartRange.SIX_HOURS,
        subscription: Name = "",
    ) -> Response:
        """Show the state and the charts; lead from a publication's other DAGs to the part that is about them."""
        publication, part = publication_of(name)
        if part is not None:
            return RedirectResponse(f"{mount_of(request)}/publication/{quote(publication, safe='')}/{part}")
        found = select_publication(name, reader, user)
        pending = PendingPart(found.publication, _charts(chosen, subscription))
        values = {
            "chosen": chosen,
            "ranges": list(ChartRange),
            "subscription": subscription,
            "legs": list(Leg),
            "quantiles_in_words": quantiles_in_words,
        }
        return self._page(request, found, "", pending, values, drawn_for=chosen)

    # Parts

    def history(
        self,
        selection: SelectionDep,
        agent: Agent | None = None,
        subscription: Name = "",
        before: Before = None,
    ) -> AgentHistory:
        """Return the agents' newest runs, the latest first."""
        return _pending_history(selection, agent, subscription, before).answer()

    def history_page(
        self,
        request: Request,
        selection: SelectionDep,
        agent: Annotated[str, Query()] = "",
        subscription: Name = "",
        before: Before = None,
    ) -> Response:
        """Show the agents' history."""
        chosen = Agent(agent) if agent in list(Agent) else None
        pending = _pending_history(selection, chosen, subscription, before)
        values = {"agent": chosen, "agents": list(Agent), "subscription": subscription, "run_id": None}
        return self._page(request, selection, "history", pending, values)

    def run_page(self, request: Request, name: str, run_id: str, reader: ReaderDep, user: GetUserDep) -> Response:
        """Show what the history has of one run of one of the publication's DAGs."""
        found = select_publication(publication_of(name)[0], reader, user)
        question = HistoryQuestion(found.name, found.may_edit, dag_run=DagRunOfTasks(name, run_id))
        values = {"agent": None, "agents": list(Agent), "subscription": "", "run_id": run_id}
        return self._page(request, found, "history", PendingPart(found.publication, question.ask), values)

    def articles(self, selection: SelectionDep) -> Sequence[PublishedArticle]:
        """Return the articles with their settings and what was delivered of each."""
        return PendingPart(selection.publication, published_articles).answer()

    def articles_page(self, request: Request, selection: SelectionDep) -> Response:
        """Show the articles."""
        return self._page(request, selection, "articles", PendingPart(selection.publication, published_articles))

    def snapshots(self, selection: SelectionDep) -> Sequence[SubscriptionSnapshot]:
        """Return the newest snapshot of each subscription, and what waits for one."""
        return PendingPart(selection.publication, newest_snapshots).answer()

    def snapshots_page(self, request: Request, selection: SelectionDep) -> Response:
        """Show the snapshots."""
        return self._page(request, selection, "snapshots", PendingPart(selection.publication, newest_snapshots))

    def validations(self, selection: SelectionDep) -> Sequence[ValidationRun]:
        """Return the newest validations with what differed."""
        return _pending_validations(selection).answer()

    def validations_page(self, request: Request, selection: SelectionDep) -> Response:
        """Show the validations."""
        return self._page(request, selection, "validations", _pending_validations(selection))

    def schema_changes(self, selection: SelectionDep) -> Sequence[StoredChange]:
        """Return the newest schema changes in their order, and which subscriptions have them."""
        return PendingPart(selection.publication, _changes).answer()

    def schema_changes_page(self, request: Request, selection: SelectionDep) -> Response:
        """Show the schema changes."""
        return self._page(request, selection, "schema-changes", PendingPart(selection.publication, _changes))

    def errors(self, selection: SelectionDep, subscription: Name = "", before: BeforeError = None) -> ErrorList:
        """Return the newest errors, the latest first."""
        return _pending_errors(selection, subscription, before).answer()

    def errors_page(
        self, request: Request, selection: SelectionDep, subscription: Name = "", before: BeforeError = None
    ) -> Response:
        """Show the errors."""
        pending = _pending_errors(selection, subscription, before)
        values = {"subscription": subscription, "rows": _rows_of_open_errors(selection, pending)}
        return self._page(request, selection, "errors", pending, values)

    def settings(self, selection: SelectionDep) -> RegisteredSettings:
        """Return the settings as registered, beside the file's."""
        return _pending_settings(selection).answer()

    def settings_page(self, request: Request, selection: SelectionDep) -> Response:
        """Show the settings."""
        values = {"file": selection.publication.settings_file}
        return self._page(request, selection, "settings", _pending_settings(selection), values)

    def _state(self, selection: Selection, looked_back: timedelta = LOOKED_BACK) -> MonitoredState:
        name = selection.name
        shown = frozenset({name} if selection.may_edit else ())
        return OverviewQuestion([selection.publication], shown, self._background, looked_back).ask()[0]

    def _may_do(self, selection: Selection, state: MonitoredState) -> frozenset[str]:
        allowed = allowed_actions(selection.user, selection.name)
        if state.problem == NOT_SET_UP:
            return allowed & _BEFORE_SETUP
        return frozenset({*allowed, "unpause"}) if state.dag.paused and selection.may_edit else allowed

    def _page(
        self,
        request: Request,
        selection: Selection,
        part: str,
        pending: PendingPart[Any],
        values: Mapping[str, object] | None = None,
        drawn_for: ChartRange | None = None,
    ) -> HTMLResponse:
        """Show a part below the publication's header; where it cannot be had, say why in its place."""
        state = self._state(selection, LOOKED_BACK if drawn_for is not None else _NO_LATENCIES)
        try:
            answer, problem = pending.answer(), None
        except HTTPException as error:
            answer, problem = None, error.detail
        drawing = publication_charts(answer, drawn_for) if drawn_for is not None and answer is not None else None
        template = f"publication_{part.replace('-', '_') or 'state'}.html"
        shown = {
            "part": part,
            "name": selection.name,
            "may_edit": selection.may_edit,
            "may_do": self._may_do(selection, state),
            "publication": state,
            "problem": state.problem or problem,
            "answer": answer if drawing is None else drawing,
        }
        return self._renderer.page(
            request, template if problem is None else "publication.html", {**shown, **(values or {})}
        )


def _charts(chosen: ChartRange, subscription: str) -> PartQuery[Charts]:
    return lambda connection, record: charts(connection, record, chosen.period, subscription or None)


def _changes(connection: Any, record: Any) -> Sequence[StoredChange]:
    return newest_changes(connection, record, _MOST_CHANGES)


def _pending_history(
    selection: Selection, agent: Agent | None, subscription: str, before: datetime | None
) -> PendingPart[AgentHistory]:
    name = selection.name
    question = HistoryQuestion(name, selection.may_edit, agent, subscription or None, before)
    return PendingPart(selection.publication, question.ask)


def _pending_validations(selection: Selection) -> PendingPart[Sequence[ValidationRun]]:
    return PendingPart(
        selection.publication,
        lambda connection, record: newest_validations(connection, record, may_edit=selection.may_edit),
    )


def _pending_errors(selection: Selection, subscription: str, before: int | None) -> PendingPart[ErrorList]:
    file = selection.publication.settings_file
    question = ErrorQuestion(file, selection.may_edit, subscription or None, before)
    return PendingPart(selection.publication, question.ask)


def _rows_of_open_errors(selection: Selection, pending: PendingPart[ErrorList]) -> Mapping[int, ComparedRow | str]:
    """Return the rows of the commands that failed last, by error, for those who may see values of rows."""
    if not selection.may_edit:
        return {}
    with suppress(HTTPException):
        return compared_rows(selection.publication, [it for it in pending.answer().errors if it.open])
    return {}


def _pending_settings(selection: Selection) -> PendingPart[RegisteredSettings]:
    file = selection.publication
    return PendingPart(selection.publication, lambda connection, record: registered_settings(connection, record, file))
