"""What the text and the parameters of a T-SQL procedure say about how it may be called."""

from __future__ import annotations

import pytest

from support.command_history import Column, registered, table_description
from tranrepl.model.call_syntax import arguments
from tranrepl.model.commands import Operation
from tranrepl.model.names import TableName
from tranrepl.settings.publication import Article
from tranrepl.subscriber.mssql.procedure_text import Parameter, ends_transaction, signature_problem

NAME = TableName("Purchasing", "Vendor")
VENDOR = [Column("id", "integer", key=1), Column("number", "character varying(15)"), Column("name", "text")]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("begin commit end", True),
        ("begin tran update t set a = 1", True),
        ("begin transaction delete from t", True),
        ("rollback", True),
        ("rollback transaction", True),
        ("save tran one rollback tran other", True),
        ("select 'it\\' commit", True),
        ("begin tran update t set a = 1 commit", False),
        ("begin try begin tran delete t commit tran end try begin catch rollback tran; throw end catch", False),
        ("save transaction [One] delete t rollback transaction one", False),
        ("save tran @name delete t rollback tran @name", False),
        ("--commit\ninsert into log values ('it''s commit', \"rollback\", [com]]mit], [commit])", False),
        ("/* /* */ commit */ update commits set a = 1", False),
        ("it's no T-SQL", False),
    ],
)
def test_a_procedure_that_ends_the_transaction_is_known_by_its_text(body: str, expected: bool) -> None:
    assert ends_transaction(body) is expected


_UPDATED = arguments(
    registered(Article.model_validate({"source": NAME, "upd_cmd": "MCALL"}), table_description(NAME, VENDOR), 1),
    Operation.UPDATE,
)
_FIVE = [Parameter(f"@{name}", "int", 4) for name in ("c1", "c2", "c3", "pkc1")] + [Parameter("@mask", "binary", 1)]
_HEADER = "create procedure [p = 1] @c1 int, @c2 int, @c3 int, @pkc1 int, @mask binary(1), @Why nvarchar(max) {} as"


@pytest.mark.parametrize(
    ("parameters", "text", "expected"),
    [
        (_FIVE, "", None),
        (_FIVE[1:], "", "takes 4 arguments; it is called with 5"),
        ([*_FIVE, Parameter("@Why", "nvarchar", -1)], _HEADER.format("= N'a,b'"), None),
        ([*_FIVE, Parameter("@Why", "nvarchar", -1)], _HEADER.format(""), "takes 6 arguments; it is called with 5"),
        ([*_FIVE, Parameter("@Why", "nvarchar", -1)], "", "takes 6 arguments; it is called with 5"),
        (
            [*_FIVE, Parameter("@Why", "nvarchar", -1)],
            _HEADER.format("") + " begin declare @why2 int = 1 end",
            "takes 6 arguments; it is called with 5",
        ),
        ([*_FIVE[:4], Parameter("@mask", "varbinary", -1)], "", None),
        ([*_FIVE[:4], Parameter("@mask", "binary", 2)], "", None),
        ([*_FIVE[:4], Parameter("@mask", "int", 4)], "", "takes the mask as @mask int; it needs binary(1)"),
    ],
)
def test_a_signature_is_held_against_what_it_is_called_with(
    parameters: list[Parameter], text: str, expected: str | None
) -> None:
    assert signature_problem(parameters, text, _UPDATED) == expected


def test_a_mask_that_would_be_cut_is_a_problem() -> None:
    columns = [Column("id", "integer", key=1), *(Column(f"c{at}", "integer") for at in range(2, 10))]
    article = registered(Article.model_validate({"source": NAME}), table_description(NAME, columns), 1)
    passed = arguments(article, Operation.UPDATE)
    parameters = [Parameter(f"@{it.name}", "int", 4) for it in passed[:-1]]
    problem = signature_problem([*parameters, Parameter("@bitmap", "binary", 1)], "", passed)
    assert problem == "takes the mask as @bitmap binary(1); it needs binary(2)"
    assert signature_problem([*parameters, Parameter("@bitmap", "binary", 2)], "", passed) is None
