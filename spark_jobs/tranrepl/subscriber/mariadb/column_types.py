"""MariaDB's and MySQL's column types: what setup gives, and what those that are there keep of values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql
from sqlalchemy.types import TypeEngine

from tranrepl.model.source_types import Family, SourceType, decimal_digits
from tranrepl.subscriber.base.database import spelled
from tranrepl.subscriber.value_conversion import UUID_FORM, ColumnType

_MOST_DIGITS = 65
_MOST_FRACTION_DIGITS = 30
_UNBOUNDED_NUMERIC = (_MOST_DIGITS, _MOST_FRACTION_DIGITS)
TYPES: Mapping[Family, TypeEngine[Any]] = {
    Family.BOOLEAN: mysql.TINYINT(display_width=1),
    Family.SMALLINT: mysql.SMALLINT(),
    Family.INTEGER: mysql.INTEGER(),
    Family.BIGINT: mysql.BIGINT(),
    # Its FLOAT is shown with six digits, whatever it holds.
    Family.REAL: mysql.DOUBLE(),
    Family.DOUBLE: mysql.DOUBLE(),
    Family.MONEY: mysql.DECIMAL(19, 2),
    Family.DATE: mysql.DATE(),
    Family.TIME: mysql.TIME(fsp=6),
    Family.TIMESTAMP: mysql.DATETIME(fsp=6),
    Family.TIMESTAMP_WITH_ZONE: mysql.DATETIME(fsp=6),
}


def decimal_digits_of(source: SourceType) -> tuple[int, int]:
    """Return precision and scale, at most those that there are: a value that does not fit is refused when it comes."""
    precision, scale = decimal_digits(source) or _UNBOUNDED_NUMERIC
    return min(precision, _MOST_DIGITS), min(scale, _MOST_FRACTION_DIGITS)


def described_type(reflected: TypeEngine[Any], dialect: sa.Dialect) -> ColumnType:
    """Return a destination column's type, as SQLAlchemy reads it from the catalogue."""
    if isinstance(reflected, mysql.JSON):
        return ColumnType(mysql.LONGTEXT(), "json", loses="white space, and the order and repetition of keys,")
    if isinstance(reflected, mysql.BIT):
        return ColumnType(sa.BigInteger(), spelled(reflected, dialect))
    if isinstance(reflected, sa.types.Uuid):
        return ColumnType(mysql.VARCHAR(36), "uuid", form=re.compile(UUID_FORM))
    digits = getattr(reflected, "fsp", None) or 0
    return ColumnType(
        reflected,
        spelled(_without_width(reflected), dialect),
        fraction_digits=digits if isinstance(reflected, mysql.DATETIME | mysql.TIMESTAMP | mysql.TIME) else None,
        single_precision=isinstance(reflected, mysql.FLOAT),
        fixed_length=isinstance(reflected, mysql.CHAR | mysql.NCHAR | mysql.ENUM | sa.BINARY),
        form=_form(reflected),
    )


def _form(reflected: TypeEngine[Any]) -> re.Pattern[str] | None:
    """Return the only texts that are kept as they are: the server also takes a label's number for the label, another
    case, blanks at its end, and two digits for a year."""
    match reflected:
        case mysql.ENUM():
            return re.compile("|".join(map(re.escape, reflected.enums)))
        case mysql.SET():
            members = (rf"(?:{re.escape(it)}(?:,(?!\Z)|\Z))?" for it in reflected.values)
            return re.compile("".join(members))
        case mysql.YEAR():
            return re.compile("[0-9]{4}")
        case _:
            return None


def _without_width(reflected: TypeEngine[Any]) -> TypeEngine[Any]:
    """Return an integer without the width that MariaDB shows it in, which nobody asked for; TINYINT(1) is a truth."""
    if not isinstance(reflected, mysql.INTEGER | mysql.BIGINT | mysql.SMALLINT) or reflected.zerofill:
        return reflected
    return type(reflected)(unsigned=bool(reflected.unsigned))
