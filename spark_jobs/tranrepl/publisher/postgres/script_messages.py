"""Scripts for the Subscribers in the log: logical messages that `tranrepl exec FILE` writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tranrepl.model.commands import Operation
from tranrepl.model.script import Script
from tranrepl.postgres.session import Session
from tranrepl.publisher.postgres.logical_messages import (
    FoundMessage,
    FoundMessages,
    SignedMessage,
    write_message,
)
from tranrepl.publisher.postgres.message_secret import MessageKind

_KIND = MessageKind.SCRIPT
_NOT_REGISTERED = (
    "the Publisher's log holds a script that is not registered in the distribution database; no Subscriber runs it ({})"
)


@dataclass(frozen=True, slots=True)
class ScriptMessages:
    """Reads the scripts of one publication, by the name that it has at the server."""

    publication: str
    accepted: Sequence[str] = ()
    """Digests of the scripts that are registered: who may sign messages at the Publisher may not for that run SQL at
    the Subscribers."""

    def read(self, messages: Sequence[SignedMessage]) -> FoundMessages:
        found = FoundMessages()
        scripts = [(it.index, Script.model_validate_json(it.text)) for it in messages if it.kind is _KIND]
        for index, script in scripts:
            if script.publication != self.publication:
                continue
            if script.digest in self.accepted:
                found.messages.append(FoundMessage(index, Operation.SCRIPT, script.message))
            else:
                found.notices.append(_NOT_REGISTERED.format(script.name))
        return found


def write_script(session: Session, script: Script, where: str) -> None:
    """Write a script into the log, in a transaction of its own."""
    write_message(session, _KIND, script.publication, script.message, where)
