"""How the streams of a delivery agree: all of them commit, or none does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pydantic import BaseModel, ConfigDict

from tranrepl.errors import ErrorReport


class Vote(Protocol):
    """Gather the ballots of a delivery's streams. Every stream takes part in the same rounds, in the same order."""

    def gather(self, ballot: str) -> Sequence[str]:
        """Wait for all, and return everyone's ballots, by stream."""
        ...


class Ballot(BaseModel):
    """What a stream says: that it goes on, or why it cannot."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    error: ErrorReport | None = None


def first_error(vote: Vote, error: ErrorReport | None) -> ErrorReport | None:
    """Gather; return the error of the first stream that has one. None: everyone goes on."""
    ballots = vote.gather(Ballot(error=error).model_dump_json())
    errors = [Ballot.model_validate_json(it).error for it in ballots]
    return next((it for it in errors if it is not None), None)
