"""T-SQL against golden text, in the layout that SQL Server itself generates (reference: its own sample scripts)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa

from support.command_history import Column, registered, table_description
from tranrepl.errors import ConfigurationError
from tranrepl.model.commands import Operation
from tranrepl.model.names import TableName
from tranrepl.settings.publication import Article
from tranrepl.subscriber.base.destination import intended_target
from tranrepl.subscriber.base.statements import Shape, statement
from tranrepl.subscriber.mssql.database import SqlServer
from tranrepl.subscriber.procedure_names import Scripted
from tranrepl.subscriber.registry import script_of

VENDOR = [
    Column("BusinessEntityID", "integer", key=1),
    Column("AccountNumber", "character varying(15)", not_null=True),
    Column("Na]me", "character varying(50)"),
]
NAME = TableName("Purchasing", "Vendor")


def _scripts(columns: list[Column] = VENDOR, what: Scripted = Scripted.GENERATED, **settings: Any) -> dict[str, str]:
    """Return the scripted procedures by their prefix."""
    article = Article.model_validate({"source": NAME, **settings})
    table = table_description(NAME, columns)
    statements = script_of("mssql", [(registered(article, table, 1), table)], what).statements[1:]
    assert all(it.startswith("if object_id(N'[") for it in statements[::2])
    return {it.split("].[")[1].split("]")[0]: it for it in statements[1::2]}


INSERT = """create procedure [dbo].[sp_MSins_PurchasingVendor]
    @c1 int,
    @c2 nvarchar(15),
    @c3 nvarchar(50)
as
begin
insert into [Purchasing].[Vendor] (
    [BusinessEntityID],
    [AccountNumber],
    [Na]]me]
) values (
    @c1,
    @c2,
    @c3
)
end"""

NOT_FOUND = """if @@rowcount = 0
    if @@microsoftversion>0x07320000
    begin
        set @primarykey_text = @primarykey_text + N'[BusinessEntityID] = ' + convert(nvarchar(100),@{key},1)
        exec sp_MSreplraiserror @errorid=20598, @param1=N'[Purchasing].[Vendor]', @param2=@primarykey_text, """
NOT_FOUND += """@param3={word}
    end
"""

MAPPED_UPDATE = (
    """create procedure [dbo].[sp_MSupd_PurchasingVendor]
    @c1 int = NULL,
    @c2 nvarchar(15) = NULL,
    @c3 nvarchar(50) = NULL,
    @pkc1 int = NULL,
    @bitmap binary(1)
as
begin
declare @primarykey_text nvarchar(1000) = N''
if (substring(@bitmap,1,1) & 1 = 1)
begin
update [Purchasing].[Vendor] set
    [BusinessEntityID] = case substring(@bitmap,1,1) & 1 when 1 then @c1 else [BusinessEntityID] end,
    [AccountNumber] = case substring(@bitmap,1,1) & 2 when 2 then @c2 else [AccountNumber] end,
    [Na]]me] = case substring(@bitmap,1,1) & 4 when 4 then @c3 else [Na]]me] end
where [BusinessEntityID] = @pkc1
"""
    + NOT_FOUND.format(key="pkc1", word=13233)
    + """end
else
begin
update [Purchasing].[Vendor] set
    [AccountNumber] = case substring(@bitmap,1,1) & 2 when 2 then @c2 else [AccountNumber] end,
    [Na]]me] = case substring(@bitmap,1,1) & 4 when 4 then @c3 else [Na]]me] end
where [BusinessEntityID] = @pkc1
"""
    + NOT_FOUND.format(key="pkc1", word=13233)
    + "end\nend"
)

CALL_UPDATE = (
    """create procedure [dbo].[sp_MSupd_PurchasingVendor]
    @c1 int,
    @c2 nvarchar(15),
    @c3 nvarchar(50),
    @pkc1 int
as
begin
declare @primarykey_text nvarchar(1000) = N''
update [Purchasing].[Vendor] set
    [BusinessEntityID] = @c1,
    [AccountNumber] = @c2,
    [Na]]me] = @c3
where [BusinessEntityID] = @pkc1
"""
    + NOT_FOUND.format(key="pkc1", word=13233)
    + "end"
)

XCALL_UPDATE = (
    """create procedure [dbo].[sp_MSupd_PurchasingVendor]
    @old_c1 int,
    @old_c2 nvarchar(15),
    @old_c3 nvarchar(50),
    @c1 int,
    @c2 nvarchar(15),
    @c3 nvarchar(50)
as
begin
declare @primarykey_text nvarchar(1000) = N''
update [Purchasing].[Vendor] set
    [BusinessEntityID] = @c1,
    [AccountNumber] = @c2,
    [Na]]me] = @c3
where [BusinessEntityID] = @old_c1
"""
    + NOT_FOUND.format(key="old_c1", word=13233)
    + "end"
)

DELETE = (
    """create procedure [dbo].[sp_MSdel_PurchasingVendor]
    @pkc1 int
as
begin
declare @primarykey_text nvarchar(1000) = N''
delete [Purchasing].[Vendor]
where [BusinessEntityID] = @pkc1
"""
    + NOT_FOUND.format(key="pkc1", word=13234)
    + "end"
)

XCALL_DELETE = (
    """create procedure [dbo].[sp_MSdel_PurchasingVendor]
    @old_c1 int,
    @old_c2 nvarchar(15),
    @old_c3 nvarchar(50)
as
begin
declare @primarykey_text nvarchar(1000) = N''
delete [Purchasing].[Vendor]
where [BusinessEntityID] = @old_c1
"""
    + NOT_FOUND.format(key="old_c1", word=13234)
    + "end"
)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, {"ins": INSERT, "upd": MAPPED_UPDATE, "del": DELETE}),
        ({"upd_cmd": "MCALL"}, {"ins": INSERT, "upd": MAPPED_UPDATE, "del": DELETE}),
        ({"upd_cmd": "CALL"}, {"ins": INSERT, "upd": CALL_UPDATE, "del": DELETE}),
        ({"upd_cmd": "XCALL", "del_cmd": "XCALL"}, {"ins": INSERT, "upd": XCALL_UPDATE, "del": XCALL_DELETE}),
        ({"ins_cmd": "SQL", "upd_cmd": "NONE"}, {"del": DELETE}),
    ],
)
def test_procedures_are_as_sql_server_writes_them(settings: Mapping[str, Any], expected: Mapping[str, str]) -> None:
    assert _scripts(**settings) == {f"sp_MS{it}_PurchasingVendor": text for it, text in expected.items()}


def test_a_table_of_keys_only_has_one_branch() -> None:
    text = _scripts([Column("a", "integer", key=2), Column("b", "bigint", key=1)])["sp_MSupd_PurchasingVendor"]
    assert "else\nbegin" not in text
    assert "where [b] = @pkc1\n  and [a] = @pkc2\n" in text
    assert "+ N'[b] = ' + convert(nvarchar(100),@pkc1,1) + N', '\n" in text
    assert "+ N'[a] = ' + convert(nvarchar(100),@pkc2,1)\n" in text


def test_the_mask_is_counted_in_bytes_from_the_left() -> None:
    columns = [Column("id", "integer", key=1), *(Column(f"c{at}", "integer") for at in range(2, 18))]
    text = _scripts(columns)["sp_MSupd_PurchasingVendor"]
    assert "@bitmap binary(3)" in text
    assert "[c8] = case substring(@bitmap,1,1) & 128 when 128 then @c8 else [c8] end" in text
    assert "[c9] = case substring(@bitmap,2,1) & 1 when 1 then @c9 else [c9] end" in text
    assert "[c17] = case substring(@bitmap,3,1) & 1 when 1 then @c17 else [c17] end" in text


def test_a_custom_procedure_has_a_skeleton_under_its_name() -> None:
    scripts = _scripts(what=Scripted.CUSTOM, del_cmd='XCALL audit."vendor ]delete"')
    (text,) = scripts.values()
    assert text.startswith("create procedure [audit].[vendor ]]delete]\n    @old_c1 int,\n")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("boolean", "bit"),
        ("smallint", "smallint"),
        ("bigint", "bigint"),
        ("numeric(10,2)", "decimal(10, 2)"),
        ("numeric(3,5)", "decimal(5, 5)"),
        ("numeric(3,-2)", "decimal(5, 0)"),
        ("numeric", "decimal(38, 15)"),
        ("numeric(100,50)", "decimal(38, 38)"),
        ("money", "decimal(19, 2)"),
        ("real", "real"),
        ("double precision", "float(53)"),
        ("text", "nvarchar(max)"),
        ("character varying(20)", "nvarchar(20)"),
        ("character varying(5000)", "nvarchar(max)"),
        ("character(5)", "nchar(5)"),
        ("bytea", "varbinary(max)"),
        ("date", "date"),
        ("time without time zone", "time(6)"),
        ("timestamp(3) without time zone", "datetime2(6)"),
        ("timestamp with time zone", "datetimeoffset(6)"),
        ("uuid", "uniqueidentifier"),
        ("jsonb", "nvarchar(max)"),
        ("integer[]", "nvarchar(max)"),
        ("public.mood", "nvarchar(max)"),
    ],
)
def test_types_have_their_counterparts(source: str, expected: str) -> None:
    text = _scripts([Column("id", "integer", key=1), Column("value", source)])["sp_MSins_PurchasingVendor"]
    assert f"    @c2 {expected}\nas\n" in text


def test_long_types_of_a_key_have_room_in_an_index() -> None:
    text = _scripts([Column("a", "text", key=1), Column("b", "bytea", key=2)])["sp_MSins_PurchasingVendor"]
    assert "    @c1 nvarchar(450),\n    @c2 varbinary(900)\n" in text


def test_a_kind_without_procedures_has_no_script() -> None:
    with pytest.raises(ConfigurationError) as caught:
        script_of("sqlite", [], Scripted.GENERATED)
    assert caught.value.report.remedy == "allowed: mariadb, mssql, mysql"


def _sent(shape: Shape, **settings: Any) -> str:
    """Return the statement that a command of this shape would send."""
    database = SqlServer()
    article = Article.model_validate({"source": NAME, **settings})
    table = table_description(NAME, VENDOR)
    target = intended_target(database, registered(article, table, 1), table, database.dialect())
    executable: Any = statement(database, target, shape).executable
    return str(executable.compile(dialect=sa.create_engine("mssql+pymssql://").dialect))


def test_a_procedure_is_called_by_position_with_bound_arguments() -> None:
    assert _sent(Shape(1, Operation.UPDATE, None)) == (
        "exec [dbo].[sp_MSupd_PurchasingVendor] %(tranrepl_c1)s, %(tranrepl_c2)s, %(tranrepl_c3)s, "
        "%(tranrepl_pkc1)s, %(tranrepl_bitmap)s"
    )
    assert _sent(Shape(1, Operation.DELETE, None), del_cmd='CALL "a:b%"') == "exec [dbo].[a:b%] %(tranrepl_pkc1)s"


def test_a_statement_sets_what_changed_and_nothing_else() -> None:
    sql = {"ins_cmd": "SQL", "upd_cmd": "SQL", "del_cmd": "SQL"}
    assert _sent(Shape(1, Operation.UPDATE, (2,)), **sql) == (
        "UPDATE [Purchasing].[Vendor] SET [Na]]me]=%(tranrepl_c3)s "
        "WHERE [Purchasing].[Vendor].[BusinessEntityID] = %(tranrepl_pkc1)s"
    )
    assert _sent(Shape(1, Operation.DELETE, None), **sql) == (
        "DELETE FROM [Purchasing].[Vendor] WHERE [Purchasing].[Vendor].[BusinessEntityID] = %(tranrepl_pkc1)s"
    )
    assert _sent(Shape(1, Operation.INSERT, None), **sql) == (
        "INSERT INTO [Purchasing].[Vendor] ([BusinessEntityID], [AccountNumber], [Na]]me]) "
        "VALUES (%(tranrepl_c1)s, %(tranrepl_c2)s, %(tranrepl_c3)s)"
    )


def test_truncate_takes_the_filters_rows() -> None:
    text = _sent(Shape(1, Operation.TRUNCATE, None), filter='"AccountNumber" <> \'a:b\' AND "BusinessEntityID" > 1')
    assert text == ("DELETE FROM [Purchasing].[Vendor] WHERE [AccountNumber] <> 'a:b' AND [BusinessEntityID] > 1")


@pytest.mark.parametrize(
    ("arguments", "number", "kind"),
    [
        ((20598, b"The row was not found at the Subscriber"), "20598", "data"),
        ((50000, b"20598: The row was not found"), "20598", "data"),
        ((2627, b"Violation of PRIMARY KEY constraint"), "2627", "data"),
        ((1205, b"deadlock victim"), "1205", "transient"),
        ((2812, b"Could not find stored procedure"), "2812", "configuration"),
        ((266, b"Transaction count after EXECUTE"), "266", "configuration"),
        (((20009, b"Unable to connect"),), "20009", "transient"),
        (("Cannot commit transaction: (3902, b'The COMMIT TRANSACTION request has none')",), "3902", "configuration"),
        (("Cannot commit transaction: (20006, b'Write to the server failed')",), "20006", "transient"),
        ((3930, b"The current transaction cannot be committed"), "3930", "configuration"),
        ((6401, b"Cannot roll back sa_savepoint_1. No transaction or savepoint"), "6401", "configuration"),
        ((544, b"Cannot insert explicit value for identity column"), "544", "configuration"),
    ],
)
def test_errors_are_told_apart_by_the_servers_number(arguments: tuple[Any, ...], number: str, kind: str) -> None:
    error = sa.exc.OperationalError("exec", {}, Exception(*arguments))
    problem = SqlServer().translate("Subscriber reporting", error)
    assert (problem.report.number, problem.kind.value) == (number, kind)


# Identity columns


def _identity_script(operation: Operation, *identities: str, **settings: Any) -> str:
    """Return a generated procedure of a table whose columns of these names are identities."""
    database = SqlServer()
    table = table_description(NAME, VENDOR)
    article = registered(Article.model_validate({"source": NAME, **settings}), table, 1)
    target = intended_target(database, article, table, database.dialect())
    columns = tuple(replace(it, identity=it.name in identities) for it in target.columns)
    return database.scripter.procedure(replace(target, columns=columns), operation).create


def test_an_insert_sets_an_identity_and_ends_that() -> None:
    text = _identity_script(Operation.INSERT, "BusinessEntityID")
    assert "begin\nset identity_insert [Purchasing].[Vendor] on\ninsert into [Purchasing].[Vendor] (" in text
    assert text.endswith(")\nset identity_insert [Purchasing].[Vendor] off\nend")


@pytest.mark.parametrize(
    ("syntax", "condition"),
    [
        ("SCALL", "substring(@bitmap,1,1) & 1 = 1"),
        ("MCALL", "substring(@bitmap,1,1) & 1 = 1"),
        ("CALL", "[BusinessEntityID] = @pkc1 and [BusinessEntityID] <> @c1)"),
        ("XCALL", "[BusinessEntityID] = @old_c1 and [BusinessEntityID] <> @c1)"),
    ],
)
def test_an_update_leaves_an_identity_alone_or_fails(syntax: str, condition: str) -> None:
    text = _identity_script(Operation.UPDATE, "BusinessEntityID", upd_cmd=syntax)
    check = (
        "begin\n    raiserror (N'Cannot update identity column ''%s''.', 16, 1, N'BusinessEntityID')\n    return\nend\n"
    )
    assert f"{condition}\n{check}update [Purchasing].[Vendor] set\n    [AccountNumber] = " in text
    assert "[BusinessEntityID] = case" not in text
    assert "else\nbegin" not in text


def test_an_identity_beside_the_key_keeps_its_bit() -> None:
    text = _identity_script(Operation.UPDATE, "Na]me")
    assert "if substring(@bitmap,1,1) & 4 = 4\nbegin\n    raiserror" in text
    assert "[Na]]me] = case" not in text
    assert "if (substring(@bitmap,1,1) & 1 = 1)\nbegin\nupdate" in text


def test_a_table_of_identities_only_looks_for_its_row() -> None:
    text = _identity_script(Operation.UPDATE, *(it.name for it in VENDOR))
    assert "select @found = 1 from [Purchasing].[Vendor]\nwhere [BusinessEntityID] = @pkc1\nif @@rowcount = 0" in text
