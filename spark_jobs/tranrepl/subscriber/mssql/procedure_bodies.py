"""Bodies of the generated T-SQL procedures, in the layout that SQL Server itself generates.

Source: "Transactional Articles - Specify How Changes Are Propagated", examples, and scripts of later versions, whose
20598 names table and key. 13233 and 13234 are the numbers of the words UPDATE and DELETE in that message. An identity
column takes the Publisher's value in an INSERT, and none in an UPDATE, as everywhere in SQL Server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from tranrepl.errors import ROW_NOT_FOUND
from tranrepl.model.call_syntax import BITMAP, Argument, Image, arguments, key_arguments
from tranrepl.model.commands import Operation
from tranrepl.subscriber.base.procedures import key_bits
from tranrepl.subscriber.base.target import SqlTarget
from tranrepl.subscriber.mssql.sql_text import literal, qualified, quoted

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
