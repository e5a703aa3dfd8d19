"""Relation messages: a published table as the log announces it, and whether it fits its article."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tranrepl.model.arrays import Ints
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.names import TableName
from tranrepl.model.position import FIRST_POSITION
from tranrepl.publisher.postgres.lsn import lsn_of
from tranrepl.publisher.postgres.old_rows import may_lack_values, old_rows_problem


@dataclass(frozen=True, slots=True)
class RelationColumn:
    name: str
    type_oid: int
    type_modifier: int
    identified: bool
    """Whether old rows in the log have the column."""


@dataclass(frozen=True, slots=True)
class Relation:
    """A table as a Relation message announces it."""

    object_id: int
    schema: str
    table: str
    replica_identity: str
    columns: tuple[RelationColumn, ...]

    def name_of(self, article: RegisteredArticle) -> TableName:
        """Return the name of the article's table, as it was registered, or that of the partition of it that this is."""
        own = self.object_id == article.source_object_id
        return article.source if own else TableName(self.schema, self.table)


@dataclass(frozen=True, slots=True)
class RelationMismatch:
    """The log describes a table that no longer fits its article."""

    article: RegisteredArticle
    table: TableName
    """The article's, or the partition of it that the log describes."""
    problem: str
    lacks_old_rows: bool = False
    """It fits, but changes made under its replica identity lack what the article needs."""
    rows_unknown: str | None = None
    """Why the log does not say which rows the article has now; None where it does."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Where an article's columns stand in a relation's tuples."""

    article: RegisteredArticle
    object_id: int
    """The relation: the article's table, or a partition of it."""
    tuple_columns: int
    positions: Ints
    ignored_to: int = 0
    """LSN at which the article was reinitialized: changes committed before it that do not fit are ignored."""
    problem: str | None = None
    """Why changes after that cannot be read."""


def read_relation(message: bytes) -> Relation:
    object_id = int.from_bytes(message[1:5], "big")
    schema, table, rest = message[5:].split(b"\0", 2)
    count = int.from_bytes(rest[1:3], "big")
    identity, columns, rest = chr(rest[0]), [], rest[3:]
    for _ in range(count):
        name, after = rest[1:].split(b"\0", 1)
        type_oid, type_modifier = int.from_bytes(after[:4], "big"), int.from_bytes(after[4:8], "big", signed=True)
        columns.append(RelationColumn(_shown(name), type_oid, type_modifier, identified=bool(rest[0] & 1)))
        rest = after[8:]
    # An empty schema name stands for pg_catalog.
    return Relation(object_id, _shown(schema) or "pg_catalog", _shown(table), identity, tuple(columns))


def _shown(name: bytes) -> str:
    """Decode a name for a message: a database of SQL_ASCII takes any bytes."""
    return name.decode(errors="backslashreplace")


def fit(article: RegisteredArticle, relation: Relation, commit_lsn: int) -> Layout | RelationMismatch:
    """Return how the article reads the changes that follow, in the transaction that commits there."""
    fitting = _fit(article, relation)
    if article.begins_after == FIRST_POSITION or commit_lsn > lsn_of(article.begins_after):
        return fitting
    return _fit_before_beginning(fitting, article, relation)


def fits(article: RegisteredArticle, relation: Relation) -> bool:
    """Return whether a relation has all columns of an article, as its table or a partition of it has."""
    fitting = _fit(article, relation)
    return isinstance(fitting, Layout) or fitting.lacks_old_rows


def _fit(article: RegisteredArticle, relation: Relation) -> Layout | RelationMismatch:
    """Find the article's columns in the relation. Columns that the article does not publish are ignored."""
    places = {column.name: place for place, column in enumerate(relation.columns)}
    positions = []
    for column in article.columns:
        place = next((places[name] for name in (column.name, *column.earlier_names) if name in places), None)
        if place is None:
            return RelationMismatch(article, relation.name_of(article), f"column {column.name} was dropped or renamed")
        positions.append(place)
        found = relation.columns[place]
        types = ((column.type_oid, column.type_modifier), *column.earlier_types)
        if (found.type_oid, found.type_modifier) not in types:
            problem = f"column {column.name} is no longer {column.type_name}"
            return RelationMismatch(article, relation.name_of(article), problem)
    identified = [relation.columns[positions[at]].identified for at in article.key_positions]
    lacking = old_rows_problem(article, relation.replica_identity, identified)
    if lacking is not None:
        return RelationMismatch(article, relation.name_of(article), lacking, lacks_old_rows=True)
    return Layout(article, relation.object_id, len(relation.columns), np.array(positions, dtype=np.int64))


def _fit_before_beginning(
    fitting: Layout | RelationMismatch, article: RegisteredArticle, relation: Relation
) -> Layout | RelationMismatch:
    """Return a layout that ignores changes which cannot be read, where the article's new beginning has them in
    it."""
    if isinstance(fitting, Layout):
        lacking = may_lack_values(article, relation.replica_identity)
        return replace(fitting, ignored_to=lsn_of(article.begins_after)) if lacking else fitting
    nowhere = np.zeros(0, dtype=np.int64)
    return Layout(
        article, relation.object_id, len(relation.columns), nowhere, lsn_of(article.begins_after), fitting.problem
    )
