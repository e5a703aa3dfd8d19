"""What of a Subscriber's tables makes the order of two transactions matter: unique keys and foreign keys."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from itertools import product
from typing import TypeVar

from pydantic import BaseModel, ConfigDict

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
