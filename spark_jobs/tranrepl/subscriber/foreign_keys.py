"""The Publisher's foreign keys among published tables, as a Subscriber's tables can have them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tranrepl.model.catalogue import ForeignKeyDescription, TableDescription
from tranrepl.model.commands import Method, Operation
from tranrepl.model.names import TableName
from tranrepl.settings.publication import Article

_PROPAGATED = (Operation.INSERT, Operation.UPDATE, Operation.DELETE)


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """Between two destinations. The referenced columns are the primary key's, in its order."""

    name: str
    table: TableName
    columns: tuple[str, ...]
    referenced: TableName
    referenced_columns: tuple[str, ...]

    def left_out(self, reason: str) -> str:
        """Note in the output of setup that the foreign key is not there, and why."""
        return _left_out(self.name, self.table, reason)


@dataclass(frozen=True, slots=True)
class ForeignKeys:
    """What a Subscriber can have, and what it cannot, in words."""

    wanted: tuple[ForeignKey, ...]
    left_out: tuple[str, ...]

    def columns_of(self, table: TableName) -> frozenset[str]:
        """Return the columns of a destination that reference another row."""
        return frozenset(column for key in self.wanted if key.table == table for column in key.columns)


NO_FOREIGN_KEYS = ForeignKeys((), ())


def published_foreign_keys(articles: Sequence[tuple[Article, TableDescription]]) -> ForeignKeys:
    """Return the foreign keys that what arrives at a Subscriber obeys. One to a table that is not published is none of
    ours."""
    published = {article.source: (article, table) for article, table in articles}
    wanted: list[ForeignKey] = []
    left_out: list[str] = []
    for article, table in articles:
        for key in table.foreign_keys:
            if key.referenced not in published:
                continue
            reason = next(_obstacles(key, (article, table), published[key.referenced]), None)
            if reason is None:
                wanted.append(_between_destinations(key, article, *published[key.referenced]))
            else:
                left_out.append(_left_out(key.name, article.destination_table, reason))
    return ForeignKeys(tuple(wanted), tuple(left_out))


def _obstacles(
    key: ForeignKeyDescription,
    referencing: tuple[Article, TableDescription],
    referenced: tuple[Article, TableDescription],
) -> Iterator[str]:
    """Yield why the Subscriber's rows may violate a foreign key that the Publisher's rows satisfy."""
    if not key.holds:
        yield "at the Publisher it is not validated, or compares periods"
    if {column.name for column in referenced[1].key} != set(key.referenced_columns):
        yield f"it references other columns than the primary key of {key.referenced}"
    published = {column.name for column in referencing[1].published(referencing[0].columns)}
    unpublished = [column for column in key.columns if column not in published]
    if unpublished:
        yield f"column {', '.join(unpublished)} is not published"
    if referenced[0].filter is not None:
        yield f"article {key.referenced} has a row filter"
    for article, _ in (referencing, referenced):
        if any(article.propagation(it).method is Method.NONE for it in _PROPAGATED):
            yield f"article {article.source} does not propagate every change (NONE)"
    if referencing[0].truncate is not referenced[0].truncate:
        yield "truncate is not the same for both articles"


def _between_destinations(
    key: ForeignKeyDescription, article: Article, referenced: Article, table: TableDescription
) -> ForeignKey:
    # MariaDB wants them in the order of the index.
    columns = dict(zip(key.referenced_columns, key.columns, strict=True))
    names = tuple(column.name for column in table.key)
    return ForeignKey(
        key.name,
        article.destination_table,
        tuple(columns[name] for name in names),
        referenced.destination_table,
        names,
    )


def _left_out(name: str, table: TableName, reason: str) -> str:
    return f"left out foreign key {name} of table {table}: {reason}"
