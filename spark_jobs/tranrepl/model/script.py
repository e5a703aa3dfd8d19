"""Scripts for the Subscribers: SQL that runs at its place among the changes.

A script is a stored command of `Operation.SCRIPT` with its own (`xact_seqno`, `command_id`). Source:
`sp_addscriptexec`.
"""

from __future__ import annotations

import hashlib
import json
from typing import Literal

from pydantic import BaseModel, ConfigDict

MOST_SCRIPT_BYTES = 1024 * 1024
"""Bytes of UTF-8 that a script may have."""


class Script(BaseModel):
    """One script. It is written as JSON into the Publisher's log, and stored so as the `after` image of its command."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    v: Literal[1] = 1
    publication: str
    """The publication's name at the Publisher's server."""
    name: str
    """The file's name, as messages say it."""
    sql: str

    @property
    def message(self) -> str:
        """The script as the Publisher's log has it: in ASCII, as the log is in the server's encoding."""
        return json.dumps(self.model_dump())

    @property
    def digest(self) -> str:
        """SHA-256 of the message, in hexadecimal."""
        return hashlib.sha256(self.message.encode()).hexdigest()
