"""Scripts for the Subscribers in the log: logical messages that `tranrepl exec FILE` writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tranrepl.model.commands import Operation
from tranrepl.model.script import Script
from tranrepl.postgres.session import Session
from tranrepl.publisher.changes import Buffer, Bytes, Ints
from tranrepl.publisher.postgres.logical_messages import (
    FoundMessage,
    FoundMessages,
    content,
    messages_of,
    write_message,
)

PREFIX = b"tranrepl.script\0"
_NOT_OURS = (
    "the Publisher's log holds a message of prefix tranrepl.script that `tranrepl exec FILE` of this version did not "
    "write; no Subscriber runs it"
)


@dataclass(frozen=True, slots=True)
class ScriptMessages:
    """Reads the scripts of one publication, by the name that it has at the server."""

    publication: str
    accepted: Sequence[str] = ()
    """Digests of the scripts that are ours: every login may write messages."""

    def read(self, buffer: Buffer, kinds: Bytes, starts: Ints) -> FoundMessages:
        found = FoundMessages()
        for index in messages_of(PREFIX, buffer, kinds, starts).tolist():
            told = content(PREFIX, buffer.bytes[starts[index] : starts[index + 1]].tobytes())
            try:
                script = Script.model_validate_json(told)
            except ValueError:
                found.notices.append(_NOT_OURS)
                continue
            if script.publication != self.publication:
                continue
            if script.digest in self.accepted:
                found.messages.append(FoundMessage(index, Operation.SCRIPT, script.message))
            else:
                found.notices.append(f"{_NOT_OURS} ({script.name})")
        return found


def write_script(session: Session, script: Script) -> None:
    """Write a script into the log, in a transaction of its own."""
    write_message(session, PREFIX, script.message)
