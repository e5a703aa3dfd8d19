"""T-SQL procedures, in the layout that SQL Server itself generates.

Source: "Transactional Articles - Specify How Changes Are Propagated", examples. 13233 and 13234 are the numbers of the
words UPDATE and DELETE in SQL Server's own message 20598.
"""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa
from sqlglot.dialects.tsql import TSQL

from tranrepl.errors import ROW_NOT_FOUND
from tranrepl.model.call_syntax import BITMAP, Argument, Image, arguments, key_arguments
from tranrepl.model.commands import Operation
from tranrepl.subscriber.capabilities import NameLimit, NameUnit
from tranrepl.subscriber.generic.identifiers import Identifiers
from tranrepl.subscriber.generic.procedures import Procedure, ProcedureName, key_bits, mask_bytes, name_of
from tranrepl.subscriber.generic.target import SqlColumn, SqlTarget
from tranrepl.subscriber.generic.transaction_control import ends_transaction

_IDENTIFIERS = Identifiers("mssql")
PROCEDURE_NAMES = NameLimit(128, NameUnit.UTF_16)
"""Characters, and so never more bytes than a name may have."""
MOST_ARGUMENTS = 2100
SCHEMA = "dbo"
RAISE_ERROR = ProcedureName(SCHEMA, "sp_MSreplraiserror")
_WORDS = {Operation.UPDATE: 13233, Operation.DELETE: 13234}
_LONGEST_KEY_TEXT = 1000

_RAISE_ERROR = f"""create procedure [dbo].[sp_MSreplraiserror]
    @errorid int,
    @param1 nvarchar(1000) = NULL,
    @param2 nvarchar(1000) = NULL,
    @param3 int = NULL
as
begin
    set nocount on
    if exists (select 1 from sys.messages where message_id = @errorid)
        raiserror (@errorid, 16, -1)
    else
    begin
        declare @text nvarchar(2000)
        set @text = convert(nvarchar(10), @errorid)
            + N': The row was not found at the Subscriber when applying the replicated '
            + case @param3 when {_WORDS[Operation.UPDATE]} then N'UPDATE' when {_WORDS[Operation.DELETE]} then N'DELETE'
              else N'' end
            + N' command for Table ''' + coalesce(@param1, N'') + N''' with Primary Key(s): ' + coalesce(@param2, N'')
        raiserror (N'%s', 16, 1, @text)
    end
end"""


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
        create = f"create procedure {_qualified(name)}\n{declared}\nas\nbegin\n{_body(target, operation)}end"
        return Procedure(name, create, create)

    def call(self, name: ProcedureName, passed: tuple[Argument, ...]) -> str:
        """Return the call by position: a custom procedure names its parameters as it likes."""
        values = ", ".join(f":tranrepl_{argument.name}" for argument in passed)
        return f"exec {_qualified(name).replace(':', chr(92) + ':')} {values}"

    def drop(self, name: ProcedureName) -> str:
        qualified = _qualified(name)
        return f"if object_id({_literal(qualified)}, N'P') is not null\n    drop procedure {qualified}"

    def stored_body(self, session: sa.Connection, name: ProcedureName) -> str | None:
        """Return the procedure's body as the catalogue has it; a system procedure's is empty."""
        body: str | None = session.scalar(
            sa.text(
                "select case when found.id is null then null else coalesce(object_definition(found.id), N'') end "
                "from (select coalesce(object_id(:own, N'P'), object_id(:system, N'P')) as id) as found"
            ),
            {"own": _qualified(name), "system": _IDENTIFIERS.qualified("sys", name.name)},
        )
        return body

    def made(self, create: str, body: str) -> bool:
        return create == body

    def ends_transaction(self, session: sa.Connection, name: ProcedureName) -> bool:
        return ends_transaction(self.stored_body(session, name) or "", TSQL.Tokenizer)

    def argument_count(self, session: sa.Connection, name: ProcedureName) -> int:
        count: int = session.scalar(
            sa.text("select count(*) from sys.parameters where object_id = object_id(:name, N'P')"),
            {"name": _qualified(name)},
        )
        return count

    def shared(self) -> tuple[Procedure, ...]:
        name = _qualified(RAISE_ERROR)
        system = _IDENTIFIERS.qualified("sys", RAISE_ERROR.name)
        missing = f"object_id({_literal(name)}, N'P') is null and object_id({_literal(system)}) is null"
        create = f"if {missing}\n    exec({_literal(_RAISE_ERROR)})"
        return (Procedure(RAISE_ERROR, create, _RAISE_ERROR),)


def _qualified(name: ProcedureName) -> str:
    return _IDENTIFIERS.qualified(name.schema or SCHEMA, name.name)


def _literal(text: str) -> str:
    return "N'" + text.replace("'", "''") + "'"


def _table(target: SqlTarget) -> str:
    return _IDENTIFIERS.qualified(target.schema or SCHEMA, target.name)


def _parameter_type(target: SqlTarget, argument: Argument) -> str:
    if argument.position is None:
        return f"binary({mask_bytes(target)})"
    return target.columns[argument.position].type.spelling


def _body(target: SqlTarget, operation: Operation) -> str:
    match operation:
        case Operation.INSERT:
            return _insert(target)
        case Operation.UPDATE:
            return _update(target)
        case _:
            return _delete(target)


def _lines(parts: Sequence[str], indent: str = "    ") -> str:
    return ",\n".join(f"{indent}{part}" for part in parts)


def _insert(target: SqlTarget) -> str:
    columns = _lines([_IDENTIFIERS.quoted(column.name) for column in target.columns])
    values = _lines([f"@{argument.name}" for argument in arguments(target.article, Operation.INSERT)])
    return f"insert into {_table(target)} (\n{columns}\n) values (\n{values}\n)\n"


def _update(target: SqlTarget) -> str:
    passed = arguments(target.article, Operation.UPDATE)
    new = {it.position: f"@{it.name}" for it in passed if it.image is Image.AFTER}
    names = [_IDENTIFIERS.quoted(column.name) for column in target.columns]
    if BITMAP not in passed:
        assigned = [f"{name} = {new[at]}" for at, name in enumerate(names)]
        return _declared() + _update_statement(target, assigned)
    assigned = [
        f"{name} = case {_byte(at)} & {_bit(at)} when {_bit(at)} then {new[at]} else {name} end"
        for at, name in enumerate(names)
    ]
    key = key_bits(target)
    if not key:
        return _declared() + _update_statement(target, assigned)
    key_changed = " or ".join(f"({_byte(at)} & {_bit(at)} = {_bit(at)})" for at in key)
    others = [it for at, it in enumerate(assigned) if at not in key]
    return (
        f"{_declared()}if {key_changed}\nbegin\n{_update_statement(target, assigned)}end\n"
        f"else\nbegin\n{_update_statement(target, others)}end\n"
    )


def _update_statement(target: SqlTarget, assigned: Sequence[str]) -> str:
    matches = _key_matches(target, Operation.UPDATE)
    return (
        f"update {_table(target)} set\n{_lines(assigned)}\nwhere {matches}\n{_row_not_found(target, Operation.UPDATE)}"
    )


def _delete(target: SqlTarget) -> str:
    matches = _key_matches(target, Operation.DELETE)
    return f"{_declared()}delete {_table(target)}\nwhere {matches}\n{_row_not_found(target, Operation.DELETE)}"


def _declared() -> str:
    return f"declare @primarykey_text nvarchar({_LONGEST_KEY_TEXT})\n"


def _byte(at: int) -> str:
    return f"substring(@bitmap,{at // 8 + 1},1)"


def _bit(at: int) -> int:
    return 1 << at % 8


def _key_matches(target: SqlTarget, operation: Operation) -> str:
    key = zip(target.key_columns, key_arguments(target.article, operation), strict=True)
    return " and ".join(f"{_IDENTIFIERS.quoted(column.name)} = @{argument.name}" for column, argument in key)


def _row_not_found(target: SqlTarget, operation: Operation) -> str:
    key = zip(target.key_columns, key_arguments(target.article, operation), strict=True)
    text = " + ".join(
        f"{_literal(_key_name(column, place))} + convert(nvarchar(100),@{argument.name},1)"
        for place, (column, argument) in enumerate(key)
    )
    return (
        "if @@rowcount = 0\n"
        "    if @@microsoftversion>0x07320000\n"
        "    begin\n"
        f"        set @primarykey_text = {text}\n"
        f"        exec sp_MSreplraiserror @errorid={ROW_NOT_FOUND}, @param1={_literal(_table(target))}, "
        f"@param2=@primarykey_text, @param3={_WORDS[operation]}\n"
        "    end\n"
    )


def _key_name(column: SqlColumn, place: int) -> str:
    return f"{', ' if place else ''}{_IDENTIFIERS.quoted(column.name)} = "
