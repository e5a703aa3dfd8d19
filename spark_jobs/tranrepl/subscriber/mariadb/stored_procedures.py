"""Procedures in MariaDB's catalogue: one query of each kind, for all procedures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from tranrepl.model.call_syntax import Argument
from tranrepl.subscriber.base.procedures import ProcedureName, count_problem
from tranrepl.subscriber.base.transaction_control import ends_transaction
from tranrepl.subscriber.mariadb.sql_text import tokenizer

_TEXT = (
    "SELECT :number{0} AS number, COALESCE(routine_definition, '') AS body, sql_mode FROM information_schema.routines "
    "WHERE routine_type = 'PROCEDURE' AND routine_schema = COALESCE(:schema{0}, DATABASE()) AND routine_name = :name{0}"
)
_COUNT = (
    "SELECT :number{0} AS number, COUNT(*) AS parameters FROM information_schema.parameters "
    "WHERE routine_type = 'PROCEDURE' "
    "AND specific_schema = COALESCE(:schema{0}, DATABASE()) AND specific_name = :name{0}"
)


@dataclass(frozen=True, slots=True)
class StoredRoutine:
    body: str
    """Empty where our login may not see it."""
    sql_mode: str
    parameters: int

    def ends_transaction(self) -> bool:
        # The catalogue has comments for the server (/*! … */) as what they are for it: its own text, or nothing.
        return ends_transaction(self.body, tokenizer(self.sql_mode))

    def signature_problem(self, passed: tuple[Argument, ...]) -> str | None:
        return count_problem(self.parameters, len(passed))


def find_routines(session: sa.Connection, names: Sequence[ProcedureName]) -> dict[ProcedureName, StoredRoutine]:
    """Return the procedures that are there; names are compared as the server does."""
    if not names:
        return {}
    counts = {row.number: row.parameters for row in session.execute(*_of_each(_COUNT, names))}
    return {
        names[row.number]: StoredRoutine(row.body, row.sql_mode, counts[row.number])
        for row in session.execute(*_of_each(_TEXT, names))
    }


def _of_each(query: str, names: Sequence[ProcedureName]) -> tuple[sa.TextClause, dict[str, object]]:
    """Return the query for all names in one, and its parameters."""
    text = " UNION ALL ".join(query.format(at) for at in range(len(names)))
    values: dict[str, object] = {}
    for at, it in enumerate(names):
        values |= {f"number{at}": at, f"schema{at}": it.schema, f"name{at}": it.name}
    return sa.text(text), values
