"""Messages of ours in a Publisher's log, in terms of no database: their kinds, and what the log reader takes of them.

How they are written and found, and by what they are known to be ours, is the Publisher's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from tranrepl.model.commands import Operation
from tranrepl.model.pending_definitions import DefinitionMessage
from tranrepl.model.script import Script
from tranrepl.model.tracer_token import TracerToken
from tranrepl.publisher.log_range import SchemaReading

_NOT_REGISTERED = (
    "the Publisher's log holds a script that is not registered in the distribution database, or has run already; no "
    "Subscriber runs it ({})"
)


class MessageKind(Enum):
    """The kinds of messages, by their names in a log, of 15 characters."""

    SCHEMA = "tranrepl.schema"
    DEFINITION = "tranrepl.define"
    SCRIPT = "tranrepl.script"
    TRACER = "tranrepl.tracer"


@dataclass(frozen=True, slots=True)
class Message:
    """A message that is ours: where it is in what was read at a time, and its text."""

    index: int
    kind: MessageKind
    text: bytes


@dataclass(frozen=True, slots=True)
class FoundMessage:
    """A message that becomes a command of no article: its index, and what its command is."""

    index: int
    operation: Operation
    text: str


@dataclass(slots=True)
class FoundMessages:
    """Such messages of one batch, in order, and notes on those that become none."""

    messages: list[FoundMessage] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)


class MessageReader(Protocol):
    """Reads one kind of message."""

    def read(self, messages: Sequence[Message]) -> FoundMessages: ...


@dataclass(frozen=True, slots=True)
class TokenMessages:
    """Reads the tokens of one publication, by the name that it has at the server."""

    publication: str

    def read(self, messages: Sequence[Message]) -> FoundMessages:
        tokens = [
            (it.index, TracerToken.model_validate_json(it.text)) for it in messages if it.kind is MessageKind.TRACER
        ]
        return FoundMessages(
            [
                FoundMessage(index, Operation.TRACER_TOKEN, token.message)
                for index, token in tokens
                if token.publication == self.publication
            ]
        )


class ScriptMessages:
    """Reads the scripts of one publication, by the name that it has at the server, in one reading of the log.

    `accepted`: the digests of the scripts that are registered, each for one message. Who may write messages of ours at
    the Publisher may not for that run SQL at the Subscribers, nor a script twice.
    """

    def __init__(self, publication: str, accepted: Iterable[str] = ()) -> None:
        self._publication = publication
        self._accepted = Counter(accepted)

    def read(self, messages: Sequence[Message]) -> FoundMessages:
        found = FoundMessages()
        scripts = [(it.index, Script.model_validate_json(it.text)) for it in messages if it.kind is MessageKind.SCRIPT]
        for index, script in scripts:
            if script.publication != self._publication:
                continue
            if self._accepted[script.digest] > 0:
                self._accepted[script.digest] -= 1
                found.messages.append(FoundMessage(index, Operation.SCRIPT, script.message))
            else:
                found.notices.append(_NOT_REGISTERED.format(script.name))
        return found


def due_definitions(text: bytes, publication: str, reading: SchemaReading) -> str | None:
    """Return the digest of setup's message before which a reading ends; None where it means nothing to the publication.
    Raises ValueError where it is none of this version's."""
    message = DefinitionMessage.model_validate_json(text)
    if message.publication != publication:
        return None
    return message.digest if reading.definitions is None or message.digest in reading.definitions else None
