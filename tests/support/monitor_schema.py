"""The schema of Replication Monitor's JSON API: what is answered, and what is sent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import jsonschema  # type: ignore[import-untyped]

_API = "/api"
_START = f"{_API}/publication/{{name}}"


def api_schema(app: Any) -> dict[str, Any]:
    """Return the schema of each answer by its address below a publication's, of the overview, and of each body that is
    posted."""
    described = app.openapi()
    paths = {
        path.removeprefix(_START).removeprefix(_API).strip("/") or "state": methods
        for path, methods in described["paths"].items()
        if path.startswith(_API)
    }
    posted = {name: methods["post"] for name, methods in paths.items() if "post" in methods}
    found = {
        "answers": {name: _answer(methods["get"]) for name, methods in paths.items() if "get" in methods},
        "posted": {name: _content(it["requestBody"]) for name, it in posted.items()},
        "answers_to_posted": {name: _answer(it) for name, it in posted.items()},
        "components": {"schemas": described["components"]["schemas"]},
    }
    without_titles: dict[str, Any] = json.loads(json.dumps(found), object_hook=_without_title)
    return without_titles


def _answer(operation: Mapping[str, Any]) -> Any:
    return _content(operation["responses"]["200"])


def _content(described: Mapping[str, Any]) -> Any:
    return described["content"]["application/json"]["schema"]


def _without_title(value: dict[str, Any]) -> dict[str, Any]:
    return {name: it for name, it in value.items() if not (name == "title" and isinstance(it, str))}


def assert_fits(schema: Mapping[str, Any], kind: str, name: str, value: object) -> None:
    """Fail where what was sent or answered is not as the schema says."""
    escaped = name.replace("/", "~1").replace("{", "%7B").replace("}", "%7D")
    jsonschema.validate(value, {**schema, "$ref": f"#/{kind}/{escaped}"})
