"""Stored commands in the words of `sp_browsereplcmds`: golden tails are SQL Server's own output."""

from __future__ import annotations

from typing import Any

import pytest

from support.registered import unused_fields
from tranrepl.model.article import PublishedColumn, RegisteredArticle
from tranrepl.model.bitmask import bitmask
from tranrepl.model.commands import Operation
from tranrepl.model.names import TableName
from tranrepl.settings.publication import Article
from tranrepl.subscriber.capabilities import NameLimit
from tranrepl.subscriber.command_text import command_text

_DEFAULTS = Article(source=TableName("dbo", "t"))


def _article(table: str, types: list[str], key: list[int], command: str | None = None) -> RegisteredArticle:
    """Return an article; `key` counts from 1, `command` replaces all three."""
    article = _DEFAULTS
    if command is not None:
        fields = {"source": "dbo.t", "ins_cmd": command, "upd_cmd": command, "del_cmd": command}
        article = Article.model_validate(fields)
    return RegisteredArticle(
        article_id=1,
        source=TableName("dbo", table),
        destination=TableName("dbo", table),
        source_object_id=1,
        columns=tuple(
            PublishedColumn(
                name=f"c{number}",
                ordinal=number,
                type_oid=1,
                type_modifier=-1,
                type_name=type_name,
                key_ordinal=key.index(number) + 1 if number in key else None,
            )
            for number, type_name in enumerate(types, start=1)
        ),
        ins_cmd=article.ins_cmd,
        upd_cmd=article.upd_cmd,
        del_cmd=article.del_cmd,
        **unused_fields(TableName("dbo", table)),
    )


def _text(article: RegisteredArticle, operation: Operation, row: dict[str, Any]) -> str:
    return command_text(article, operation, row, NameLimit())


def _line(image: list[str | None]) -> str:
    """Return a line of values with nothing to escape but backslashes."""
    return "\t".join("\\N" if value is None else value.replace("\\", "\\\\") for value in image)


def _update(article: RegisteredArticle, key: dict[int, str], changed: dict[int, str | None]) -> dict[str, Any]:
    """Return a stored UPDATE: old key and new values, by column from 1."""
    count = len(article.columns)
    return {
        "before": _line([key.get(number) for number in range(1, count + 1)]),
        "after": _line([changed.get(number) for number in range(1, count + 1)]),
        "changed": bitmask(sorted(changed), count),
    }


_INT, _TIME, _TEXT = "integer", "timestamp without time zone", "character varying(50)"

_PRIVILEGE_TIMES = {6: "2015-10-15 05:45:50.007", 7: "2015-11-15 05:45:39.153"}

UPDATES = [
    (
        "{CALL [sp_MSupd_dboEmailTipo] (,,,,,,,1,3,0x80)}",
        _article("EmailTipo", [_INT] * 8, [1]),
        {1: "3"},
        {8: "1"},
    ),
    (
        "{CALL [sp_MSupd_dboAccessPrivilege] (,,,,,2015-10-15 05:45:50.007,2015-11-15 05:45:39.153,,,5953846,0x6000)}",
        _article("AccessPrivilege", [_INT] * 5 + [_TIME] * 2 + [_INT] * 2, [1]),
        {1: "5953846"},
        _PRIVILEGE_TIMES,
    ),
    (
        "{CALL [sp_MSupd_dboUPSGlobalLog] (,,,,,,,,,,,,,2,,2015-11-19 16:59:52.727,1164525901,0x00a0)}",
        _article("UPSGlobalLog", [_INT] * 15 + [_TIME], [1]),
        {1: "1164525901"},
        {14: "2", 16: "2015-11-19 16:59:52.727"},
    ),
    (
        "{CALL [sp_MSupd_dboRenewalSubscriptionDetail] (,33041,,2015-08-27 14:01:17.997,,,14475177,33053,0x0a)}",
        _article("RenewalSubscriptionDetail", [_INT] * 3 + [_TIME] + [_INT] * 2, [1, 2]),
        {1: "14475177", 2: "33053"},
        {2: "33041", 4: "2015-08-27 14:01:17.997"},
    ),
    (
        "{CALL [sp_MSupd_dbosd_Disclosure] (,,,,'',,,'','',,,,2011-11-27 22:54:53.767,'NTADMIN\\RSimon',740,0x9031)}",
        _article("sd_Disclosure", [_INT] + [_TEXT] * 11 + [_TIME, _TEXT], [1]),
        {1: "740"},
        {5: "", 8: "", 9: "", 13: "2011-11-27 22:54:53.767", 14: "NTADMIN\\RSimon"},
    ),
]


@pytest.mark.parametrize(("text", "article", "key", "changed"), UPDATES)
def test_an_update_reads_as_sql_server_shows_it(
    text: str, article: RegisteredArticle, key: dict[int, str], changed: dict[int, str | None]
) -> None:
    assert _text(article, Operation.UPDATE, _update(article, key, changed)) == text


def test_a_value_set_to_null_differs_from_one_that_does_not_travel() -> None:
    article = _article("t", [_INT, _TEXT, _TEXT], [1])
    row = _update(article, {1: "7"}, {2: None})
    assert _text(article, Operation.UPDATE, row) == "{CALL [sp_MSupd_dbot] (,NULL,,7,0x02)}"


def test_an_insert_sends_every_value() -> None:
    article = _article("AccessTransaction", [_INT, _TEXT, _INT], [1])
    row = {"before": None, "after": _line(["1147781754", None, "2"]), "changed": None}
    assert _text(article, Operation.INSERT, row) == "{CALL [sp_MSins_dboAccessTransaction] (1147781754,NULL,2)}"


def test_a_delete_sends_the_key_in_key_order() -> None:
    article = _article("TTLanguages", [_INT, _INT, _TEXT], [2, 1])
    row = {"before": _line(["1", "1000824", None]), "after": None, "changed": None}
    assert _text(article, Operation.DELETE, row) == "{CALL [sp_MSdel_dboTTLanguages] (1000824,1)}"


def test_a_truncate_takes_no_arguments() -> None:
    row = {"before": None, "after": None, "changed": None}
    assert _text(_article("t", [_INT], [1]), Operation.TRUNCATE, row) == "TRUNCATE TABLE dbo.t"


def test_a_statement_shows_its_table_and_values() -> None:
    article = _article("Order Lines", [_INT, _TEXT], [1], "SQL")
    assert (
        _text(article, Operation.UPDATE, _update(article, {1: "7"}, {2: "it's"}))
        == "UPDATE dbo.\"Order Lines\" (,'it''s',7,0x02)"
    )


@pytest.mark.parametrize(
    ("type_name", "value", "shown"),
    [
        ("bigint", "-9", "-9"),
        ("numeric(38,10)", "1.5", "1.5"),
        ("double precision", "NaN", "NaN"),
        ("date", "2020-01-01", "2020-01-01"),
        ("timestamp(3) with time zone", "2020-01-01 00:00:00+00", "2020-01-01 00:00:00+00"),
        ("time without time zone", "01:02:03", "01:02:03"),
        ("boolean", "t", "'t'"),
        ("interval", "1 day", "'1 day'"),
        ("text", "NULL", "'NULL'"),
        ("bytea", "\\x00", "'\\x00'"),
        ("integer[]", "{1,NULL}", "'{1,NULL}'"),
        ("timestamp without time zone[]", "{}", "'{}'"),
        ("daterange", "empty", "'empty'"),
        ("real_estate.house", "x", "'x'"),
    ],
)
def test_only_numbers_and_times_stand_bare(type_name: str, value: str, shown: str) -> None:
    row = {"before": None, "after": _line([value]), "changed": None}
    assert _text(_article("t", [type_name], [1]), Operation.INSERT, row) == f"{{CALL [sp_MSins_dbot] ({shown})}}"
