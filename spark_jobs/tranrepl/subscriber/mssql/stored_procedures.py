"""Procedures in SQL Server's catalogue: one query of each kind, for all procedures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from tranrepl.model.call_syntax import Argument
from tranrepl.subscriber.base.procedures import ProcedureName
from tranrepl.subscriber.mssql.procedure_text import Parameter, ends_transaction, signature_problem

_TEXTS = sa.text("select object_id, definition from sys.sql_modules where object_id in :ids").bindparams(
    sa.bindparam("ids", expanding=True)
)
_PARAMETERS = sa.text(
    "select p.object_id, p.name, t.name as type_name, p.max_length from sys.all_parameters p "
    "join sys.types t on t.user_type_id = p.user_type_id where p.object_id in :ids "
    "order by p.object_id, p.parameter_id"
).bindparams(sa.bindparam("ids", expanding=True))


@dataclass(frozen=True, slots=True)
class StoredSqlProcedure:
    body: str
    """Its text without blank lines of the script around it; of a system procedure, or one WITH ENCRYPTION, empty."""
    parameters: tuple[Parameter, ...]

    def ends_transaction(self) -> bool:
        return ends_transaction(self.body)

    def signature_problem(self, passed: tuple[Argument, ...]) -> str | None:
        return signature_problem(self.parameters, self.body, passed)


def find_procedures(
    session: sa.Connection, wanted: Mapping[ProcedureName, tuple[str, str]]
) -> dict[ProcedureName, StoredSqlProcedure]:
    """Return the procedures that are there. `wanted`: how each is called, by its own name and as a system procedure,
    each quoted."""
    ids = _ids(session, wanted)
    if not ids:
        return {}
    given = {"ids": sorted(set(ids.values()))}
    texts = {row.object_id: row.definition for row in session.execute(_TEXTS, given)}
    parameters: dict[int, list[Parameter]] = {}
    for row in session.execute(_PARAMETERS, given):
        parameters.setdefault(row.object_id, []).append(Parameter(row.name, row.type_name, row.max_length))
    return {
        name: StoredSqlProcedure((texts.get(number) or "").strip(), tuple(parameters.get(number, ())))
        for name, number in ids.items()
    }


def _ids(session: sa.Connection, wanted: Mapping[ProcedureName, tuple[str, str]]) -> dict[ProcedureName, int]:
    """Return the object_id of each procedure that is there: names are compared as the server does."""
    names: Sequence[ProcedureName] = list(wanted)
    if not names:
        return {}
    asked = sa.values(
        sa.column("number", sa.Integer), sa.column("own", sa.Unicode), sa.column("system", sa.Unicode), name="asked"
    ).data([(at, *wanted[it]) for at, it in enumerate(names)])
    kind: sa.ColumnElement[str] = sa.literal_column("N'P'")
    found: sa.ColumnElement[Any] = sa.func.coalesce(
        sa.func.object_id(asked.c.own, kind), sa.func.object_id(asked.c.system, kind)
    )
    rows = session.execute(sa.select(asked.c.number, found.label("id")))
    return {names[row.number]: row.id for row in rows if row.id is not None}
