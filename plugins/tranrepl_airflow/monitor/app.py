"""The monitor's app, which Airflow's API server mounts: pages, the same as JSON, and what pages load."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated

from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles

from tranrepl.distributor.database.overview import SubscriptionState
from tranrepl_airflow.monitor.access import MAY_SEE_MONITOR, Reader, ReaderDep
from tranrepl_airflow.monitor.action_routes import ActionRoutes
from tranrepl_airflow.monitor.background_queries import BackgroundQueries
from tranrepl_airflow.monitor.command_routes import CommandRoutes
from tranrepl_airflow.monitor.overview import MonitoredState, OverviewQuestion
from tranrepl_airflow.monitor.publication_routes import PublicationRoutes
from tranrepl_airflow.monitor.publications import monitored_publications
from tranrepl_airflow.monitor.rendering import Renderer

_STATIC = Path(__file__).with_name("static")
_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'self'; form-action 'self'; object-src 'none'; "
    "base-uri 'none'",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
}
ATTENTION = "attention"
_SENTENCES = {
    401: "You are logged out. Log in to Airflow, and open this page again.",
    403: "You may not see this. Ask an administrator of Airflow for access.",
    404: "There is no such page, or nothing that you may read.",
}

Call = Callable[[Request], Awaitable[Response]]


def monitor_app() -> FastAPI:
    """Make the app."""
    app = FastAPI(title="Replication Monitor", openapi_url=None)
    renderer, background = Renderer(), BackgroundQueries()
    pages = _Pages(renderer, background)
    app.mount("/static", StaticFiles(directory=_STATIC), name="static")
    app.get("/", response_class=HTMLResponse, dependencies=[MAY_SEE_MONITOR])(pages.overview)
    app.get("/api/overview", dependencies=[MAY_SEE_MONITOR])(pages.overview_data)
    PublicationRoutes(renderer, background).add_to(app)
    CommandRoutes(renderer).add_to(app)
    ActionRoutes(renderer).add_to(app)
    app.exception_handler(HTTPException)(pages.refused)
    app.exception_handler(RequestValidationError)(pages.not_understood)
    app.exception_handler(Exception)(pages.failed)
    app.middleware("http")(_answer)
    return app


async def _answer(request: Request, call_next: Call) -> Response:
    return _with_headers(request, await call_next(request))


def _with_headers(request: Request, response: Response) -> Response:
    for name, value in _HEADERS.items():
        if name != "Cache-Control" or "/static/" not in request.url.path:
            response.headers[name] = value
    return response


class _Pages:
    """What each address answers with. No route is `async`: a database that is slow would hold the whole API server."""

    def __init__(self, renderer: Renderer, background: BackgroundQueries) -> None:
        self._renderer = renderer
        self._background = background

    def overview(
        self,
        request: Request,
        reader: ReaderDep,
        text: Annotated[str, Query()] = "",
        state: Annotated[str, Query()] = "",
    ) -> HTMLResponse:
        """Show every publication that the reader may read, filtered by its text and state."""
        states = self._states(reader)
        shown = [it for it in states if _is_chosen(it, text.strip().lower(), state)]
        values = {
            "states": states,
            "shown": shown,
            "text": text,
            "state": state,
            "choices": [it.value for it in SubscriptionState],
            "attention": ATTENTION,
        }
        return self._renderer.page(request, "overview.html", values)

    def overview_data(self, reader: ReaderDep) -> list[MonitoredState]:
        """Return what the page shows, as JSON."""
        return self._states(reader)

    def refused(self, request: Request, error: HTTPException) -> Response:
        """Say why there is no page."""
        detail = str(error.detail)
        # The framework's own words are no sentence.
        sentence = detail if detail.endswith(".") else _SENTENCES.get(error.status_code, detail)
        return self._message(request, error.status_code, sentence)

    def not_understood(self, request: Request, error: RequestValidationError) -> Response:
        """Say which part of the address cannot be used."""
        names = ", ".join(str(it["loc"][-1]) for it in error.errors())
        return self._message(request, 422, f"Part of the address cannot be used: {names}.")

    def failed(self, request: Request, error: Exception) -> Response:
        """Say that a page has failed; the API server's log has the reason."""
        sentence = f"This page failed ({type(error).__name__}). The log of Airflow's API server says why."
        # The framework answers an error outside of all that a response passes otherwise.
        return _with_headers(request, self._message(request, 500, sentence))

    def _message(self, request: Request, status_code: int, sentence: str) -> Response:
        if "/api/" in request.url.path:
            return JSONResponse({"detail": sentence}, status_code)
        return self._renderer.page(request, "message.html", {"message": sentence}, status_code)

    def _states(self, reader: Reader) -> list[MonitoredState]:
        return OverviewQuestion(monitored_publications(reader.readable), reader.editable, self._background).ask()


def _is_chosen(state: MonitoredState, text: str, chosen: str) -> bool:
    names = [state.publication, *(it.subscription for it in state.subscriptions)]
    if text and not any(text in it.lower() for it in names):
        return False
    if chosen == ATTENTION:
        return state.needs_attention
    return not chosen or any(it.state.value == chosen for it in state.subscriptions)
