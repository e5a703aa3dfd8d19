"""Unique keys and foreign keys of tables that SQLAlchemy reaches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import sqlalchemy as sa
from sqlalchemy.engine.interfaces import ReflectedForeignKeyConstraint

from tranrepl.errors import ConfigurationError
from tranrepl.settings.publication import Subscription
from tranrepl.subscriber.capabilities import Capabilities, ForeignKeyCheck
from tranrepl.subscriber.constraints import Constraints, Reference, UniqueKey, between_articles, parents_first
from tranrepl.subscriber.generic.database import SqlDatabase
from tranrepl.subscriber.generic.target import SqlTarget

_Place = tuple[str | None, str]
"""Schema and name of a table."""


def constraints_of(session: sa.Connection, database: SqlDatabase, targets: Sequence[SqlTarget]) -> Constraints:
    """Return the constraints of the targets' tables; a foreign key counts where both of its ends are among them."""
    inspector = sa.inspect(session)
    unique = [it for target in targets for it in _unique_keys(inspector, database, target)]
    foreign = [it for target in targets for it in _foreign_keys(inspector, database, target, targets)]
    return Constraints(unique_keys=tuple(unique), references=tuple(foreign))


def parents_first_among(session: sa.Connection, targets: Sequence[SqlTarget]) -> dict[int, int]:
    """Rank of each article (`parents_first`) where one's table refers to another one's; none where none does."""
    inspector = sa.inspect(session)
    tables = {it.article.article_id: _place(it) for it in targets}
    references = {
        (_place(it), _referred(it, found)) for it in targets for found in inspector.get_foreign_keys(it.name, it.schema)
    }
    return parents_first(tables, references) if between_articles(tables, references) else {}


def _unique_keys(inspector: sa.Inspector, database: SqlDatabase, target: SqlTarget) -> Iterator[UniqueKey]:
    keys: list[Sequence[str | None]] = [inspector.get_pk_constraint(target.name, target.schema)["constrained_columns"]]
    keys += [it["column_names"] for it in inspector.get_unique_constraints(target.name, target.schema)]
    keys += [it["column_names"] for it in inspector.get_indexes(target.name, target.schema) if it["unique"]]
    for columns in dict.fromkeys(tuple(it) for it in keys if it):
        positions = [None if name is None else _position(database, target, name) for name in columns]
        known = tuple(at for at in positions if at is not None)
        values_known = len(known) == len(columns)
        yield UniqueKey(article_id=target.article.article_id, positions=known, values_known=values_known)


def _foreign_keys(
    inspector: sa.Inspector, database: SqlDatabase, target: SqlTarget, targets: Sequence[SqlTarget]
) -> Iterator[Reference]:
    for found in inspector.get_foreign_keys(target.name, target.schema):
        parent = next((it for it in targets if _place(it) == _referred(target, found)), None)
        if parent is None:
            continue
        positions = [_position(database, target, it) for it in found["constrained_columns"]]
        parent_positions = [_position(database, parent, it) for it in found["referred_columns"]]
        if None not in positions and None not in parent_positions:
            yield Reference(
                article_id=target.article.article_id,
                positions=tuple(at for at in positions if at is not None),
                parent_id=parent.article.article_id,
                parent_positions=tuple(at for at in parent_positions if at is not None),
            )


def _place(target: SqlTarget) -> _Place:
    return target.schema, target.name


def _referred(target: SqlTarget, found: ReflectedForeignKeyConstraint) -> _Place:
    return found["referred_schema"] or target.schema, found["referred_table"]


def _position(database: SqlDatabase, target: SqlTarget, reflected: str) -> int | None:
    name = database.column_name(reflected)
    return next((at for at, column in enumerate(target.columns) if column.name == name), None)


def foreign_key_problems(able: Capabilities, where: str, subscription: Subscription) -> Iterator[ConfigurationError]:
    """Yield why setup cannot create foreign keys there, or why they would stop a delivery."""
    match able.foreign_keys:
        case ForeignKeyCheck.NONE:
            yield ConfigurationError(
                f"{where}: foreign_keys: setup creates no foreign keys in {able.title}", remedy="foreign_keys: false"
            )
        case ForeignKeyCheck.AT_ONCE if not subscription.not_for_replication:
            yield ConfigurationError(
                f"{where}: foreign_keys: {able.title} checks a foreign key at once, and a parent's DELETE "
                "comes before those of the children that it cascaded to",
                remedy="not_for_replication: true for this subscription, or foreign_keys: false",
            )
