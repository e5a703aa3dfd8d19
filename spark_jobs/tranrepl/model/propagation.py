"""How changes of an article go out: `ins_cmd`, `upd_cmd`, `del_cmd`, `update_policy` and `truncate`, as a file writes
them."""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

from tranrepl.model.commands import CallSyntax, Method, Operation, Propagation
from tranrepl.model.names import procedure_parts
from tranrepl.spelling import did_you_mean

_DEFAULT_SYNTAXES = {
    Operation.INSERT: CallSyntax.CALL,
    Operation.UPDATE: CallSyntax.SCALL,
    Operation.DELETE: CallSyntax.CALL,
}
_SYNTAXES: dict[Operation, tuple[CallSyntax, ...]] = {
    Operation.INSERT: (CallSyntax.CALL,),
    Operation.UPDATE: (CallSyntax.CALL, CallSyntax.SCALL, CallSyntax.MCALL, CallSyntax.XCALL),
    Operation.DELETE: (CallSyntax.CALL, CallSyntax.XCALL),
}
_WITHOUT_PROCEDURE = {"SQL": Method.STATEMENT, "NONE": Method.NONE}


def _validated(value: object, operation: Operation) -> Propagation:
    if isinstance(value, Propagation):
        return value
    return _parse_propagation(value if isinstance(value, str) else "", operation)


@lru_cache(maxsize=1024)
def _parse_propagation(value: str, operation: Operation) -> Propagation:
    """Parse `SYNTAX`, `SYNTAX procedure`, `SQL` or `NONE`."""
    syntaxes = _SYNTAXES[operation]
    allowed = f"allowed: {', '.join(syntaxes)} (each alone or with the name of a procedure), SQL, NONE"
    word, _, rest = value.strip().partition(" ")
    if word in _WITHOUT_PROCEDURE and not rest:
        return Propagation(_WITHOUT_PROCEDURE[word])
    if word == "VCALL":
        raise ValueError(f"VCALL is for SQL Server's internal use; {allowed}")
    if word not in syntaxes:
        known = word in (*CallSyntax, *_WITHOUT_PROCEDURE)
        question = "" if known else did_you_mean(word, (*syntaxes, *_WITHOUT_PROCEDURE))
        raise ValueError(f"{question} {allowed}".lstrip())
    return Propagation(Method.PROCEDURE, CallSyntax(word), _custom_procedure(rest.strip()) if rest else None)


def _custom_procedure(text: str) -> str:
    try:
        parts = procedure_parts(text)
    except ValueError:
        parts = []
    if len(parts) not in (1, 2):
        raise ValueError("allowed: procedure or schema.procedure, a part with a dot or a space in double quotes")
    return text


def _propagation(operation: Operation) -> Any:
    syntaxes = "|".join(_SYNTAXES[operation])
    return (
        BeforeValidator(lambda value: _validated(value, operation)),
        PlainSerializer(str, return_type=str),
        WithJsonSchema(
            {
                "type": "string",
                "pattern": f"^\\s*(SQL|NONE|({syntaxes})( +\\S.*)?)\\s*$",
                "default": str(_DEFAULT_SYNTAXES[operation]),
                "examples": [*_SYNTAXES[operation], f"{_SYNTAXES[operation][-1]} my_procedure", "SQL", "NONE"],
            }
        ),
    )


InsertCommand = Annotated[Propagation, *_propagation(Operation.INSERT)]
UpdateCommand = Annotated[Propagation, *_propagation(Operation.UPDATE)]
DeleteCommand = Annotated[Propagation, *_propagation(Operation.DELETE)]


class UpdatePolicy(StrEnum):
    """How an UPDATE of a column of a unique constraint or unique index goes out (KB 238254, "deferred update")."""

    PAIRS = "pairs"
    """As a DELETE and an INSERT."""
    SINGLETON_UPDATE = "singleton_update"
    """As an UPDATE where it is the only change of its transaction (trace flag 8207), otherwise as a pair."""
    ALWAYS_PAIRS = "always_pairs"
    """Every UPDATE becomes a DELETE and an INSERT (trace flag 8202)."""


class Truncation(StrEnum):
    """What a TRUNCATE at the Publisher does."""

    REPLICATE = "replicate"
    """The article's rows at the Subscriber are deleted, in commit order."""
    IGNORE = "ignore"
    """The Subscriber keeps its rows."""
    ERROR = "error"
    """The log reader stops before it."""
