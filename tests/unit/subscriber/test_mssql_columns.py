"""SQL Server's columns: what is reported of them, and T-SQL to declare one again, which Babelfish runs for no text."""

from __future__ import annotations

import sqlalchemy as sa

from support.command_history import Column, registered, table_description
from support.schema_changes import added, change
from tranrepl.model.names import TableName
from tranrepl.model.source_types import source_type
from tranrepl.settings.publication import Article
from tranrepl.subscriber.base.column_changes import SqlColumnTypes, column_plan
from tranrepl.subscriber.base.column_steps import CheckedColumn
from tranrepl.subscriber.base.label_checks import check_constraint
from tranrepl.subscriber.mssql.columns import declaration
from tranrepl.subscriber.mssql.database import SqlServer

_ID, _LOGO = Column("id", "integer", key=1), Column("logo", "bytea")
_NAME = TableName("public", "vendor")
_VENDOR = Article.model_validate({"source": _NAME})


def test_a_column_of_text_keeps_its_collation() -> None:
    text = SqlServer().column_type(source_type("character varying(20)"), indexed=False)
    assert declaration((None, "o'r]d"), "na]me", text, nullable=True) == (
        "ALTER TABLE [dbo].[o'r]]d] ALTER COLUMN [na]]me] NVARCHAR(20) COLLATE Latin1_General_BIN2 NULL"
    )


def test_a_column_that_takes_no_null_says_so() -> None:
    assert declaration(("s", "t"), "n", sa.DECIMAL(12, 2), nullable=False) == (
        "ALTER TABLE [s].[t] ALTER COLUMN [n] DECIMAL(12, 2) NOT NULL"
    )


def test_labels_are_texts_of_any_letters() -> None:
    name = "a]" * 40
    check = CheckedColumn("state", f"{name}_state_labels", ("it's", "öld"))
    table = sa.Table("t", sa.MetaData(), sa.Column("state", sa.Unicode()), check_constraint(check))
    made = str(sa.schema.CreateTable(table).compile(dialect=SqlServer().dialect()))
    assert f"CONSTRAINT [{name.replace(']', ']]')}_state_labels] CHECK ([state] IN (N'it''s', N'öld'))" in made


def test_a_column_of_bytes_is_told_with_its_type() -> None:
    old, new = (registered(_VENDOR, table_description(_NAME, it), 1) for it in ([_ID], [_ID, _LOGO]))
    types = SqlColumnTypes(SqlServer(), SqlServer().dialect())
    plan = column_plan(types, change(old, new, added(_LOGO)), old, new, (), "Subscriber it")
    assert plan.in_words == ["Subscriber it: table public.vendor: ADD COLUMN logo varbinary(max)"]
