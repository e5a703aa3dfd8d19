"""What databases' error codes mean."""

from __future__ import annotations

import pytest

from tranrepl.error_numbers import SKIPPABLE, Codes
from tranrepl.errors import ErrorKind

POSTGRES, MARIADB, SQL_SERVER = Codes.POSTGRES.value, Codes.MARIADB.value, Codes.SQL_SERVER.value


@pytest.mark.parametrize(
    ("codes", "code", "kind"),
    [
        (POSTGRES, None, ErrorKind.TRANSIENT),
        (POSTGRES, "08006", ErrorKind.TRANSIENT),
        (POSTGRES, "40P01", ErrorKind.TRANSIENT),
        (POSTGRES, "55P03", ErrorKind.TRANSIENT),
        (POSTGRES, "57P01", ErrorKind.TRANSIENT),
        (POSTGRES, "20598", ErrorKind.DATA),
        (POSTGRES, "23505", ErrorKind.DATA),
        (POSTGRES, "22P02", ErrorKind.DATA),
        (POSTGRES, "P0001", ErrorKind.DATA),
        (POSTGRES, "42501", ErrorKind.CONFIGURATION),
        (POSTGRES, "42883", ErrorKind.CONFIGURATION),
        (MARIADB, "1205", ErrorKind.TRANSIENT),
        (MARIADB, "1213", ErrorKind.TRANSIENT),
        (MARIADB, "2013", ErrorKind.TRANSIENT),
        (MARIADB, "1062", ErrorKind.DATA),
        (MARIADB, "20598", ErrorKind.DATA),
        (MARIADB, "1644", ErrorKind.DATA),
        (MARIADB, "1305", ErrorKind.CONFIGURATION),
        (SQL_SERVER, "1205", ErrorKind.TRANSIENT),
        (SQL_SERVER, "1222", ErrorKind.TRANSIENT),
        (SQL_SERVER, "20003", ErrorKind.TRANSIENT),
        (SQL_SERVER, "2627", ErrorKind.DATA),
        (SQL_SERVER, "20598", ErrorKind.DATA),
        (SQL_SERVER, "2812", ErrorKind.CONFIGURATION),
    ],
)
def test_a_code_has_a_kind(codes: object, code: str | None, kind: ErrorKind) -> None:
    assert codes.kind(code) is kind  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("numbers", "postgres", "mariadb", "sql_server"),
    [
        ({20598}, {"20598"}, {"20598"}, {"20598"}),
        ({2601}, {"23505"}, {"1062"}, {"2601"}),
        ({2601, 2627}, {"23505"}, {"1062"}, {"2601", "2627"}),
        ({547}, {"23503", "23514", "23P01"}, {"1451", "1452", "4025"}, {"547"}),
        ({515}, {"23502"}, {"1048", "1364"}, {"515"}),
        (set(), set(), set(), set()),
    ],
)
def test_numbers_of_sql_server_stand_for_codes_everywhere(
    numbers: set[int], postgres: set[str], mariadb: set[str], sql_server: set[str]
) -> None:
    for codes, expected in ((POSTGRES, postgres), (MARIADB, mariadb), (SQL_SERVER, sql_server)):
        assert codes.codes_of(frozenset(numbers)) == expected


@pytest.mark.parametrize("codes", list(Codes), ids=lambda it: it.name)
def test_only_data_errors_can_be_skipped(codes: Codes) -> None:
    assert {codes.value.kind(code) for code in codes.value.codes_of(SKIPPABLE)} == {ErrorKind.DATA}
