"""The addresses of actions: their page, the page that shows what a skip loses, and where forms are sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import Depends, FastAPI, HTTPException, Query, Request
from fastapi.responses import HTMLResponse

from tranrepl.admin.command_pages import CommandChoice, CommandPlace, CountedTransaction, StoredCommands
from tranrepl.distributor.database import DistributionDatabase
from tranrepl.errors import ConfigurationError, ReplicationError
from tranrepl.settings.publication import Publication
from tranrepl_airflow.monitor.access import MAY_SEE_MONITOR, Reader, ReaderDep
from tranrepl_airflow.monitor.actions import Action, ActionRequest, dag_id_of
from tranrepl_airflow.monitor.commands import Transaction, shown_transactions
from tranrepl_airflow.monitor.compared_rows import compared_rows
from tranrepl_airflow.monitor.errors import ShownError, next_transaction, open_failures
from tranrepl_airflow.monitor.publications import MonitoredPublication, readable_publication
from tranrepl_airflow.monitor.queries import article_names, query_store, store_problem
from tranrepl_airflow.monitor.recent_runs import FollowedRun, HandRun, LastCheck, followed_run, last_check, recent_runs
from tranrepl_airflow.monitor.rendering import Renderer
from tranrepl_airflow.monitor.triggering import (
    TriggeredRun,
    Unpaused,
    allowed_actions,
    paused_dags,
    sent_by_our_page,
    trigger,
    unpause,
)

_PAGE = "/publication/{name}/actions"
_SKIP = "/publication/{name}/skip/{subscription}"
_SHOWN_OF_A_LOSS = 20

Name = Annotated[str, Query(max_length=200)]


@dataclass(frozen=True, slots=True)
class Loss:
    """What a skip loses: the next transaction, and the first of its commands."""

    counted: CountedTransaction
    shown: Transaction | None
    """None for those who may not see values of rows."""

    @property
    def xact_seqno(self) -> str:
        return f"0x{self.counted.xact_seqno}"

    @property
    def commands(self) -> int:
        return self.counted.commands.total()


class ActionRoutes:
    """Each action needs what triggering its DAG in Airflow needs."""

    def __init__(self, renderer: Renderer) -> None:
        self._renderer = renderer

    def add_to(self, app: FastAPI) -> None:
        """Let the app answer these addresses."""
        app.get(_PAGE, response_class=HTMLResponse, dependencies=[MAY_SEE_MONITOR])(self.page)
        app.get(_SKIP, response_class=HTMLResponse, dependencies=[MAY_SEE_MONITOR])(self.skip)
        ours = [Depends(sent_by_our_page), MAY_SEE_MONITOR]
        app.post(f"/api{_PAGE}/unpause", dependencies=ours)(self.unpause)
        app.post(f"/api{_PAGE}/{{action}}", dependencies=ours)(self.act)
        app.get(f"/api{_PAGE}/runs/{{dag_id}}/{{run_id}}", dependencies=[MAY_SEE_MONITOR])(self.run)

    def page(
        self,
        request: Request,
        name: str,
        reader: ReaderDep,
        user: GetUserDep,
        subscription: Name = "",
        article: Name = "",
        *,
        repair: bool = False,
    ) -> HTMLResponse:
        """Show what can be done to the publication, and what was done lately; with what is chosen in a validation."""
        publication = readable_publication(name, reader)
        values = name in reader.editable
        failures, problem = _failures(publication, values=values)
        shown = {
            "name": name,
            "monitored": publication,
            "articles": article_names(publication),
            "may_do": allowed_actions(user, name),
            "values": values,
            "failures": failures,
            "problem": problem,
            "runs": _runs(name, reader),
            "check": _check(name, reader),
            "chosen_subscription": subscription,
            "chosen_article": article,
            "repair": repair,
            "open_errors": len(failures),
            "paused": [dag_id for dag_id, paused in _dags(name, reader).items() if paused],
        }
        return self._renderer.page(request, "actions.html", shown)

    def skip(self, request: Request, name: str, subscription: str, reader: ReaderDep, user: GetUserDep) -> HTMLResponse:
        """Show what a skip loses, and ask for the transaction to be typed."""
        publication = readable_publication(name, reader)
        if Action.SKIP not in allowed_actions(user, name):
            raise HTTPException(403)
        if subscription not in [it.name for it in publication.subscriptions]:
            raise HTTPException(404)
        values = name in reader.editable
        found = query_store(publication, lambda database: _loss(database, publication, subscription, values=values))
        problem = store_problem(publication, found, subscription) if isinstance(found, ReplicationError) else None
        loss = None if isinstance(found, ReplicationError) else found
        failures, _ = _failures(publication, values=values)
        row = None
        if values and loss is not None:
            failing = [it for it in failures if (it.subscription, it.xact_seqno) == (subscription, loss.xact_seqno)]
            row = next(iter(compared_rows(publication, failing[:1]).values()), None)
        shown = {
            "name": name,
            "subscription": subscription,
            "loss": loss,
            "problem": problem,
            "row": row,
            "open_errors": len(failures),
        }
        return self._renderer.page(request, "skip.html", shown)

    def act(
        self, request: Request, name: str, action: Action, body: ActionRequest, reader: ReaderDep, user: GetUserDep
    ) -> TriggeredRun:
        """Trigger the run that does it."""
        readable_publication(name, reader)
        if action not in allowed_actions(user, name):
            raise HTTPException(403)
        try:
            conf = body.conf(action)
        except ConfigurationError as error:
            raise HTTPException(400, "; ".join(filter(None, [error.message, error.report.remedy]))) from None
        return trigger(user, request, dag_id_of(action, name), conf)

    def unpause(self, name: str, reader: ReaderDep, user: GetUserDep) -> Unpaused:
        """Unpause the publication's own DAG."""
        readable_publication(name, reader)
        if name not in reader.editable:
            raise HTTPException(403)
        return unpause(user, name)

    def run(self, name: str, dag_id: str, run_id: str, reader: ReaderDep) -> FollowedRun:
        """Return how a run that was triggered goes."""
        readable_publication(name, reader)
        if dag_id not in {dag_id_of(it, name) for it in Action} & reader.readable:
            raise HTTPException(403)
        found = followed_run(dag_id, run_id, note=name in reader.editable)
        if found is None:
            raise HTTPException(404)
        return found


def _failures(publication: MonitoredPublication, *, values: bool) -> tuple[list[ShownError], str | None]:
    def asked(database: DistributionDatabase) -> list[ShownError]:
        database.publications.get(publication.publication)
        return open_failures(database, publication, values=values)

    found = query_store(publication, asked)
    return ([], store_problem(publication, found)) if isinstance(found, ReplicationError) else (found, None)


def _loss(database: DistributionDatabase, publication: Publication, subscription: str, *, values: bool) -> Loss | None:
    name = publication.publication
    seqno = next_transaction(database, database.publications.get(name), subscription)
    if seqno is None:
        return None
    stored, begin = StoredCommands(database, name), CommandPlace(seqno)
    (counted,) = stored.transactions(CommandChoice(begin, most=1)).transactions
    if not values:
        return Loss(counted, None)
    commands = stored.page(CommandChoice(begin, most=_SHOWN_OF_A_LOSS)).commands
    return Loss(counted, shown_transactions(commands)[0])


def _dags(name: str, reader: Reader) -> dict[str, bool]:
    return paused_dags({dag_id_of(it, name) for it in Action} & reader.readable)


def _runs(name: str, reader: Reader) -> list[HandRun]:
    return recent_runs(list(_dags(name, reader)), notes=name in reader.editable)


def _check(name: str, reader: Reader) -> LastCheck | None:
    dag_id = dag_id_of(Action.CHECK, name)
    return last_check(dag_id) if dag_id in reader.readable else None
