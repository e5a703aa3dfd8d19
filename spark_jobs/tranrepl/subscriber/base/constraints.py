"""Unique keys and foreign keys of tables that SQLAlchemy reaches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import sqlalchemy as sa

from tranrepl.errors import ConfigurationError
from tranrepl.settings.publication import Subscription
from tranrepl.subscriber.base.catalogue import Place, ReferringColumns, UniqueColumns
from tranrepl.subscriber.base.database import SqlDatabase
from tranrepl.subscriber.base.target import SqlTarget
from tranrepl.subscriber.capabilities import Capabilities, ForeignKeyCheck
from tranrepl.subscriber.constraints import Constraints, Reference, UniqueKey, between_articles, parents_first


def constraints_of(session: sa.Connection, database: SqlDatabase, targets: Sequence[SqlTarget]) -> Constraints:
    """Return the constraints of the targets' tables; a foreign key counts where both of its ends are among them."""
    catalogue, places = database.catalogue(session), _places(targets)
    unique_keys, foreign_keys = catalogue.unique_keys(places), catalogue.foreign_keys(places)
    unique = [_unique_key(it, key) for it in targets for key in unique_keys.get(_place(it), ())]
    foreign = [
        reference
        for it in targets
        for key in foreign_keys.get(_place(it), ())
        for reference in _references(it, key, targets)
    ]
    return Constraints(unique_keys=tuple(unique), references=tuple(foreign))


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


def _unique_key(target: SqlTarget, columns: UniqueColumns) -> UniqueKey:
    positions = [None if name is None else _position(target, name) for name in columns]
    known = tuple(at for at in positions if at is not None)
    return UniqueKey(article_id=target.article.article_id, positions=known, values_known=len(known) == len(columns))


def _references(target: SqlTarget, key: ReferringColumns, targets: Sequence[SqlTarget]) -> Iterator[Reference]:
    parent = next((it for it in targets if _place(it) == key.referenced), None)
    if parent is None:
        return
    positions = [_position(target, it) for it in key.columns]
    parent_positions = [_position(parent, it) for it in key.referenced_columns]
    if None not in positions and None not in parent_positions:
        yield Reference(
            article_id=target.article.article_id,
            positions=tuple(at for at in positions if at is not None),
            parent_id=parent.article.article_id,
            parent_positions=tuple(at for at in parent_positions if at is not None),
        )


def _position(target: SqlTarget, name: str) -> int | None:
    return next((at for at, column in enumerate(target.columns) if column.catalogue_name == name), None)


def foreign_key_problems(able: Capabilities, where: str, subscription: Subscription) -> Iterator[ConfigurationError]:
    """Yield why setup cannot create foreign keys there, or why they would stop a delivery."""
    match able.foreign_keys:
        case ForeignKeyCheck.NONE:
            yield ConfigurationError(
                f"{where}: foreign_keys: setup creates no foreign keys in {able.title}", remedy="foreign_keys: false"
            )
        case ForeignKeyCheck.AT_ONCE if not able.not_for_replication:
            yield ConfigurationError(
                f"{where}: foreign_keys: {_checks_at_once(able)}; {able.why_for_replication}",
                remedy="foreign_keys: false",
            )
        case ForeignKeyCheck.AT_ONCE if not subscription.not_for_replication:
            yield ConfigurationError(
                f"{where}: foreign_keys: {_checks_at_once(able)}",
                remedy="not_for_replication: true for this subscription, or foreign_keys: false",
            )


def _checks_at_once(able: Capabilities) -> str:
    return (
        f"{able.title} checks a foreign key at once, and a parent's DELETE comes before those of the children that it "
        "cascaded to"
    )


def not_for_replication_problems(able: Capabilities, where: str) -> Iterator[ConfigurationError]:
    """Yield a problem where sessions of this database cannot keep foreign keys from acting."""
    if not able.not_for_replication:
        yield ConfigurationError(
            f"{where}: not_for_replication: "
            + (able.why_for_replication or f"a session of {able.title} cannot keep foreign keys from acting"),
            remedy="not_for_replication: false; drop or disable what must not act at the Subscriber's tables",
        )
