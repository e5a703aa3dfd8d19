"""How routes ask for a page."""

from __future__ import annotations

from typing import Protocol

from fastapi import Request
from fastapi.responses import HTMLResponse


class Renderer(Protocol):
    """Return a template's page. `values` are what it shows."""

    def __call__(
        self, request: Request, template: str, *, status_code: int = 200, **values: object
    ) -> HTMLResponse: ...
