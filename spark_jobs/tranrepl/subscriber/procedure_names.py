"""Names of generated procedures.

Source: `sp_addarticle`: `sp_MSins_`, `sp_MSupd_`, `sp_MSdel_`, then the destination owner and table without separator.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

from tranrepl.commands import Method, Operation
from tranrepl.errors import ConfigurationError
from tranrepl.settings import Article, TableName

PREFIXES = {Operation.INSERT: "sp_MSins_", Operation.UPDATE: "sp_MSupd_", Operation.DELETE: "sp_MSdel_"}


def procedure_name(operation: Operation, destination: TableName, longest: int) -> str:
    """The generated procedure's name. One longer than `longest` bytes is cut, and ends in a stable hash."""
    name = f"{PREFIXES[operation]}{destination.schema}{destination.table}"
    if len(name.encode()) <= longest:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    kept = name.encode()[: longest - len(digest) - 1].decode(errors="ignore")
    return f"{kept}_{digest}"


def shared_names(articles: Iterable[Article], longest: int) -> Iterator[ConfigurationError]:
    """Two articles whose generated procedures would have one name, as `a.bc` and `ab.c` have."""
    owners: dict[str, TableName] = {}
    for article in articles:
        for operation in PREFIXES:
            if article.propagation(operation).method is not Method.PROCEDURE:
                continue
            name = procedure_name(operation, article.destination_table, longest)
            other = owners.setdefault(name, article.destination_table)
            if other != article.destination_table:
                yield ConfigurationError(
                    f"articles {other} and {article.destination_table} would share the procedure {name}",
                    remedy="use SQL for one of them, or another destination",
                )
