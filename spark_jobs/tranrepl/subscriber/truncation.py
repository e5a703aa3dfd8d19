"""TRUNCATE of several tables: which of its commands, one for each table, go together.

The log has one statement's tables side by side, parents before children where it was `TRUNCATE … CASCADE`. Two such
statements of one transaction, with nothing between them, are as good as one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tranrepl.model.commands import Operation, xact_seqno_numbers

Bools = npt.NDArray[np.bool_]


def behind_another(commands: pa.Table) -> Bools:
    """Return whether a command (row layout, in order) is a TRUNCATE that comes right behind another one of its
    transaction; shape (commands,)."""
    truncates = commands["operation"].to_numpy() == Operation.TRUNCATE
    behind = np.zeros(len(commands), dtype=np.bool_)
    if np.count_nonzero(truncates) > 1:
        seqnos = xact_seqno_numbers(commands["xact_seqno"].combine_chunks())
        behind[1:] = truncates[1:] & truncates[:-1] & (seqnos[1:] == seqnos[:-1])
    return behind


def children_first(commands: pa.Table, rank: Mapping[int, int]) -> pa.Table:
    """Sort commands for tables that may refer to one another by the rank of their articles
    (`constraints.parents_first`); in order where it is the same."""
    ranks = np.array([rank.get(it, 0) for it in commands["article_id"].to_pylist()], dtype=np.int64)
    return commands.take(pa.array(np.argsort(-ranks, kind="stable")))


def refer_to_one_another(articles: Iterable[int], references: Iterable[tuple[int, int]]) -> bool:
    """Return whether the table of one of the articles refers to another one's; `references` are (child, parent)."""
    among = set(articles)
    return any(child in among and parent in among for child, parent in references)
