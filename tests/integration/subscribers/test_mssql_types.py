"""SQL Server's own types in tables that an administrator made: values are held as they are, or refused."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from support.command_history import Column, History, table_description
from support.requirements import Requirement, require
from support.subscribers import KEY, Site
from tranrepl.errors import ErrorKind
from tranrepl.model.names import TableName
from tranrepl.settings.publication import Apply, Article
from tranrepl.subscriber.applier_options import ApplierOptions
from tranrepl.subscriber.registry import dialect_of

MakeSite = Callable[[str], Site]

_WAYS = ["mssql procedures", "mssql statements"]
_LATIN = "collate SQL_Latin1_General_CP1_CI_AS"
# Declared by the Subscriber: type at the Publisher, its text, what is stored.
_HELD: dict[str, tuple[str, str, Any]] = {
    "datetime": ("timestamp(3) without time zone", "1753-01-01 00:00:00.123", datetime(1753, 1, 1, 0, 0, 0, 123000)),
    "smalldatetime": ("timestamp without time zone", "2079-06-06 23:59:00", datetime(2079, 6, 6, 23, 59)),
    "datetime2(3)": ("timestamp without time zone", "0001-01-01 00:00:00.5", datetime(1, 1, 1, 0, 0, 0, 500000)),
    "datetimeoffset(0)": (
        "timestamp with time zone",
        "2024-01-01 02:00:00+02",
        datetime(2024, 1, 1, tzinfo=UTC),
    ),
    "date": ("date", "9999-12-31", date(9999, 12, 31)),
    "time(3)": ("time without time zone", "23:59:59.999", time(23, 59, 59, 999000)),
    "money": ("numeric", "922337203685477.5807", Decimal("922337203685477.5807")),
    "smallmoney": ("money", "-$214,748.36", Decimal("-214748.3600")),
    "decimal(5,2)": ("numeric", "1.230", Decimal("1.23")),
    "float": ("double precision", "0.30000000000000004", 0.30000000000000004),
    "real": ("real", "0.1", pytest.approx(0.1, rel=1e-7)),
    "bit": ("boolean", "t", True),
    "tinyint": ("integer", "255", 255),
    "nvarchar(2)": ("text", "😀", "😀"),
    "nvarchar(max)": ("text", "a\\\nb\\\r\n'quoted' %s 😀 ", "a\\\nb\\\r\n'quoted' %s 😀 "),
    "nvarchar(9)": ("text", "", ""),
    f"varchar(7) {_LATIN}": ("text", "Zürich€", "Zürich€"),
    "char(5)": ("character(5)", "ab   ", "ab   "),
    "nchar(5)": ("character(5)", "é    ", "é    "),
    "varbinary(max)": ("bytea", "\\x" + "00ff27" * 5000, bytes.fromhex("00ff27" * 5000)),
    "varbinary(9)": ("bytea", "\\x", b""),
    "binary(2)": ("bytea", "\\x6162", b"ab"),
    "xml": ("xml", "<a>1</a>", "<a>1</a>"),
    "uniqueidentifier": (
        "uuid",
        "f81d4fae-7dec-11d0-a765-00a0c91e6bf6",
        UUID("f81d4fae-7dec-11d0-a765-00a0c91e6bf6"),
    ),
    "text": ("text", "plain", "plain"),
    "ntext": ("text", "日本", "日本"),
    "image": ("bytea", "\\x00ff", b"\x00\xff"),
}


def _table(site: Site, declared: list[str], key: str = "int") -> None:
    columns = ", ".join(f"c{at} {it} NULL" for at, it in enumerate(declared))
    site.execute(f"CREATE TABLE t (id {key} NOT NULL PRIMARY KEY, {columns})")


@pytest.mark.parametrize("way", _WAYS)
def test_sql_servers_own_types_hold_what_they_are_given(way: str, make_site: MakeSite) -> None:
    site = make_site(way)
    _table(site, list(_HELD))
    described = [Column(f"c{at}", type_name) for at, (type_name, _, _) in enumerate(_HELD.values())]
    article = site.article("t", [Column("id", "integer", key=1), *described])
    texts = [text for _, text, _ in _HELD.values()]
    nulls: list[str | None] = [None] * len(texts)
    history = History().insert(article, ["1", *texts]).insert(article, ["2", *nulls])
    history.update(article, ["2", *nulls], ["2", *texts]).update(article, ["1", *texts], ["1", *nulls])
    site.deliver(history).raise_error()
    empty, held = site.rows("t")
    assert empty == (1, *nulls)
    assert dict(zip(_HELD, held[1:], strict=True)) == {name: stored for name, (_, _, stored) in _HELD.items()}


# Declared by the Subscriber, type at the Publisher, text.
_REFUSED = [
    ("datetime", "timestamp without time zone", "2024-01-01 00:00:00.001"),
    ("datetime", "date", "1752-12-31"),
    ("smalldatetime", "timestamp without time zone", "2024-01-01 00:00:01"),
    ("tinyint", "integer", "300"),
    ("money", "numeric", "0.00001"),
    ("nvarchar(3)", "text", "a😀😀"),
    (f"varchar(9) {_LATIN}", "text", "日本"),
    ("uniqueidentifier", "text", "f81d4fae-7dec-11d0-a765-00a0c91e6bf6 and more"),
    ("uniqueidentifier", "text", "F81D4FAE-7DEC-11D0-A765-00A0C91E6BF6"),
    ("binary(3)", "bytea", "\\x0102"),
    ("nchar(5)", "text", "ab "),
    ("real", "double precision", "0.1"),
]


def test_what_sql_server_would_change_is_refused_with_column_and_key(make_site: MakeSite) -> None:
    site, said = make_site("mssql procedures"), []
    _table(site, [declared for declared, _, _ in _REFUSED])
    described = [Column(f"c{at}", type_name) for at, (_, type_name, _) in enumerate(_REFUSED)]
    article = site.article("t", [Column("id", "integer", key=1), *described])
    for at, (_, _, text) in enumerate(_REFUSED):
        values = [text if at == it else None for it in range(len(_REFUSED))]
        error = site.deliver(History().insert(article, [str(at), *values])).error
        assert error is not None, _REFUSED[at]
        assert (error.kind, f"id = {at}" in error.message) == (ErrorKind.DATA, True)
        said.append(f"column c{at}:" in error.message)
    # The server refuses a number that is too large; the others are never sent.
    assert [it for it, named in zip(_REFUSED, said, strict=True) if not named] == [("tinyint", "integer", "300")]
    assert site.rows("t") == []


@pytest.mark.parametrize(
    ("declared", "reason"),
    [
        ("sql_variant", "is a sql_variant, whose values each have a type of their own, which the Publisher has not"),
        ("geography", "is of a type without a text form, as geography, geometry and hierarchyid are"),
        ("hierarchyid", "is of a type without a text form, as geography, geometry and hierarchyid are"),
    ],
)
def test_a_type_that_takes_no_published_value_is_refused(declared: str, reason: str, make_site: MakeSite) -> None:
    site = make_site("mssql statements")
    if declared != "sql_variant":
        require(site.connection, Requirement.CLR_TYPES)
    site.execute(f"CREATE TABLE t (id int PRIMARY KEY, a {declared})")
    source = table_description(TableName("public", "t"), [Column("id", "integer", key=1), Column("a", "text")])
    article = Article.model_validate({"source": "public.t", "destination": "dbo.t", **site.kind.commands})
    with dialect_of(site.connection).subscriber(site.connection, KEY, "test") as subscriber:
        (found,) = subscriber.article_problems(article, source)
    assert found.message == f"article public.t: Subscriber reporting: column 'a' of dbo.t {reason}"


def test_check_says_which_keys_are_one_to_a_collation(make_site: MakeSite) -> None:
    site = make_site("mssql statements")
    site.execute(f"CREATE TABLE t (code nvarchar(9) {_LATIN} NOT NULL PRIMARY KEY, name nvarchar(9) {_LATIN})")
    columns = [Column("code", "character varying(9)", key=1), Column("name", "character varying(9)")]
    article = Article.model_validate({"source": "public.t", "destination": "dbo.t", **site.kind.commands})
    with dialect_of(site.connection).subscriber(site.connection, KEY, "test") as subscriber:
        (said,) = subscriber.article_warnings(article, table_description(TableName("public", "t"), columns))
    assert "key column 'code' has collation " in said
    made = site.article("t", columns)
    site.deliver(History().insert(made, ["a", None])).raise_error()
    error = site.deliver(History(xact=1).transaction().insert(made, ["A", None]), site.watermark()).error
    assert error is not None
    assert error.code in ("2627", "2601")


@pytest.mark.parametrize("apply", [Apply.SERIAL, Apply.AUTO])
def test_a_key_of_a_collation_without_case_meets_letters_of_both(apply: Apply, make_site: MakeSite) -> None:
    site = make_site("mssql statements")
    site.execute(
        f"CREATE TABLE t (code nvarchar(9) {_LATIN} NOT NULL PRIMARY KEY, name nvarchar(9) {_LATIN})",
        "INSERT INTO t VALUES (N'b', N'by hand'), (N'É', N'by hand'), (N'gone', N'by hand')",
    )
    made = site.article("t", [Column("code", "character varying(9)", key=1), Column("name", "character varying(9)")])
    history = History().insert(made, ["a", "x"]).insert(made, ["c", "x"])
    # Whatever letters the Subscriber has: its row is the one of this key.
    history.update(made, ["B", "by hand"], ["B", "BY HAND"]).update(made, ["é", "by hand"], ["É", "by hand"])
    history.delete(made, ["GONE", "by hand"])
    # One row leaves its key to another one that differs in case, and one changes the case of its own.
    history.delete(made, ["a", "x"]).insert(made, ["A", "y"]).update(made, ["c", "x"], ["C", "x"])
    result = site.deliver(history, options=ApplierOptions(apply=apply))
    assert result.error is None
    assert set(site.rows("t")) == {("A", "y"), ("b", "BY HAND"), ("É", "by hand"), ("C", "x")}


def test_a_key_that_setup_made_tells_letters_apart_but_not_blanks(make_site: MakeSite) -> None:
    # SQL Server pads texts of unlike length with blanks before it compares them, in every collation.
    site = make_site("mssql statements")
    made = site.article("t", [Column("code", "text", key=1), Column("name")])
    site.deliver(History().insert(made, ["a", None]).insert(made, ["A", None])).raise_error()
    assert site.rows("t", "code") == [("A",), ("a",)]
    require(site.connection, Requirement.BLANKS_ADDED)
    error = site.deliver(History(xact=2).transaction().insert(made, ["a ", None]), site.watermark()).error
    assert error is not None
    assert error.code in ("2627", "2601")
