"""T-SQL procedures: their headers, and the statements that call them."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from tranrepl.model.call_syntax import BITMAP, Argument, arguments
from tranrepl.model.commands import Operation
from tranrepl.subscriber.base.procedures import Procedure, ProcedureName, mask_bytes, name_of
from tranrepl.subscriber.base.target import SqlTarget
from tranrepl.subscriber.capabilities import NameLimit, NameUnit
from tranrepl.subscriber.mssql.procedure_bodies import WORDS, body
from tranrepl.subscriber.mssql.sql_text import SCHEMA, literal, qualified
from tranrepl.subscriber.mssql.stored_procedures import StoredSqlProcedure, find_procedures

PROCEDURE_NAMES = NameLimit(128, NameUnit.UTF_16)
"""Characters, and so never more bytes than a name may have."""
MOST_ARGUMENTS = 2100
RAISE_ERROR = ProcedureName(SCHEMA, "sp_MSreplraiserror")

_RAISE_ERROR = f"""create procedure [dbo].[sp_MSreplraiserror]
    @errorid int,
    @param1 nvarchar(1000) = NULL,
    @param2 nvarchar(1000) = NULL,
    @param3 int = NULL
as
begin
    set nocount on
    declare @text nvarchar(2000)
    set @text = convert(nvarchar(10), @errorid)
        + N': The row was not found at the Subscriber when applying the replicated '
        + case @param3 when {WORDS[Operation.UPDATE]} then N'UPDATE ' when {WORDS[Operation.DELETE]} then N'DELETE '
          else N'' end
        + N'command' + coalesce(N' for Table ''' + @param1 + N''' with Primary Key(s): ' + @param2, N'') + N'.'
    raiserror (N'%s', 16, 1, @text)
end"""
"""For servers without SQL Server's own procedure and message: the number begins the text."""


class SqlServerScripter:
    """Writes T-SQL that SQL Server 2008 takes too: no `create or alter`."""

    names = PROCEDURE_NAMES

    def procedure(self, target: SqlTarget, operation: Operation) -> Procedure:
        name = name_of(target, operation, self.names)
        passed = arguments(target.article, operation)
        # Of SCALL and MCALL every parameter but the mask may be left out; of the others none.
        default = " = NULL" if BITMAP in passed else ""
        declared = ",\n".join(
            f"    @{it.name} {_parameter_type(target, it)}{'' if it is BITMAP else default}" for it in passed
        )
        create = f"create procedure {_named(name)}\n{declared}\nas\nbegin\n{body(target, operation)}end"
        return Procedure(name, create, create)

    def call(self, name: ProcedureName, passed: tuple[Argument, ...]) -> str:
        """Return the call by position: a custom procedure names its parameters as it likes."""
        values = ", ".join(f":tranrepl_{argument.name}" for argument in passed)
        return f"exec {_named(name).replace(':', chr(92) + ':')} {values}"

    def drop(self, name: ProcedureName) -> str:
        return f"if object_id({literal(_named(name))}, N'P') is not null\n    drop procedure {_named(name)}"

    def stored(self, session: sa.Connection, names: Sequence[ProcedureName]) -> dict[ProcedureName, StoredSqlProcedure]:
        """Return the procedures that are there, system procedures too."""
        return find_procedures(session, {it: (_named(it), qualified("sys", it.name)) for it in names})

    def made(self, create: str, body: str) -> bool:
        return create == body

    def shared(self) -> tuple[Procedure, ...]:
        name, system = _named(RAISE_ERROR), qualified("sys", RAISE_ERROR.name)
        missing = f"object_id({literal(name)}, N'P') is null and object_id({literal(system)}) is null"
        create = f"if {missing}\n    exec({literal(_RAISE_ERROR)})"
        return (Procedure(RAISE_ERROR, create, _RAISE_ERROR),)


def _named(name: ProcedureName) -> str:
    return qualified(name.schema, name.name)


def _parameter_type(target: SqlTarget, argument: Argument) -> str:
    if argument.position is None:
        return f"binary({mask_bytes(target)})"
    return target.columns[argument.position].type.spelling
