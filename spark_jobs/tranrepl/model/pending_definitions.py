"""Definitions of articles that setup wrote down, until the log reader comes to setup's message in the log.

The message has the digest alone: what it says of an article lies in the distribution database, and no other message
means anything.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import sha256
from typing import Literal

from pydantic import BaseModel, ConfigDict

from tranrepl.model.article import RegisteredArticle


class PendingDefinitions(BaseModel):
    """Articles as one setup defines them: from its message on, or where reading goes on."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    digest: str
    articles: tuple[RegisteredArticle, ...]
    """`article_id` is 0; `begins_after` is the log's end when setup looked at the tables."""
    at_once: bool
    """Whether they hold from where reading goes on: it had stopped, and may not come to the message otherwise."""
    in_log: bool = False
    """Whether the message is in the log; until it is, setup has not finished."""

    @classmethod
    def of(cls, articles: Sequence[RegisteredArticle], *, at_once: bool) -> PendingDefinitions:
        text = "\n".join(it.model_dump_json() for it in articles)
        return cls(digest=sha256(text.encode()).hexdigest(), articles=tuple(articles), at_once=at_once)


class DefinitionMessage(BaseModel):
    """Setup's message in the Publisher's log."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    v: Literal[1] = 1
    publication: str
    """The publication's name at the Publisher's server."""
    digest: str
    """That of the pending definitions which hold from here on."""

    @property
    def message(self) -> str:
        """The message as the Publisher's log has it: in ASCII, as the log is in the server's encoding."""
        return json.dumps(self.model_dump())
