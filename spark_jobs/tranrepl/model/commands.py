"""Changes and commands: operations, propagation methods, and call syntaxes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum

from tranrepl.model.position import POSITION_BYTES

XACT_SEQNO_BYTES = POSITION_BYTES
"""Width of `xact_seqno`: a transaction's position in its Publisher's log, whose bytes sort in commit order."""

FIRST_XACT_SEQNO = bytes(XACT_SEQNO_BYTES)
"""Before every transaction: the watermark of a subscription that has received nothing."""


class Operation(IntEnum):
    """What a row of the layout does. The number is what is stored."""

    INSERT = 1
    UPDATE = 2
    DELETE = 3
    TRUNCATE = 4
    SCHEMA = 5
    """A schema change (`tranrepl.model.schema_change`): its `after` image is JSON, and its article the one before."""
    SCRIPT = 6
    """A script for the Subscribers: its `after` image is JSON. It is of no article."""
    TRACER_TOKEN = 7
    """A tracer token: its `after` image is JSON. It is of no article, and applied by none: it passes with the
    watermark."""


NO_ARTICLE_ID = 0
"""The `article_id` of a command that is of no article."""


class Method(StrEnum):
    """How an operation reaches the Subscriber.

    Source: "Transactional Articles - Specify How Changes Are Propagated".
    """

    PROCEDURE = "procedure"
    STATEMENT = "SQL"
    NONE = "NONE"


class CallSyntax(StrEnum):
    """Which values a procedure is passed (same page, "Call Syntax for Stored Procedures")."""

    CALL = "CALL"
    SCALL = "SCALL"
    MCALL = "MCALL"
    XCALL = "XCALL"


@dataclass(frozen=True, slots=True)
class Propagation:
    """One of `ins_cmd`, `upd_cmd`, `del_cmd`, parsed. `procedure` is None for the generated procedure."""

    method: Method
    syntax: CallSyntax | None = None
    procedure: str | None = None

    def __str__(self) -> str:
        if self.method is not Method.PROCEDURE:
            return self.method.value
        return " ".join(filter(None, (self.syntax, self.procedure)))
