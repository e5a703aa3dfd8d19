"""What of a Subscriber's tables makes the order of two transactions matter: unique keys and foreign keys, and TRUNCATE
of several tables.

The log has the tables of one TRUNCATE side by side, parents before children where it was `TRUNCATE … CASCADE`. Two such
statements of one transaction, with nothing between them, are as good as one.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import product
from typing import Generic, TypeVar

import numpy as np
import pyarrow as pa
from pydantic import BaseModel, ConfigDict

from tranrepl.model.arrays import Bools
from tranrepl.model.command_rows import xact_seqno_numbers
from tranrepl.model.commands import Operation

Table = TypeVar("Table", bound=Hashable)


class _Constraint(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class UniqueKey(_Constraint):
    """A primary key, unique constraint or unique index; positions (from 0) among the article's published columns."""

    article_id: int
    positions: tuple[int, ...]
    values_known: bool = True
    """False where it is over an expression or over columns that are not published: any change may touch any value."""


class Reference(_Constraint):
    """A foreign key: `positions[i]` of the article refers to `parent_positions[i]` of the parent."""

    article_id: int
    positions: tuple[int, ...]
    parent_id: int
    parent_positions: tuple[int, ...]


class Constraints(_Constraint):
    """The constraints of all tables that a subscription delivers to; articles' primary keys may be left out."""

    unique_keys: tuple[UniqueKey, ...] = ()
    references: tuple[Reference, ...] = ()


@dataclass(frozen=True, slots=True)
class ArticleTable(Generic[Table]):
    """An article's table: `columns` are the catalogue's names of the published ones, in the article's order."""

    article_id: int
    table: Table
    columns: tuple[str, ...]

    def positions(self, columns: Sequence[str | None]) -> tuple[int, ...] | None:
        """Return the positions of columns; None where one is not published, or is an expression."""
        known = [self.columns.index(it) for it in columns if it in self.columns]
        return tuple(known) if len(known) == len(columns) else None

    def unique_key(self, columns: Sequence[str | None]) -> UniqueKey:
        known = [self.columns.index(it) for it in columns if it in self.columns]
        return UniqueKey(
            article_id=self.article_id, positions=tuple(known), values_known=0 < len(known) == len(columns)
        )


def constraints_among(
    tables: Sequence[ArticleTable[Table]],
    unique_keys: Iterable[tuple[Table, Sequence[str | None]]],
    foreign_keys: Iterable[tuple[Table, Sequence[str], Table, Sequence[str]]],
) -> Constraints:
    """Return the constraints of articles' tables. A column of a unique key is None for an expression; a foreign key is
    one table's columns and another one's, and counts where all are published: what is not sent does not change."""
    by_table: dict[Table, list[ArticleTable[Table]]] = {}
    for it in tables:
        by_table.setdefault(it.table, []).append(it)
    references = []
    for table, columns, referenced, referenced_columns in foreign_keys:
        for child, parent in product(by_table.get(table, ()), by_table.get(referenced, ())[:1]):
            positions, parent_positions = child.positions(columns), parent.positions(referenced_columns)
            if positions is not None and parent_positions is not None:
                references.append(
                    Reference(
                        article_id=child.article_id,
                        positions=positions,
                        parent_id=parent.article_id,
                        parent_positions=parent_positions,
                    )
                )
    unique = [it.unique_key(columns) for table, columns in unique_keys for it in by_table.get(table, ())]
    return Constraints(unique_keys=tuple(unique), references=tuple(references))


def parents_first(tables: Mapping[int, Table], references: Iterable[tuple[Table, Table]]) -> dict[int, int]:
    """Rank of each article (by article_id, with its table): one that a foreign key (child, parent) refers to comes
    before the one that refers. Within a circle any order is as good as another: where it is not, a statement fails."""
    parents: dict[Table, set[Table]] = {table: set() for table in tables.values()}
    for child, parent in references:
        if child in parents and parent in parents and child != parent:
            parents[child].add(parent)
    try:
        order = list(TopologicalSorter(parents).static_order())
    except CycleError:
        order = list(parents)
    rank = {table: place for place, table in enumerate(order)}
    return {number: rank[table] for number, table in tables.items()}


def between_articles(
    tables: Mapping[int, Table], references: Iterable[tuple[Table, Table]]
) -> frozenset[tuple[int, int]]:
    """Return foreign keys (child, parent) between two tables, by the articles (article_id) that the tables are of."""
    articles_of: dict[Table, list[int]] = {}
    for number, table in tables.items():
        articles_of.setdefault(table, []).append(number)
    return frozenset(
        pair
        for child, parent in references
        if child != parent
        for pair in product(articles_of.get(child, ()), articles_of.get(parent, ()))
    )


def behind_another(commands: pa.Table) -> Bools:
    """Return whether a command (row layout, in order) is a TRUNCATE that comes right behind another one of its
    transaction; shape (commands,)."""
    truncates = commands["operation"].to_numpy() == Operation.TRUNCATE
    behind = np.zeros(len(commands), dtype=np.bool_)
    if np.count_nonzero(truncates) > 1:
        seqnos = xact_seqno_numbers(commands["xact_seqno"].combine_chunks())
        behind[1:] = truncates[1:] & truncates[:-1] & (seqnos[1:] == seqnos[:-1])
    return behind


def children_first(commands: pa.Table, rank: Mapping[int, int]) -> pa.Table:
    """Sort commands for tables that may refer to one another by the rank of their articles
    (`constraints.parents_first`); in order where it is the same."""
    ranks = np.array([rank.get(it, 0) for it in commands["article_id"].to_pylist()], dtype=np.int64)
    return commands.take(pa.array(np.argsort(-ranks, kind="stable")))


def refer_to_one_another(articles: Iterable[int], references: Iterable[tuple[int, int]]) -> bool:
    """Return whether the table of one of the articles refers to another one's; `references` are (child, parent)."""
    among = set(articles)
    return any(child in among and parent in among for child, parent in references)
