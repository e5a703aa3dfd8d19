"""The addresses of the commands page: stored commands, and one of them whole."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlencode

from fastapi import Depends, FastAPI, Form, HTTPException, Query, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from pydantic import BaseModel, Field

from tranrepl.admin.browse import BrowsedCommand
from tranrepl.admin.command_pages import CommandChoice, CommandPlace
from tranrepl.admin.skip_and_retry import parse_xact_seqno
from tranrepl.errors import ConfigurationError, ReplicationError
from tranrepl_airflow.monitor.access import MAY_SEE_MONITOR, Reader, ReaderDep
from tranrepl_airflow.monitor.commands import LONGEST_SHOWN, LONGEST_WHOLE, CommandsAnswer, CommandsQuestion
from tranrepl_airflow.monitor.publications import readable_publication
from tranrepl_airflow.monitor.queries import article_names
from tranrepl_airflow.monitor.rendering import Renderer

_PAGE = "/publication/{name}/commands"
_ONE = "/publication/{name}/command"


class CommandQuery(BaseModel):
    """What chooses commands: a part of the address, or, with a key, a form that was sent. A key is a value of a row,
    and an address goes into the API server's log."""

    first: str = Field("", alias="from")
    from_command: int = Field(0, ge=0)
    article: str = ""
    key: str = ""
    failing: str = ""

    def choice(self) -> CommandChoice:
        """Return what is chosen. Raises HTTPException 400 for what is no xact_seqno."""
        begin = _place(self.first, self.from_command) if self.first.strip() else CommandPlace()
        return CommandChoice(begin, self.article or None, self.key.strip() or None)

    def address(self) -> str:
        """Return what an address says of it: the key is not in it."""
        chosen = self.model_dump(by_alias=True, exclude={"key"}, exclude_defaults=True)
        return urlencode(chosen)


def _without_key(query: Annotated[CommandQuery, Query()]) -> CommandQuery:
    return query.model_copy(update={"key": ""})


QueryDep = Annotated[CommandQuery, Depends(_without_key)]


class CommandRoutes:
    """Values of rows go to those alone who may edit the publication's DAG; others get counts."""

    def __init__(self, renderer: Renderer) -> None:
        self._renderer = renderer

    def add_to(self, app: FastAPI) -> None:
        """Let the app answer these addresses."""
        app.get(_PAGE, response_class=HTMLResponse, dependencies=[MAY_SEE_MONITOR])(self.page)
        app.post(_PAGE, response_class=HTMLResponse, dependencies=[MAY_SEE_MONITOR])(self.form)
        app.get(f"/api{_PAGE}", dependencies=[MAY_SEE_MONITOR])(self.data)
        app.post(f"/api{_PAGE}", dependencies=[MAY_SEE_MONITOR])(self.data_of_key)
        app.get(_ONE, response_class=HTMLResponse, dependencies=[MAY_SEE_MONITOR])(self.whole)
        app.get(f"/api{_ONE}", dependencies=[MAY_SEE_MONITOR])(self.whole_data)

    def page(self, request: Request, name: str, reader: ReaderDep, query: QueryDep) -> HTMLResponse:
        """Show stored commands."""
        publication = readable_publication(name, reader)
        shown = {
            "name": name,
            "answer": self._answer(name, reader, query),
            "query": query,
            "articles": article_names(publication),
            "values": _sees_values(name, reader),
            "longest": LONGEST_SHOWN,
        }
        return self._renderer.page(request, "commands.html", shown)

    def form(self, request: Request, name: str, reader: ReaderDep, query: Annotated[CommandQuery, Form()]) -> Response:
        """Show what was asked for in the form: with a key here, else at an address that can be shared."""
        if query.key.strip():
            return self.page(request, name, reader, query)
        return RedirectResponse(f"commands?{query.address()}", 303)

    def data(self, name: str, reader: ReaderDep, query: QueryDep) -> CommandsAnswer:
        """Return what the page shows, as JSON."""
        return self._answer(name, reader, query)

    def data_of_key(self, name: str, reader: ReaderDep, query: CommandQuery) -> CommandsAnswer:
        """Return the same for a choice that is sent as JSON."""
        return self._answer(name, reader, query)

    def _answer(self, name: str, reader: Reader, query: CommandQuery) -> CommandsAnswer:
        publication, values = readable_publication(name, reader), _sees_values(name, reader)
        # Whether a key is found reveals a value.
        if query.key.strip() and not values:
            raise HTTPException(403)
        return CommandsQuestion(publication, values).page(query.choice(), query.failing or None)

    def whole(self, request: Request, name: str, reader: ReaderDep, xact_seqno: str, command_id: int) -> HTMLResponse:
        """Show one command, of any length."""
        shown = {"name": name, "it": self.whole_data(name, reader, xact_seqno, command_id)}
        return self._renderer.page(request, "command.html", shown)

    def whole_data(self, name: str, reader: ReaderDep, xact_seqno: str, command_id: int) -> WholeCommand:
        """Return one command, as JSON."""
        publication = readable_publication(name, reader)
        if not _sees_values(name, reader):
            raise HTTPException(403)
        try:
            found = CommandsQuestion(publication, values=True).command(_place(xact_seqno, command_id))
        except ReplicationError as error:
            raise HTTPException(503, error.message) from None
        if found is None:
            raise HTTPException(404)
        return WholeCommand.of(found)


class WholeCommand(BaseModel):
    """A stored command. `command` is cut where it is too long for any page; `characters` says how many it has."""

    xact_seqno: str
    command_id: int
    article: str
    operation: str
    command: str
    characters: int

    @classmethod
    def of(cls, found: BrowsedCommand) -> WholeCommand:
        return cls(
            xact_seqno=found.xact_seqno,
            command_id=found.command_id,
            article=found.article,
            operation=found.operation,
            command=found.command[:LONGEST_WHOLE],
            characters=len(found.command),
        )


def _sees_values(name: str, reader: Reader) -> bool:
    return name in reader.editable


def _place(text: str, command_id: int) -> CommandPlace:
    try:
        return CommandPlace(parse_xact_seqno(text.strip()), command_id)
    except ConfigurationError as error:
        raise HTTPException(400, f"{error.message}; {error.report.remedy}") from None
