"""A change that cannot become a command: reading ends before its transaction."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tranrepl.article import RegisteredArticle
from tranrepl.errors import ConfigurationError, DataError, ReplicationError
from tranrepl.publisher.changes import LEFT_OUT, Cells, ChangeSet


class RefusedChange(Exception):  # noqa: N818 — it is no error of its own, it carries one
    """`place` is the refused change's."""

    def __init__(self, place: int, error: ReplicationError) -> None:
        super().__init__(error.message)
        self.place = place
        self.error = error


def refuse_left_out(changes: ChangeSet, image: Cells, positions: Sequence[int]) -> None:
    """Raise RefusedChange where a value that is needed is not in the log; `image` holds the columns at `positions`."""
    left_out = image.lengths == LEFT_OUT
    if not left_out.any():
        return
    article = changes.article
    names = ", ".join(article.columns[positions[at]].name for at in np.flatnonzero(left_out.any(axis=0)).tolist())
    error = DataError(
        f"article {article.source}: the log does not have the values of {names} that must travel",
        remedy=f"ALTER TABLE {article.source} REPLICA IDENTITY FULL; changes made before that cannot be read in full: "
        "initialise the subscriptions anew",
        article=str(article.source),
    )
    raise RefusedChange(int(changes.places[left_out.any(axis=1)][0]), error)


def refused_truncate(article: RegisteredArticle) -> ReplicationError:
    return ConfigurationError(
        f"article {article.source}: the table was truncated, and truncate: error stands in its settings (error 4711)",
        remedy="set truncate: replicate or ignore and run `tranrepl setup FILE`; with ignore, the Subscriber keeps its "
        "rows",
        article=str(article.source),
    )
