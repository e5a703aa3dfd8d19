"""What each database's error codes mean: the class of the error, and SQL Server's numbers for the same.

Sources: PostgreSQL, "Error Codes"; MariaDB, "Error Codes"; SQL Server, "Database Engine events and errors".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TypedDict

from tranrepl.errors import ErrorKind

ROW_NOT_FOUND = 20598
DUPLICATE_KEY_ROW = 2601
DUPLICATE_KEY = 2627
CONSTRAINT_CONFLICT = 547
NULL_NOT_ALLOWED = 515
TRUNCATED = 8152
TRUNCATED_WHERE = 2628
OVERFLOW = 8115
OUT_OF_RANGE = 220
CONVERSION_FAILED = 245
NO_DATE = 241
DATE_OUT_OF_RANGE = 242
USER_DEFINED = 50000
DIVIDE_BY_ZERO = 8134
OUT_OF_MEMORY = 701
DEADLOCK = 1205
LOCK_TIMEOUT = 1222
UPDATE_CONFLICT = 3960
DATABASE_READ_ONLY = 3906
SYNTAX_ERROR = 102
INVALID_COLUMN = 207
INVALID_OBJECT = 208
PERMISSION_DENIED = 229
ROW_TOO_LARGE = 1701
TOO_MANY_COLUMNS = 1702
COLUMN_EXISTS = 2705
OBJECT_EXISTS = 2714
NO_SUCH_SCHEMA = 2760
NO_SUCH_PROCEDURE = 2812
CANNOT_OPEN_DATABASE = 4060
LOGIN_FAILED = 18456

_DUPLICATE = (DUPLICATE_KEY, DUPLICATE_KEY_ROW)
_TOO_LONG = (TRUNCATED, TRUNCATED_WHERE)
_TOO_LARGE = (OVERFLOW, OUT_OF_RANGE)
_BAD_DATE = (NO_DATE, DATE_OUT_OF_RANGE)

VALUE_DOES_NOT_FIT = str(TRUNCATED)
"""The number of a value that we refuse ourselves, before a database would change it to fit."""
_DOES_NOT_FIT = (*_TOO_LONG, *_TOO_LARGE, CONVERSION_FAILED, *_BAD_DATE)


class Numbers(TypedDict):
    """What an error is made with."""

    number: str | None
    database_code: str | None


@dataclass(frozen=True, slots=True)
class ErrorCodes:
    """One database's. A code is looked up whole, then by its first two characters (a class of SQLSTATE)."""

    kinds: Mapping[str, ErrorKind]
    otherwise: ErrorKind
    numbers: Mapping[str, tuple[int, ...]]
    """SQL Server's, of data errors: the likeliest first. They are what `skip_errors` may name."""
    other_numbers: Mapping[str, int] = field(default_factory=dict)
    """SQL Server's, of errors that are never skipped."""

    def kind(self, code: str | None) -> ErrorKind:
        """Return what kind of error a code is. Without a code there was no answer: the connection is lost."""
        if code is None:
            return ErrorKind.TRANSIENT
        return self.kinds.get(code) or self.kinds.get(code[:2] if len(code) == 5 else "", self.otherwise)

    def numbered(self, code: str | None) -> Numbers:
        """Return the database's own code with SQL Server's number for the same; the likeliest of several."""
        known = code or ""
        number = self.numbers[known][0] if known in self.numbers else self.other_numbers.get(known)
        return Numbers(number=None if number is None else str(number), database_code=code)

    def codes_of(self, skipped: frozenset[str]) -> frozenset[str]:
        """Return the codes that stand for one of SQL Server's numbers, and those that are named themselves."""
        by_number = {code for code, its in self.numbers.items() if skipped.intersection(map(str, its))}
        return frozenset(by_number | {it for it in skipped if it not in SKIPPABLE and self.is_data_error(it)})

    def is_data_error(self, code: str) -> bool:
        """Return whether `skip_errors` may name this code of the database."""
        return self.kind(code) is ErrorKind.DATA


class SqlServerCodes(ErrorCodes):
    """SQL Server's own codes, which need no translation."""

    def numbered(self, code: str | None) -> Numbers:
        return Numbers(number=code, database_code=code)


def _kinds(kind: ErrorKind, codes: str) -> dict[str, ErrorKind]:
    return dict.fromkeys(codes.split(), kind)


LOG_IN_USE = frozenset({"55006"})
"""Codes of Publishers that let one session read a log at a time: another one has it."""


class Codes(Enum):
    """The error codes of each database."""

    POSTGRES = ErrorCodes(
        kinds={
            # 55P03 lock_timeout, 55006 slot in use, 25P03 idle in transaction, 25006 a standby before its promotion.
            **_kinds(ErrorKind.TRANSIENT, "08 40 53 57 58 55P03 55006 25P03 25006"),
            # P0: raised by PL/pgSQL. 20 holds our own 20598.
            **_kinds(ErrorKind.DATA, "20 21 22 23 27 44 P0"),
        },
        otherwise=ErrorKind.CONFIGURATION,
        numbers={
            "20598": (ROW_NOT_FOUND,),
            "23505": _DUPLICATE,
            "23503": (CONSTRAINT_CONFLICT,),
            "23514": (CONSTRAINT_CONFLICT,),
            "23P01": (CONSTRAINT_CONFLICT,),
            "23502": (NULL_NOT_ALLOWED,),
            "22001": _TOO_LONG,
            "22003": _TOO_LARGE,
            "22P02": (CONVERSION_FAILED,),
            "22007": _BAD_DATE,
            "22008": _BAD_DATE,
            "22012": (DIVIDE_BY_ZERO,),
            "P0001": (USER_DEFINED,),
        },
        other_numbers={
            "25006": DATABASE_READ_ONLY,
            "28000": LOGIN_FAILED,
            "28P01": LOGIN_FAILED,
            "3D000": CANNOT_OPEN_DATABASE,
            "3F000": NO_SUCH_SCHEMA,
            "40001": UPDATE_CONFLICT,
            "40P01": DEADLOCK,
            "42501": PERMISSION_DENIED,
            "42703": INVALID_COLUMN,
            "42883": NO_SUCH_PROCEDURE,
            "42P01": INVALID_OBJECT,
            "53200": OUT_OF_MEMORY,
            "55P03": LOCK_TIMEOUT,
        },
    )
    MARIADB = ErrorCodes(
        kinds={
            **_kinds(
                ErrorKind.TRANSIENT,
                # 1290, 1836: read_only, as a replica has it until it takes over.
                "1040 1053 1077 1080 1129 1152 1158 1159 1160 1161 1203 1205 1213 1290 1317 1412 1836 1927 2002 2003 "
                "2006 2013",
            ),
            **_kinds(
                ErrorKind.CONFIGURATION,
                # 1050 to 1118, 1166 and 1170: a table that cannot be made or altered so. 1665: the binary log's format.
                "1044 1045 1046 1049 1050 1054 1059 1060 1061 1064 1067 1068 1069 1070 1071 1072 1074 1075 1101 1102 "
                "1103 1109 1115 1117 1118 1142 1143 1146 1166 1170 1227 1267 1286 1305 1318 1370 1665 1698",
            ),
        },
        otherwise=ErrorKind.DATA,
        numbers={
            "20598": (ROW_NOT_FOUND,),
            "1062": _DUPLICATE,
            "1451": (CONSTRAINT_CONFLICT,),
            "1452": (CONSTRAINT_CONFLICT,),
            "4025": (CONSTRAINT_CONFLICT,),
            "1048": (NULL_NOT_ALLOWED,),
            "1364": (NULL_NOT_ALLOWED,),
            "1406": _TOO_LONG,
            "1264": _TOO_LARGE,
            "1690": _TOO_LARGE,
            "1366": (CONVERSION_FAILED,),
            "1292": _BAD_DATE,
            "1365": (DIVIDE_BY_ZERO,),
            "1644": (USER_DEFINED,),
            VALUE_DOES_NOT_FIT: _DOES_NOT_FIT,
        },
        other_numbers={
            "1044": CANNOT_OPEN_DATABASE,
            "1045": LOGIN_FAILED,
            "1049": CANNOT_OPEN_DATABASE,
            "1050": OBJECT_EXISTS,
            "1054": INVALID_COLUMN,
            "1060": COLUMN_EXISTS,
            "1064": SYNTAX_ERROR,
            "1117": TOO_MANY_COLUMNS,
            "1118": ROW_TOO_LARGE,
            "1142": PERMISSION_DENIED,
            "1143": PERMISSION_DENIED,
            "1146": INVALID_OBJECT,
            "1205": LOCK_TIMEOUT,
            "1213": DEADLOCK,
            "1290": DATABASE_READ_ONLY,
            "1305": NO_SUCH_PROCEDURE,
            "1370": PERMISSION_DENIED,
            "1836": DATABASE_READ_ONLY,
        },
    )
    SQL_SERVER = SqlServerCodes(
        kinds={
            # 976, 983, 3906: a secondary until it takes over. From 20002 on they are DB-Library's: no connection, or a
            # lost one.
            **_kinds(
                ErrorKind.TRANSIENT,
                "1204 1205 1222 233 601 617 669 701 802 845 976 983 3906 3960 8645 8651 9002 10053 10054 10060 "
                "20002 20003 20004 20006 20009 20017 20047",
            ),
            **_kinds(
                ErrorKind.CONFIGURATION,
                # 266, 3609, 3930 and the like: a procedure or trigger has ended the transaction, or doomed it.
                "102 156 201 207 208 229 230 262 266 544 545 628 911 916 1088 2812 3609 3902 3903 3930 3931 3998 4060 "
                "6401 8107 8144 8145 8146 18452 18456 18470",
            ),
        },
        otherwise=ErrorKind.DATA,
        numbers={
            str(number): (number,)
            for number in (
                ROW_NOT_FOUND,
                *_DUPLICATE,
                CONSTRAINT_CONFLICT,
                NULL_NOT_ALLOWED,
                *_TOO_LONG,
                *_TOO_LARGE,
                CONVERSION_FAILED,
                *_BAD_DATE,
                DIVIDE_BY_ZERO,
                USER_DEFINED,
            )
        },
    )
    OTHER = ErrorCodes(
        kinds={},
        otherwise=ErrorKind.DATA,
        numbers={"20598": (ROW_NOT_FOUND,), VALUE_DOES_NOT_FIT: _DOES_NOT_FIT},
    )


SKIPPABLE = frozenset(str(number) for codes in Codes for numbers in codes.value.numbers.values() for number in numbers)
"""SQL Server's numbers that `skip_errors` takes: of data errors, and of no others."""


def is_skippable(value: str) -> bool:
    """Return whether `skip_errors` takes this number of SQL Server's, or this code of a database."""
    own = value in Codes.MARIADB.value.numbers
    state = re.fullmatch(r"[0-9A-Z]{5}", value) is not None and Codes.POSTGRES.value.is_data_error(value)
    return value in SKIPPABLE or own or state
