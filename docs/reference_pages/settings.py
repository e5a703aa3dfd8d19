"""The keys of a publication's file, from the schema that reads it."""

from __future__ import annotations

import ast
import inspect
import json
import textwrap
import types
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from reference_pages.markdown import item, paragraph
from tranrepl.model.commands import Propagation
from tranrepl.settings.alert import Alert
from tranrepl.settings.publication import (
    Article,
    DistributorSettings,
    LogReaderSettings,
    Publication,
    PublisherSettings,
    Subscription,
    json_schema,
)

_SECTIONS: Mapping[str, tuple[str, type[BaseModel]]] = {
    "The publication": ("", Publication),
    "Publisher": ("publisher.", PublisherSettings),
    "Distributor": ("distributor.", DistributorSettings),
    "Articles": ("articles[].", Article),
    "Subscriptions": ("subscriptions[].", Subscription),
    "Log reader": ("log_reader.", LogReaderSettings),
    "Alerts": ("alerts[].", Alert),
}
_MORE: Mapping[str, str] = {
    "schedule": "[Backfill](../how-to/backfill.md)",
    "run_for": "[Continuous agents](../how-to/continuous-agents.md)",
    "polling_interval": "[Continuous agents](../how-to/continuous-agents.md)",
    "validation_schedule": "[Validate](../how-to/validate.md)",
    "publisher.connection": "[Rights](rights.md)",
    "publisher.snapshot_timeout": "[Snapshot](../how-to/snapshot.md)",
    "articles[].ins_cmd": "[Propagation](../explanation/propagation.md)",
    "articles[].upd_cmd": "[Propagation](../explanation/propagation.md)",
    "articles[].del_cmd": "[Propagation](../explanation/propagation.md)",
    "articles[].filter": "[Row filter](../explanation/propagation.md#row-filter)",
    "articles[].update_policy": "[Deferred updates](../explanation/propagation.md#deferred-updates)",
    "articles[].truncate": "[TRUNCATE](../explanation/propagation.md#truncate)",
    "articles[].pre_creation_cmd": "[Snapshot](../how-to/snapshot.md)",
    "articles[].on_unknown_rows": "[Schema changes](../how-to/schema-changes.md#an-article-is-reinitialized)",
    "articles[].order": "[Bulk and serial](../explanation/bulk-and-serial.md)",
    "subscriptions[].sync_type": "[Snapshot](../how-to/snapshot.md)",
    "subscriptions[].subscription_streams": "[Streams](../explanation/streams.md)",
    "subscriptions[].stream_assignment": "[Streams](../explanation/streams.md)",
    "subscriptions[].skip_errors": "[A batch failed](../how-to/a-batch-failed.md#skip-an-error)",
    "subscriptions[].apply": "[Bulk and serial](../explanation/bulk-and-serial.md)",
    "subscriptions[].commit_batch_size": "[Tuning](../performance/tuning.md)",
    "subscriptions[].commit_batch_threshold": "[Tuning](../performance/tuning.md)",
    "subscriptions[].not_for_replication": "[Foreign keys and triggers](../explanation/foreign-keys-and-triggers.md)",
    "subscriptions[].foreign_keys": "[Foreign keys and triggers](../explanation/foreign-keys-and-triggers.md)",
    "subscriptions[].sequences": "[Move to the Subscriber](../how-to/move-to-the-subscriber.md)",
    "log_reader.read_batch_size": "[Tuning](../performance/tuning.md)",
    "alerts[].notifier": "[Alerts](../how-to/alerts.md)",
    "alerts[].arguments": "[Alerts](../how-to/alerts.md)",
}
"""Pages that say more of a key."""
_WORDS = {"string": "text", "integer": "whole number", "boolean": "`true` or `false`", "object": "a mapping"}
_PLURALS = {"string": "texts", "integer": "whole numbers"}


def settings() -> str:
    """Return a section for each part of the file, and in it one for each key."""
    definitions = json_schema()
    parts = []
    for heading, (prefix, model) in _SECTIONS.items():
        own = definitions if model is Publication else definitions["$defs"][model.__name__]
        parts.append(f"## {heading}")
        for name, field in model.model_fields.items():
            if not _is_section(field):
                parts.extend(_key(f"{prefix}{name}", field, own["properties"][name], definitions["$defs"]))
    return "\n\n".join(parts)


def _key(path: str, field: FieldInfo, schema: dict[str, Any], definitions: dict[str, Any]) -> Iterator[str]:
    yield f"### `{path}`"
    resolved = _resolved(schema, definitions)
    values = _choices(field) | _deprecated_values(resolved)
    facts = [f"Default: {_default(field, resolved)}."] if not field.is_required() else ["Required."]
    if not values:
        facts.append(f"Allowed: {_allowed(resolved)}.")
    if path in _MORE:
        facts.append(f"More: {_MORE[path]}.")
    yield paragraph(" ".join([field.description or "", *facts]))
    if values:
        yield "\n".join(item(f"`{value}`: {words}") for value, words in values.items())


def _is_section(field: FieldInfo) -> bool:
    """Return whether the key holds keys of its own."""
    return any(isinstance(it, type) and issubclass(it, BaseModel) for it in _types(field.annotation))


def _types(annotation: Any) -> Iterator[Any]:
    """Yield the type, or those that a union or a list holds."""
    if get_origin(annotation) in (Union, types.UnionType, list):
        for argument in get_args(annotation):
            yield from _types(argument)
    else:
        yield annotation


def _choices(field: FieldInfo) -> dict[str, str]:
    """Return the allowed values with what the code says of each, where they are an enumeration's."""
    for it in _types(field.annotation):
        if isinstance(it, type) and issubclass(it, StrEnum):
            return _members(it)
    return {}


def _deprecated_values(schema: dict[str, Any]) -> dict[str, str]:
    return {
        it["const"]: f"Deprecated. {it['description']}" for it in schema.get("oneOf", ()) if it.get("deprecated", False)
    }


def _members(enumeration: type[StrEnum]) -> dict[str, str]:
    """Return each value with the docstring below it. Raises KeyError for one that has none."""
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(enumeration))).body
    assert isinstance(definition, ast.ClassDef)
    said = {}
    for statement, following in zip(definition.body, definition.body[1:], strict=False):
        match statement, following:
            case ast.Assign(targets=[ast.Name(id=name)]), ast.Expr(value=ast.Constant(value=str() as text)):
                said[name] = " ".join(text.split())
    return {member.value: said[member.name] for member in enumeration}


def _resolved(schema: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """Return the schema with what it refers to in its place, without the alternative null."""
    if "$ref" in schema:
        return {**definitions[schema["$ref"].removeprefix("#/$defs/")], **schema}
    for alternative in schema.get("anyOf", ()):
        if alternative.get("type") != "null":
            return {**schema, **_resolved(alternative, definitions)}
    return schema


def _default(field: FieldInfo, schema: dict[str, Any]) -> str:
    value = str(field.default) if isinstance(field.default, Propagation) else schema.get("default")
    if value is None and field.default_factory is not None:
        value = field.get_default(call_default_factory=True, validated_data={})
    if value is None or value in ([], {}):
        return "none"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return f"`{value if isinstance(value, str) else json.dumps(value)}`"


def _allowed(schema: dict[str, Any]) -> str:
    kind = schema.get("type", "")
    if kind == "array":
        items = schema["items"]
        kinds = items["type"] if isinstance(items["type"], list) else [items["type"]]
        return f"a list of {' or '.join(_PLURALS[it] for it in kinds)}{_examples(items)}"
    if kind == "integer" and "minimum" in schema:
        return f"{schema['minimum']:,} to {schema['maximum']:,}"
    if kind == "number":
        return f"a number above {schema['exclusiveMinimum']:g}, {schema['maximum']:,g} at most"
    if "examples" in schema and "pattern" in schema:
        return ", ".join(f"`{it}`" for it in schema["examples"])
    if "maxLength" in schema:
        return f"{_WORDS[kind]} of at most {schema['maxLength']:,} characters"
    return f"{_WORDS[kind]}{_examples(schema)}"


def _examples(schema: dict[str, Any]) -> str:
    examples = schema.get("examples", ())
    return f", as in {', '.join(f'`{it}`' for it in examples)}" if examples else ""
