"""T-SQL that declares a column anew, which Babelfish does not run for columns of text."""

from __future__ import annotations

import sqlalchemy as sa

from tranrepl.model.source_types import source_type
from tranrepl.subscriber.mssql.columns import declaration
from tranrepl.subscriber.mssql.database import SqlServer


def test_a_column_of_text_keeps_its_collation() -> None:
    text = SqlServer().column_type(source_type("character varying(20)"), indexed=False)
    assert declaration((None, "o'r]d"), "na]me", text, nullable=True) == (
        "ALTER TABLE [dbo].[o'r]]d] ALTER COLUMN [na]]me] NVARCHAR(20) COLLATE Latin1_General_BIN2 NULL"
    )


def test_a_column_that_takes_no_null_says_so() -> None:
    assert declaration(("s", "t"), "n", sa.DECIMAL(12, 2), nullable=False) == (
        "ALTER TABLE [s].[t] ALTER COLUMN [n] DECIMAL(12, 2) NOT NULL"
    )
