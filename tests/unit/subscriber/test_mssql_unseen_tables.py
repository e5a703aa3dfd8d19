"""A table that may not be read is distinguished from one that is not there."""

from __future__ import annotations

import pytest
from sqlalchemy.exc import DBAPIError

from tranrepl.subscriber.mssql.rights import denies


@pytest.mark.parametrize(
    ("number", "text", "expected"),
    [
        (229, b"The SELECT permission was denied on the object 't', database 'd', schema 'dbo'.", True),
        (229, "Die SELECT-Berechtigung wurde f\u00fcr das Objekt verweigert.".encode(), True),
        (208, b"Invalid object name 'dbo.t'.", False),
        (33557097, b"permission denied for table t", True),
        (33557097, b'relation "dbo.t" does not exist', False),
    ],
)
def test_an_error_says_whether_a_right_or_the_table_is_missing(number: int, text: bytes, expected: bool) -> None:
    library = b"DB-Lib error message 20018, severity 16:\nGeneral SQL Server error\n"
    assert denies(DBAPIError("select 1", {}, Exception(number, text + library))) is expected
