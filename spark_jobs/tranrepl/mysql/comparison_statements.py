"""The statements that compare a MariaDB or MySQL table without moving its rows, and how they write values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tranrepl.model.comparison import Form
from tranrepl.model.whole_table import WholeNumbersTable


@dataclass(frozen=True, slots=True)
class WholeMariaDbTable(WholeNumbersTable):
    """In MariaDB and MySQL."""

    def number(self, texts: Sequence[str]) -> str:
        digits = f"LEFT(MD5(CONCAT_WS('|', {', '.join(texts)})), 16)"
        return f"CAST(CAST(CONV({digits}, 16, 10) AS UNSIGNED) AS SIGNED)"

    def digest(self, text: str) -> str:
        return f"MD5(CONVERT({text} USING utf8mb4))"

    def exclusive_or(self, number: str) -> str:
        return f"CAST(BIT_XOR({number}) AS SIGNED)"


TEXTS: Mapping[Form, str] = {
    Form.CHARACTER: "RTRIM({})",
    Form.TIMESTAMP: "DATE_FORMAT({}, '%Y-%m-%d %H:%i:%s.%f')",
    Form.DATE: "DATE_FORMAT({}, '%Y-%m-%d')",
    Form.TIME: "TIME_FORMAT({}, '%H:%i:%s.%f')",
}


def floating(name: str) -> str:
    """Return sign, digits and magnitude of a floating-point number."""
    digits = f"REGEXP_REPLACE(REGEXP_REPLACE(CAST({name} AS CHAR), 'e.*$', ''), '[^0-9]', '')"
    return (
        f"CASE WHEN {name} = 0 THEN '0' ELSE CONCAT(SIGN({name}), 'd', "
        f"TRIM(TRAILING '0' FROM TRIM(LEADING '0' FROM {digits})), 'm', "
        f"CAST(ROUND(LOG10(ABS({name})) * 10) AS SIGNED)) END"
    )


def without_zeros(text: str) -> str:
    """Return the text of a number that has a fraction without zeros at its end."""
    return f"TRIM(TRAILING '.' FROM TRIM(TRAILING '0' FROM {text}))"
