"""What databases' error codes mean."""

from __future__ import annotations

import pytest

from tranrepl.error_numbers import SKIPPABLE, Codes, ErrorCodes, is_skippable
from tranrepl.errors import DataError, ErrorKind

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
        ({"20598"}, {"20598"}, {"20598"}, {"20598"}),
        ({"2601"}, {"23505"}, {"1062"}, {"2601"}),
        ({"2601", "2627"}, {"23505"}, {"1062"}, {"2601", "2627"}),
        ({"547"}, {"23503", "23514", "23P01"}, {"1451", "1452", "4025"}, {"547"}),
        ({"515"}, {"23502"}, {"1048", "1364"}, {"515"}),
        (set(), set(), set(), set()),
    ],
)
def test_numbers_of_sql_server_stand_for_codes_everywhere(
    numbers: set[str], postgres: set[str], mariadb: set[str], sql_server: set[str]
) -> None:
    for codes, expected in ((POSTGRES, postgres), (MARIADB, mariadb), (SQL_SERVER, sql_server)):
        assert codes.codes_of(frozenset(numbers)) == expected


@pytest.mark.parametrize(
    ("codes", "named"), [(POSTGRES, "23505"), (POSTGRES, "P0001"), (POSTGRES, "22P05"), (MARIADB, "1062")]
)
def test_a_databases_own_code_can_be_skipped_by_itself(codes: ErrorCodes, named: str) -> None:
    assert is_skippable(named)
    assert codes.codes_of(frozenset({named})) == {named}


@pytest.mark.parametrize("named", ["1205", "40P01", "55P03", "42P01", "23", "", "two"])
def test_what_is_no_data_error_cannot_be_skipped(named: str) -> None:
    assert not is_skippable(named)


@pytest.mark.parametrize(
    ("codes", "code", "shown"),
    [
        (POSTGRES, "23505", "2627 (23505)"),
        (POSTGRES, "20598", "20598"),
        (POSTGRES, "55P03", "1222 (55P03)"),
        (POSTGRES, "53300", "without number (53300)"),
        (MARIADB, "1118", "1701 (1118)"),
        (MARIADB, "1665", "without number (1665)"),
        (MARIADB, "1290", "3906 (1290)"),
        (POSTGRES, None, ""),
        (MARIADB, "1062", "2627 (1062)"),
        (MARIADB, "1205", "1222 (1205)"),
        (SQL_SERVER, "2601", "2601"),
    ],
)
def test_sql_servers_number_comes_first(codes: ErrorCodes, code: str | None, shown: str) -> None:
    assert DataError("refused", **codes.numbered(code)).report.shown_number == shown


@pytest.mark.parametrize("codes", list(Codes), ids=lambda it: it.name)
def test_only_data_errors_can_be_skipped(codes: Codes) -> None:
    assert {codes.value.kind(code) for code in codes.value.codes_of(SKIPPABLE)} == {ErrorKind.DATA}


@pytest.mark.parametrize(
    ("codes", "code"),
    [(POSTGRES, "25006"), (MARIADB, "1290"), (MARIADB, "1836"), (SQL_SERVER, "3906")],
)
def test_a_server_that_has_not_taken_over_yet_is_tried_again(codes: ErrorCodes, code: str) -> None:
    assert (codes.kind(code), codes.numbered(code)["number"]) == (ErrorKind.TRANSIENT, "3906")
