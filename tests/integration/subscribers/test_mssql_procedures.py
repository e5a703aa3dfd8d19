"""Generated T-SQL procedures, called by deliveries: every call syntax, wide masks, identities, names, the script."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from conftest import DatabasesFactory
from support.command_history import Column, History, seqno, table_description
from support.in_process import replicate
from support.requirements import Requirement, allowing, require
from support.shell import publication_file, typed
from support.site import Site as PublisherSite
from support.subscribers import KEY, Site, batches, mssql_execute
from tranrepl.connections import Connection
from tranrepl.errors import ErrorKind
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.names import TableName
from tranrepl.settings.publication import Article
from tranrepl.subscriber.registry import dialect_of

_TEXTS = "select object_definition(object_id) from sys.procedures order by name"
_WIDTH = 20
_WIDE = [
    Column("id", "integer", key=1),
    *(Column(f"c{at}", "integer" if at % 2 else "character varying(20)") for at in range(2, _WIDTH + 1)),
]
_ITEM = [Column("id", "integer", key=1), Column("name", "character varying(40)"), Column("code", "integer")]


def _wide_row(number: int, **changed: str | None) -> list[str | None]:
    row = {"id": str(number), **{f"c{at}": str(at) for at in range(2, _WIDTH + 1)}, **changed}
    return list(row.values())


def _as_stored(row: list[str | None]) -> tuple[int | str | None, ...]:
    """Return the row as the driver gives it: odd columns are integers."""
    return tuple(int(it) if it is not None and at % 2 == 0 else it for at, it in enumerate(row))


@pytest.mark.parametrize(
    ("upd_cmd", "del_cmd"), [("SCALL", "CALL"), ("MCALL", "CALL"), ("CALL", "XCALL"), ("XCALL", "XCALL")]
)
def test_every_syntax_changes_what_was_changed_of_a_wide_row(mssql_site: Site, upd_cmd: str, del_cmd: str) -> None:
    table = f"wide_{upd_cmd}_{del_cmd}".lower()
    wide = mssql_site.article(table, _WIDE, upd_cmd=upd_cmd, del_cmd=del_cmd)
    first, second = _wide_row(1), _wide_row(2)
    # A column of each byte of the mask: to NULL, from NULL, to another value, and the key.
    nulls = _wide_row(1, c8=None, c9=None, c16=None, c17=None, c20=None)
    values = _wide_row(1, c8="eight", c9="9", c16=None, c17="-17", c20="")
    moved = _wide_row(11, c8="eight", c9="9", c16=None, c17="-17", c20="")
    history = History().insert(wide, first).insert(wide, second).insert(wide, _wide_row(3))
    history.transaction().update(wide, first, nulls).update(wide, nulls, values).update(wide, values, moved)
    history.transaction().delete(wide, second).update(wide, _wide_row(3), _wide_row(3))
    result = mssql_site.deliver(history)
    assert (result.error, result.notices) == (None, ())
    assert mssql_site.rows(table) == [_as_stored(_wide_row(3)), _as_stored(moved)]

    missing = History(xact=3).transaction().update(wide, _wide_row(77), _wide_row(77, c9=None))
    _assert_not_found(mssql_site, missing, "UPDATE", table)
    _assert_not_found(mssql_site, History(xact=3).transaction().delete(wide, _wide_row(77)), "DELETE", table)


def test_a_procedure_of_the_servers_that_raises_20598_is_called(make_site: Callable[[str], Site]) -> None:
    site = make_site("mssql procedures")
    ((system,),) = site.execute("select object_id(N'sys.sp_MSreplraiserror')")
    if system is None:
        site.execute(
            "create procedure dbo.sp_MSreplraiserror "
            "@errorid int, @param1 nvarchar(1000), @param2 nvarchar(1000), @param3 int as "
            "raiserror (N'%d of the server: %s, %s, %d', 16, 1, @errorid, @param1, @param2, @param3)"
        )
    item = site.article("item", _ITEM)
    error = site.deliver(History().delete(item, ["7", None, None])).error
    assert error is not None
    if system is None:
        assert (error.number, error.message) == (
            "50000",
            "Subscriber reporting: 20598 of the server: [dbo].[item], [id] = 7, 13234 (article public.item, id = 7)",
        )
    else:
        assert error.number == "20598"


def _assert_not_found(site: Site, history: History, word: str, table: str) -> None:
    error = site.deliver(history, seqno(3)).error
    assert error is not None
    assert (error.kind, error.number) == (ErrorKind.DATA, "20598")
    assert error.message == (
        f"Subscriber reporting: The row was not found at the Subscriber when applying the replicated {word} command "
        f"for Table 'dbo.{table}' with Primary Key(s): id = 77"
    )


def test_the_servers_own_words_of_20598_name_table_and_key(mssql_site: Site) -> None:
    columns = [Column("a b", "integer", key=2), Column("it's", "character varying(9)", key=1), Column("n", "integer")]
    mssql_site.article("pair", columns)
    said = mssql_site.execute(
        "declare @text nvarchar(2000) begin try exec sp_MSupd_dbopair NULL, NULL, 3, N'x''y', 5, 0x04 end try "
        "begin catch set @text = error_message() end catch select @text"
    )
    assert said[0][0] == (
        "20598: The row was not found at the Subscriber when applying the replicated UPDATE command for Table "
        "'[dbo].[pair]' with Primary Key(s): [it's] = x'y, [a b] = 5."
    )


def _identities(site: Site) -> tuple[RegisteredArticle, RegisteredArticle, RegisteredArticle]:
    """Return tables whose key is an identity, by procedures (beside a computed column) and by statements, and one with
    an identity beside its key.
    """
    site.execute(
        "create table ident (id int identity primary key, name nvarchar(40), doubled as len(name) * 2, code int)",
        "create table ident_sql (id int identity primary key, name nvarchar(40), code int)",
        "create table beside (id int primary key, name nvarchar(40), code int identity)",
    )
    statements = {"ins_cmd": "SQL", "upd_cmd": "SQL", "del_cmd": "SQL"}
    return (
        site.article("ident", _ITEM),
        site.article("ident_sql", _ITEM, **statements),
        site.article("beside", _ITEM, upd_cmd="CALL"),
    )


def test_identities_take_the_publishers_values_and_are_never_updated(mssql_site: Site) -> None:
    site = mssql_site
    ident, ident_sql, beside = _identities(site)
    history = History()
    for item in (ident, ident_sql):
        history.transaction().insert(item, ["10", "ten", "1"]).insert(item, ["7", "seven", None])
        history.update(item, ["7", "seven", None], ["7", None, "5"]).delete(item, ["10", "ten", "1"])
    history.transaction().insert(beside, ["1", "a", "100"]).insert(beside, ["2", "b", "50"])
    history.update(beside, ["1", "a", "100"], ["4", "z", "100"])
    assert site.deliver(history).error is None
    assert site.rows("ident") == [(7, None, None, 5)]
    assert site.rows("ident_sql") == [(7, None, 5)]
    assert site.rows("beside") == [(2, "b", 50), (4, "z", 100)]

    again = History(xact=3).transaction().update(ident, ["7", None, "5"], ["8", None, "5"])
    error = site.deliver(again, seqno(3)).error
    assert error is not None
    assert "Cannot update identity column 'id'." in error.message
    again = History(xact=3).transaction().update(beside, ["2", "b", "50"], ["2", "b", "51"])
    error = site.deliver(again, seqno(3)).error
    assert error is not None
    assert "Cannot update identity column 'code'." in error.message
    # An INSERT that fails leaves no table open to values: another one's turn comes.
    clash = History(xact=3).transaction().insert(ident, ["7", "again", None]).insert(beside, ["9", "n", "300"])
    error = site.deliver(clash, seqno(3)).error
    assert error is not None
    assert (error.number, error.command_id) == ("2627", 1)
    assert site.rows("ident") == [(7, None, None, 5)]


@pytest.mark.parametrize(
    ("table", "type_name", "reason"),
    [
        ("variant", "sql_variant", "is a sql_variant, whose values each have a type of their own"),
        ("version", "rowversion", "is a rowversion, to which the server itself gives values"),
    ],
)
def test_a_type_that_takes_no_value_of_the_publishers_is_refused(
    mssql_site: Site, table: str, type_name: str, reason: str
) -> None:
    mssql_site.execute(*allowing(mssql_site.connection), f"create table {table} (id int primary key, what {type_name})")
    name = TableName("public", table)
    article = Article.model_validate({"source": name, "destination": TableName("dbo", table)})
    described = table_description(name, [Column("id", "integer", key=1), Column("what", "bytea")])
    with dialect_of(mssql_site.connection).subscriber(mssql_site.connection, KEY, "test") as subscriber:
        (problem,) = subscriber.article_problems(article, described)
    assert f"column 'what' of dbo.{table} {reason}" in problem.message


@pytest.mark.parametrize("letters", ["a\"b'c;\\ -- %s %(x)s :y {} $$", "an ] end"])
def test_names_of_tables_and_columns_are_no_sql(mssql_site: Site, letters: str) -> None:
    site = mssql_site
    if "]" in letters:
        require(site.connection, Requirement.BRACKETS_IN_NAMES)
    columns = [Column("id %(tranrepl_c1)s", "integer", key=1), Column(letters, "text"), Column("50%", "integer")]
    table = site.article(f"t {letters}", columns, upd_cmd="MCALL")
    one = ["1", "x %(y)s %", "2"]
    history = History().insert(table, one).update(table, one, ["2", "x'", "3"])
    assert site.deliver(history).error is None
    assert site.rows(f"t {letters}") == [(2, "x'", 3)]
    error = site.deliver(History(xact=1).transaction().delete(table, ["99", None, None]), seqno(1)).error
    assert error is not None
    assert error.number == "20598"
    assert error.message.endswith("with Primary Key(s): id %(tranrepl_c1)s = 99")


def test_the_printed_scripts_make_procedures_that_deliveries_call(
    databases: DatabasesFactory, mssql_database: Connection, tmp_path: Path
) -> None:
    ends = replace(databases(), subscriber=mssql_database)
    articles = [
        {"source": "public.item", "destination": "dbo.item"},
        {"source": "public.part", "destination": "stock.part", "upd_cmd": 'MCALL "merge the part"'},
    ]
    site = PublisherSite(ends, tmp_path / "store", articles)
    site.at_publisher(*(f"CREATE TABLE {it} (id int PRIMARY KEY, name varchar(40))" for it in ("item", "part")))
    mssql_execute(mssql_database, "create procedure [merge the part] @a int as return")
    site.set_up()
    file = publication_file(tmp_path, articles)
    for options in ([], ["--custom"]):
        printed = typed("script", file, "--dialect", "mssql", *options, environment=ends.environment)
        assert (printed.status, printed.err) == (0, "")
        mssql_execute(mssql_database, *batches(printed.out))
    texts = mssql_execute(mssql_database, _TEXTS)
    assert len(texts) == 7
    assert typed("check", file, environment=ends.environment).status == 0
    for table in ("item", "part"):
        site.at_publisher(
            f"INSERT INTO {table} VALUES (1, 'one'), (2, NULL), (3, 'three')",
            f"UPDATE {table} SET name = NULL WHERE id = 1",
            f"UPDATE {table} SET id = 4, name = 'zwölf' WHERE id = 2",
            f"DELETE FROM {table} WHERE id = 3",
        )
    replicate(site)
    for table in ("dbo.item", "stock.part"):
        assert mssql_execute(mssql_database, f"select * from {table} order by id") == [(1, None), (4, "zwölf")]
    # They are what was printed: setup has left alone what is as it makes it, and the custom one.
    assert site.set_up() == []
    assert mssql_execute(mssql_database, _TEXTS) == texts
