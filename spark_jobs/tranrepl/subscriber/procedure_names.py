"""Names of generated procedures.

Source: `sp_addarticle`: `sp_MSins_`, `sp_MSupd_`, `sp_MSdel_`, then the destination owner and table without separator.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from enum import Enum, auto

from tranrepl.errors import ConfigurationError
from tranrepl.model.commands import Method, Operation, Propagation
from tranrepl.model.names import TableName, procedure_parts
from tranrepl.settings.publication import Article
from tranrepl.subscriber.capabilities import NameCase, NameLimit

PREFIXES = {Operation.INSERT: "sp_MSins_", Operation.UPDATE: "sp_MSupd_", Operation.DELETE: "sp_MSdel_"}


class Scripted(Enum):
    """Which procedures of an article are scripted."""

    GENERATED = auto()
    CUSTOM = auto()
    """Skeletons of the custom ones: the right signature, and a body that does what the generated one would do."""


def procedure_name(operation: Operation, destination: TableName, limit: NameLimit) -> str:
    """Return the generated procedure's name. One beyond the database's limit is cut, and ends in a stable hash."""
    name = f"{PREFIXES[operation]}{destination.schema}{destination.table}"
    if limit.fits(name):
        return name
    return limit.cut(name, "_" + hashlib.sha256(name.encode()).hexdigest()[:8])


def generates(propagation: Propagation) -> bool:
    """Return whether a procedure is generated for the propagation: none is for a custom one. For a custom one, nothing
    is."""
    return propagation.method is Method.PROCEDURE and propagation.procedure is None


def called_procedure(
    propagation: Propagation, operation: Operation, destination: TableName, limit: NameLimit
) -> tuple[str | None, str]:
    """Return schema (None: where generated procedures live) and name of the procedure that a command calls."""
    if propagation.procedure is None:
        return None, procedure_name(operation, destination, limit)
    *schema, name = procedure_parts(propagation.procedure)
    return (schema[0] if schema else None), name


def shared_names(
    articles: Iterable[Article], limit: NameLimit, case: NameCase = NameCase.SENSITIVE
) -> Iterator[ConfigurationError]:
    """Yield an error for two articles whose generated procedures would have one name, as `a.bc` and `ab.c` have."""
    owners: dict[str, TableName] = {}
    for article in articles:
        for operation in PREFIXES:
            if not generates(article.propagation(operation)):
                continue
            name = procedure_name(operation, article.destination_table, limit)
            same = name if case is NameCase.SENSITIVE else name.lower()
            other = owners.setdefault(same, article.destination_table)
            if other != article.destination_table:
                yield ConfigurationError(
                    f"articles {other} and {article.destination_table} would share the procedure {name}",
                    remedy="use SQL for one of them, or another destination",
                )


def shared_tables(articles: Iterable[Article], title: str) -> Iterator[ConfigurationError]:
    """Yield an error for two articles whose tables would be one, where tables have no schema."""
    owners: dict[str, TableName] = {}
    for article in articles:
        other = owners.setdefault(article.destination_table.table.lower(), article.destination_table)
        if other != article.destination_table:
            yield ConfigurationError(
                f"articles {other} and {article.destination_table} would share a table: {title} has no schemas",
                remedy="give one of them another destination",
            )
