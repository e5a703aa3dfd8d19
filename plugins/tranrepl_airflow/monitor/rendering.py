"""Pages from templates."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

import tranrepl
from tranrepl.printable import counted, printable
from tranrepl_airflow.monitor import display

PARTS = {
    "": "State and charts",
    "errors": "Errors",
    "history": "History",
    "articles": "Articles",
    "snapshots": "Snapshots",
    "validations": "Validations",
    "schema-changes": "Schema changes",
    "settings": "Settings",
}
"""The parts of a publication's page that show what the distribution database has: the last part of each one's address,
and its title."""
ALL_PARTS = {**PARTS, "commands": "Commands", "actions": "Actions"}


class Renderer:
    """Makes pages. Every template knows where the monitor and Airflow are (`mount`, `airflow`), and the time."""

    def __init__(self) -> None:
        self._templates = Environment(
            loader=PackageLoader("tranrepl_airflow.monitor"),
            autoescape=True,
            undefined=StrictUndefined,
            finalize=_shown,
        )
        self._templates.globals |= {
            "display": display,
            "counted": counted,
            "publication_parts": ALL_PARTS,
            "version": tranrepl.__version__,
        }

    def page(
        self, request: Request, template: str, values: Mapping[str, object], status_code: int = 200
    ) -> HTMLResponse:
        """Return the page of a template."""
        mount = mount_of(request)
        text = self._templates.get_template(template).render(
            mount=mount, airflow=mount.removesuffix("/monitor"), now=datetime.now(UTC), **values
        )
        return HTMLResponse(text, status_code)


def _shown(value: object) -> object:
    """Return what a page shows of a value. What a form sends back is escaped already (`| e`), and as it is."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def mount_of(request: Request) -> str:
    """Return the path below which the monitor's own addresses are."""
    return str(request.scope.get("root_path", ""))
