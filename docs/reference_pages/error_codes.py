"""Meanings of the databases' error codes, from the tables that decide them, and commands that messages name."""

from __future__ import annotations

from collections.abc import Mapping

from reference_pages.markdown import item, table
from tranrepl.error_numbers import Codes, ErrorCodes
from tranrepl.errors import ErrorKind
from tranrepl.remedies import COMMANDS

_DATABASES: Mapping[Codes, str] = {
    Codes.POSTGRES: "PostgreSQL",
    Codes.MARIADB: "MariaDB and MySQL",
    Codes.SQL_SERVER: "SQL Server",
}
_KINDS = (ErrorKind.TRANSIENT, ErrorKind.DATA, ErrorKind.CONFIGURATION)


def error_codes() -> str:
    """Return each database's codes by kind, and SQL Server's numbers for the data errors."""
    kinds = [_kinds_of(name, codes.value) for codes, name in _DATABASES.items()]
    numbers: dict[int, dict[str, list[str]]] = {}
    for codes in (Codes.POSTGRES, Codes.MARIADB):
        for code, its in codes.value.numbers.items():
            for number in its:
                numbers.setdefault(number, {}).setdefault(_DATABASES[codes], []).append(code)
    names = ("PostgreSQL", "MariaDB and MySQL")
    rows = [[str(number), *(", ".join(its.get(name, ())) for name in names)] for number, its in sorted(numbers.items())]
    return "\n\n".join(
        ["### Kinds", *kinds, "### Data errors that `skip_errors` may name", table(["SQL Server", *names], rows)]
    )


def commands_of_messages() -> str:
    """Return all commands that messages name, with the purpose of each."""
    return table(["Command", "What for"], [[f"`{command}`", purpose] for command, purpose in COMMANDS.items()])


def _kinds_of(name: str, codes: ErrorCodes) -> str:
    lines = [f"{name}:", ""]
    for kind in _KINDS:
        named = sorted((code for code, it in codes.kinds.items() if it is kind), key=lambda it: it.rjust(5, "0"))
        rest = ["every other code"] if codes.otherwise is kind else []
        if named or rest:
            lines.append(item(f"{kind}: {', '.join([*named, *rest])}"))
    return "\n".join(lines)
