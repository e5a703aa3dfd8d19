"""Unique keys and foreign keys of tables that SQLAlchemy reaches."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from tranrepl.subscriber.base.catalogue import Place
from tranrepl.subscriber.base.database import SqlDatabase
from tranrepl.subscriber.base.target import SqlTarget
from tranrepl.subscriber.constraints import (
    ArticleTable,
    Constraints,
    between_articles,
    constraints_among,
    parents_first,
)


def constraints_of(session: sa.Connection, database: SqlDatabase, targets: Sequence[SqlTarget]) -> Constraints:
    """Return the constraints of the targets' tables; a foreign key counts where both of its ends are among them."""
    catalogue, places = database.catalogue(session), _places(targets)
    tables = [ArticleTable(it.article.article_id, _place(it), _names(it)) for it in targets]
    unique = [(place, key) for place, keys in catalogue.unique_keys(places).items() for key in keys]
    foreign = [
        (place, it.columns, it.referenced, it.referenced_columns)
        for place, keys in catalogue.foreign_keys(places).items()
        for it in keys
    ]
    return constraints_among(tables, unique, foreign)


def parents_first_among(session: sa.Connection, database: SqlDatabase, targets: Sequence[SqlTarget]) -> dict[int, int]:
    """Rank of each article (`parents_first`) where one's table refers to another one's; none where none does."""
    tables = {it.article.article_id: _place(it) for it in targets}
    found = database.catalogue(session).foreign_keys(_places(targets))
    references = {(place, key.referenced) for place, keys in found.items() for key in keys}
    return parents_first(tables, references) if between_articles(tables, references) else {}


def _place(target: SqlTarget) -> Place:
    return target.schema, target.name


def _places(targets: Sequence[SqlTarget]) -> list[Place]:
    return list(dict.fromkeys(map(_place, targets)))


def _names(target: SqlTarget) -> tuple[str, ...]:
    return tuple(it.catalogue_name for it in target.columns)
