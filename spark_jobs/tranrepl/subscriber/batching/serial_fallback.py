"""Commands that could not go in bulk as a whole, in order: serially, and where a foreign key refuses that within a
transaction, this one in bulk by itself.

One statement at the Publisher may change rows that refer to one another, which a foreign key minds row by row; and two
transactions may depend on their order, which bulk gives up.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from tranrepl.errors import DataError


def apply_in_order(
    commands: pa.Table,
    serially: Callable[[pa.Table], None],
    in_bulk: Callable[[pa.Table], bool],
    refused: frozenset[str],
) -> None:
    """Apply commands (row layout, in order) of which bulk has refused the whole.

    `serially` applies all or raises and leaves nothing, `in_bulk` applies all or says that it has left nothing.
    `refused` are a database's codes of errors for which a transaction goes in bulk. Raises what `serially` did where
    that does not help either.
    """
    while True:
        try:
            serially(commands)
        except DataError as problem:
            before, failing, after = _around(commands, problem)
            alone = len(before) == len(after) == 0
            if problem.report.code not in refused or alone or len(failing) < 2:
                raise
            serially(before)
            if not in_bulk(failing):
                raise
            commands = after
        else:
            return


def _around(commands: pa.Table, problem: DataError) -> tuple[pa.Table, pa.Table, pa.Table]:
    """Return the commands before the transaction that failed, its own, and those after it."""
    seqno = pa.scalar(bytes.fromhex(problem.report.xact_seqno or ""), pa.binary())
    seqnos = commands["xact_seqno"]
    start, end = pc.sum(pc.less(seqnos, seqno)).as_py() or 0, pc.sum(pc.less_equal(seqnos, seqno)).as_py() or 0
    return commands.slice(0, start), commands.slice(start, end - start), commands.slice(end)
