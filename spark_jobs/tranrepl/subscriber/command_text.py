"""Commands as text, for people to read; and error 20598 in SQL Server's words: one that met no row at the Subscriber.

The form follows real output of `sp_browsereplcmds`: the call keyword is always CALL, numbers and times stand bare,
other values in quotes, an explicit NULL as NULL, a value that does not travel as nothing, the mask in hexadecimal.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tranrepl.model.article import RegisteredArticle
from tranrepl.model.bitmask import changed_columns
from tranrepl.model.call_syntax import Argument, Image, Values, arguments, sent
from tranrepl.model.commands import Method, Operation
from tranrepl.model.row_images import values
from tranrepl.model.schema_change import SchemaChange
from tranrepl.model.script import Script
from tranrepl.model.tracer_token import TracerToken
from tranrepl.schema.words import change_in_words
from tranrepl.subscriber.capabilities import NameLimit
from tranrepl.subscriber.procedure_names import called_procedure

# boolean is not among them: its text form is a letter.
_BARE_TYPES = re.compile(
    r"(smallint|integer|bigint|numeric|real|double precision|date|time|timestamp)(\(.*\))?( with(out)? time zone)?"
)


def command_key(article: RegisteredArticle, operation: Operation, row: Mapping[str, Any]) -> str | None:
    """Return the key of a command's row (row layout) as text; None where there is none."""
    found = command_key_values(article, operation, row)
    return None if found is None else key_text(found)


def command_key_values(
    article: RegisteredArticle, operation: Operation, row: Mapping[str, Any]
) -> list[tuple[str, str | None]] | None:
    """Return names and values of the key of a command's row (row layout), as it was before; None where there is
    none."""
    line = row[Image.AFTER.value if operation is Operation.INSERT else Image.BEFORE.value]
    if operation in (Operation.TRUNCATE, Operation.SCHEMA) or line is None:
        return None
    found = values(line)
    return [(article.columns[at].name, found[at] if at < len(found) else None) for at in article.key_positions]


def command_text(
    article: RegisteredArticle, operation: Operation, row: Mapping[str, Any], procedure_names: NameLimit
) -> str:
    """Return `{CALL [procedure] (arguments)}`, or the statement in the same spirit.

    `procedure_names` is the Subscriber's limit, by which the procedure is named that is called there.
    """
    if operation is Operation.TRUNCATE:
        return f"TRUNCATE TABLE {article.destination}"
    if operation is Operation.SCHEMA:
        return change_in_words(SchemaChange.model_validate_json(row[Image.AFTER.value]), article.destination)
    passed = arguments(article, operation)
    images = {image: values(row[image.value]) for image in (Image.BEFORE, Image.AFTER) if row[image.value] is not None}
    changed = changed_columns(row["changed"], len(article.columns)) if row["changed"] is not None else None
    text = ",".join(_value(article, operation, argument, images, row["changed"], changed) for argument in passed)
    propagation = article.propagation(operation)
    if propagation.method is Method.PROCEDURE:
        called = called_procedure(propagation, operation, article.destination, procedure_names)
        return f"{{CALL {'.'.join(f'[{part}]' for part in called if part)} ({text})}}"
    return f"{operation.name} {article.destination} ({text})"


def message_text(operation: Operation, text: str) -> str:
    """Return a command of no article: a script, or a tracer token."""
    if operation is Operation.TRACER_TOKEN:
        return f"TRACER TOKEN {TracerToken.model_validate_json(text).token}"
    return script_text(Script.model_validate_json(text))


def script_text(script: Script) -> str:
    """Return a script with its name, its text as it was written."""
    return f"SCRIPT {script.name}: {script.sql.strip()}"


def _value(
    article: RegisteredArticle,
    operation: Operation,
    argument: Argument,
    images: Mapping[Image, Sequence[str | None]],
    mask: bytes | None,
    changed: Sequence[int] | None,
) -> str:
    if argument.position is None:
        return f"0x{(mask or b'').hex()}"
    value = images[argument.image][argument.position]
    if value is None:
        only_changed = sent(article.propagation(operation), operation).after is Values.CHANGED
        unsent = only_changed and argument.image is Image.AFTER and argument.position + 1 not in (changed or ())
        return "" if unsent else "NULL"
    bare = _BARE_TYPES.fullmatch(article.columns[argument.position].type_name)
    escaped = value.replace("'", "''")
    return value if bare else f"'{escaped}'"


def row_not_found_text(operation: Operation, table: object) -> str:
    """Return the message up to where the key follows, as in `id = 5`."""
    return (
        f"The row was not found at the Subscriber when applying the replicated {operation.name} command for Table "
        f"'{table}' with Primary Key(s): "
    )


def key_text(key: Iterable[tuple[str, str | None]]) -> str:
    """Return names and values of the key's columns."""
    return ", ".join(f"{name} = {value}" for name, value in key)
