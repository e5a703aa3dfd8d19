"""What is wrong with a value of a publication file, in words of the file: its key, what stands there, what may.

All that is said of what is allowed comes from the JSON Schema of the settings; the validator's own words never show.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from pydantic_core import ErrorDetails

from tranrepl.settings.publication import json_schema
from tranrepl.spelling import did_you_mean, likeliest

Location = tuple[int | str, ...]
_LONGEST_VALUE = 60
_ANSWERS_ANOTHER_MISTAKE = "default_factory_not_called"
"""The kind of mistake of a default that depends on a value in which there is a mistake."""
_SECTIONS = {
    "Article": "articles[…]",
    "Subscription": "subscriptions[…]",
    "Alert": "alerts[…]",
    "PublisherSettings": "publisher",
    "DistributorSettings": "distributor",
    "LogReaderSettings": "log_reader",
}


@dataclass(frozen=True, slots=True)
class Mistake:
    """`location`: of the key to look at."""

    location: Location
    text: str


def describe(details: Sequence[ErrorDetails]) -> Iterator[Mistake]:
    """Return each mistake once. A key that is missing because it is misspelt is said where it is misspelt."""
    misspelt = {found for it in details if (found := _meant(it)) is not None}
    for detail in details:
        location = _without_labels(detail["loc"])
        if detail["type"] == _ANSWERS_ANOTHER_MISTAKE or (detail["type"] == "missing" and location in misspelt):
            continue
        yield _mistake(detail, location)


def key_path(location: Location) -> str:
    """Return a location as people write it: `articles[1].columns`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).lstrip(".")


def shown(value: object) -> str:
    """Return a value as the file has it, shortened, and without what could be a login."""
    match value:
        case None:
            return "nothing"
        case bool():
            return str(value).lower()
        case str():
            text = without_login(value)
            return repr(text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…")
        case int() if abs(value) > 10**_LONGEST_VALUE:
            return f"a number of more than {_LONGEST_VALUE} digits"
        case list():
            return "a list" if value else "an empty list"
        case Mapping():
            return "a mapping" if value else "an empty mapping"
        case _:
            return str(value)


def without_login(text: str) -> str:
    """Return it with no user and password: a connection's URI where its id belongs is an easy mistake, and messages end
    in logs."""
    return re.sub(r"://.*@", "://***@", text, flags=re.DOTALL)


def allowed_keys() -> str:
    """Return the keys of the file itself."""
    return _keys(_schema())


def _mistake(detail: ErrorDetails, location: Location) -> Mistake:
    schema = _schema_at(location)
    match detail["type"]:
        case "extra_forbidden":
            return Mistake(location, f"{key_path(location)}: unknown key;{_instead_of(location)}")
        case "missing":
            about = " ".join(str(schema.get("description", "")).split()) or f"allowed: {_allowed(schema)}"
            return Mistake(location, f"{key_path(location)}: missing; {about}")
        case "value_error":
            problem = str(detail["ctx"]["error"])
        case "recursion_loop":
            problem = "contains itself; allowed: an anchor beside its alias, not around it"
        case _:
            written = detail["input"] if isinstance(detail["input"], str) else ""
            question = did_you_mean(written, schema.get("enum", ()))
            problem = f"{question.strip()} allowed: {_allowed(schema)}".lstrip()
    if detail["type"] == "value_error" and not isinstance(detail["input"], (str, int, float, list, type(None))):
        # A check of several keys names them itself.
        named = re.match(r"(\w+): ", problem)
        return Mistake((*location, named[1]) if named else location, _joined(key_path(location), problem))
    return Mistake(location, _joined(key_path(location), shown(detail["input"]), problem))


def _joined(*parts: str) -> str:
    return ": ".join(part for part in parts if part)


def _instead_of(location: Location) -> str:
    """Say where the unknown key belongs or what was meant, and what is allowed."""
    schema, key = _schema_at(location[:-1]), str(location[-1])
    question = did_you_mean(key, schema.get("properties", ()))
    if not question:
        question = next((f" it is a key of {where}," for where in _sections_with(key)), "")
    return f"{question} allowed: {_keys(schema)}"


def _sections_with(key: str) -> Iterator[str]:
    if key in _schema()["properties"]:
        yield "the file itself"
    for name, where in _SECTIONS.items():
        if key in _schema()["$defs"][name]["properties"]:
            yield where


def _meant(detail: ErrorDetails) -> Location | None:
    if detail["type"] != "extra_forbidden":
        return None
    location = _without_labels(detail["loc"])
    name = likeliest(str(location[-1]), _schema_at(location[:-1]).get("properties", ()))
    return None if name is None else (*location[:-1], name)


def _without_labels(location: Location) -> Location:
    """Return the location without the labels that the validator puts before the values in a notifier's arguments."""
    if "arguments" not in location:
        return location
    begin = location.index("arguments") + 2
    return (*location[:begin], *location[begin + 1 :: 2])


@cache
def _schema() -> dict[str, Any]:
    return json_schema()


def _schema_at(location: Location) -> dict[str, Any]:
    """Return what the JSON Schema says of a value; nothing where it says nothing."""
    found = _schema()
    for part in location:
        inner = found.get("items") if isinstance(part, int) else found.get("properties", {}).get(part)
        found = _resolved(inner or {})
    return found


def _resolved(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema with what it refers to in place, without deprecated values and without the `null` that a key
    left out means."""
    if "anyOf" in schema:
        (choice,) = (it for it in schema["anyOf"] if it != {"type": "null"})
        return {**_resolved(choice), **_without(schema, "anyOf")}
    if "$ref" in schema:
        return _resolved({**_schema()["$defs"][schema["$ref"].rpartition("/")[2]], **_without(schema, "$ref")})
    if "oneOf" in schema:
        (current,) = (it for it in schema["oneOf"] if not it.get("deprecated"))
        return {**_without(schema, "oneOf"), **current}
    return schema


def _without(schema: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {name: it for name, it in schema.items() if name != key}


def _allowed(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return ", ".join(map(str, schema["enum"]))
    match schema.get("type"):
        case "object" if "properties" in schema:
            return f"a mapping with the keys {_keys(schema)}"
        case "object":
            return "a mapping"
        case "array":
            inner = _resolved(schema.get("items", {}))
            of = f" of mappings with the keys {_keys(inner)}" if "properties" in inner else ""
            return f"a list{of}{', not empty' if schema.get('minItems') else ''}"
        case "integer":
            return f"a whole number{_between(schema)}"
        case "number":
            return f"a number above {schema['exclusiveMinimum']:g}, {schema['maximum']:,g} at most"
        case "boolean":
            return "true, false"
        case "string":
            return f"text{_length(schema)}"
        case _:
            return "text, numbers, true, false, lists and mappings of them"


def _between(schema: Mapping[str, Any]) -> str:
    least, most = schema.get("minimum"), schema.get("maximum")
    if least is None:
        return ""
    return f", {least} or more" if most is None else f" from {least:,} to {most:,}"


def _length(schema: Mapping[str, Any]) -> str:
    least, most = schema.get("minLength"), schema.get("maxLength")
    if most is not None:
        return f" of {least or 0} to {most:,} characters"
    return "" if least is None else ", not empty"


def _keys(schema: Mapping[str, Any]) -> str:
    return ", ".join(schema.get("properties", ()))
