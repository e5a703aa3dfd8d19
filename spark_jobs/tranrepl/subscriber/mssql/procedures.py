"""T-SQL procedures: their headers and bodies, and the statements that call them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from tranrepl.errors import ROW_NOT_FOUND
from tranrepl.model.call_syntax import BITMAP, Argument, Image, arguments, key_arguments
from tranrepl.model.commands import Operation
from tranrepl.subscriber.base.procedures import Procedure, ProcedureName, key_bits, mask_bytes, name_of
from tranrepl.subscriber.base.target import SqlTarget
from tranrepl.subscriber.capabilities import NameLimit, NameUnit
from tranrepl.subscriber.mssql.procedure_text import Parameter, ends_transaction, signature_problem
from tranrepl.subscriber.mssql.sql_text import SCHEMA, literal, qualified, quoted

WORDS = {Operation.UPDATE: 13233, Operation.DELETE: 13234}
_LONGEST_KEY_TEXT = 1000


def body(target: SqlTarget, operation: Operation) -> str:
    """Return the statements of the procedure that applies `operation`, each line ended."""
    return _BODIES[operation](target)


def _table(target: SqlTarget) -> str:
    return qualified(target.schema, target.name)


def _lines(parts: Sequence[str], indent: str = "    ") -> str:
    return ",\n".join(f"{indent}{part}" for part in parts)


def _insert(target: SqlTarget) -> str:
    columns = _lines([quoted(column.name) for column in target.columns])
    values = _lines([f"@{argument.name}" for argument in arguments(target.article, Operation.INSERT)])
    statement = f"insert into {_table(target)} (\n{columns}\n) values (\n{values}\n)\n"
    if not any(column.identity for column in target.columns):
        return statement
    return f"set identity_insert {_table(target)} on\n{statement}set identity_insert {_table(target)} off\n"


def _update(target: SqlTarget) -> str:
    passed = arguments(target.article, Operation.UPDATE)
    new = {it.position: f"@{it.name}" for it in passed if it.image is Image.AFTER}
    assigned = {
        at: _assignment(quoted(column.name), new[at], at, mapped=BITMAP in passed)
        for at, column in enumerate(target.columns)
        if not column.identity
    }
    return _declared() + _identity_checks(target, passed) + _update_by_key(target, assigned, mapped=BITMAP in passed)


def _assignment(name: str, value: str, at: int, *, mapped: bool) -> str:
    return (
        f"{name} = case {_byte(at)} & {_bit(at)} when {_bit(at)} then {value} else {name} end"
        if mapped
        else (f"{name} = {value}")
    )


def _update_by_key(target: SqlTarget, assigned: dict[int, str], *, mapped: bool) -> str:
    """Return one UPDATE; two where the mask tells whether the key changes, so that an index is not touched in vain."""
    key = [at for at in key_bits(target) if at in assigned] if mapped else []
    others = [it for at, it in assigned.items() if at not in key]
    if not key or not others:
        return _update_statement(target, list(assigned.values()))
    key_changed = " or ".join(f"({_byte(at)} & {_bit(at)} = {_bit(at)})" for at in key)
    return (
        f"if {key_changed}\nbegin\n{_update_statement(target, list(assigned.values()))}end\n"
        f"else\nbegin\n{_update_statement(target, others)}end\n"
    )


def _update_statement(target: SqlTarget, assigned: Sequence[str]) -> str:
    matches = _key_matches(target, Operation.UPDATE)
    if assigned:
        statement = f"update {_table(target)} set\n{_lines(assigned)}\n"
    else:
        # Nothing of the row can change, but it must be there.
        statement = f"declare @found int\nselect @found = 1 from {_table(target)}\n"
    return f"{statement}where {matches}\n{_row_not_found(target, Operation.UPDATE)}"


def _identity_checks(target: SqlTarget, passed: Sequence[Argument]) -> str:
    return "".join(
        f"if {_identity_changes(target, passed, at)}\nbegin\n"
        f"    raiserror (N'Cannot update identity column ''%s''.', 16, 1, {literal(column.name)})\n"
        "    return\nend\n"
        for at, column in enumerate(target.columns)
        if column.identity
    )


def _identity_changes(target: SqlTarget, passed: Sequence[Argument], at: int) -> str:
    """Return the condition that an UPDATE would give an identity column another value."""
    if BITMAP in passed:
        return f"{_byte(at)} & {_bit(at)} = {_bit(at)}"
    new = next(it for it in passed if it.image is Image.AFTER and it.position == at)
    different = f"{quoted(target.columns[at].name)} <> @{new.name}"
    return f"exists (select 1 from {_table(target)} where {_key_matches(target, Operation.UPDATE)} and {different})"


def _delete(target: SqlTarget) -> str:
    matches = _key_matches(target, Operation.DELETE)
    return f"{_declared()}delete {_table(target)}\nwhere {matches}\n{_row_not_found(target, Operation.DELETE)}"


def _declared() -> str:
    return f"declare @primarykey_text nvarchar({_LONGEST_KEY_TEXT}) = N''\n"


def _byte(at: int) -> str:
    return f"substring(@bitmap,{at // 8 + 1},1)"


def _bit(at: int) -> int:
    return 1 << at % 8


def _key_matches(target: SqlTarget, operation: Operation) -> str:
    key = zip(target.key_columns, key_arguments(target.article, operation), strict=True)
    return "\n  and ".join(f"{quoted(column.name)} = @{argument.name}" for column, argument in key)


def _row_not_found(target: SqlTarget, operation: Operation) -> str:
    return (
        "if @@rowcount = 0\n"
        "    if @@microsoftversion>0x07320000\n"
        "    begin\n"
        f"{''.join(_key_text(target, operation))}"
        f"        exec sp_MSreplraiserror @errorid={ROW_NOT_FOUND}, @param1={literal(_table(target))}, "
        f"@param2=@primarykey_text, @param3={WORDS[operation]}\n"
        "    end\n"
    )


def _key_text(target: SqlTarget, operation: Operation) -> Iterator[str]:
    last = len(target.key_columns) - 1
    key = zip(target.key_columns, key_arguments(target.article, operation), strict=True)
    for place, (column, argument) in enumerate(key):
        name, between = literal(f"{quoted(column.name)} = "), "" if place == last else " + N', '"
        yield (
            f"        set @primarykey_text = @primarykey_text + {name} + "
            f"convert(nvarchar(100),@{argument.name},1){between}\n"
        )


_BODIES: Mapping[Operation, Callable[[SqlTarget], str]] = {
    Operation.INSERT: _insert,
    Operation.UPDATE: _update,
    Operation.DELETE: _delete,
}


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
