"""Tracer tokens: marks in the Publisher's log, by which latency is measured on the way of the changes themselves.

A token is a stored command of `Operation.TRACER_TOKEN` with its own (`xact_seqno`, `command_id`). Source:
`sp_posttracertoken`.
"""

from __future__ import annotations

import json
from typing import Annotated, Literal
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, StringConstraints

TokenName = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]


class TracerToken(BaseModel):
    """One token. It is written as JSON into the Publisher's log, and stored so as the `after` image of its command."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    v: Literal[1] = 1
    publication: str
    """The publication's name at the Publisher's server."""
    token: TokenName
    """What tells it from all others, made up at random."""

    @classmethod
    def new(cls, publication: str) -> TracerToken:
        """Return a token that no other is equal to."""
        return cls(publication=publication, token=uuid4().hex)

    @property
    def message(self) -> str:
        """The token as the Publisher's log has it: in ASCII, as the log is in the server's encoding."""
        return json.dumps(self.model_dump())
