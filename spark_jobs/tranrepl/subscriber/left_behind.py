"""What a publication leaves at a Subscriber that is not reached: the statements that remove it there."""

from __future__ import annotations

import sqlalchemy as sa

from tranrepl.subscriber.replication_tables import ARTICLES, OBJECTS, SNAPSHOTS, WATERMARKS
from tranrepl.subscriber.subscription import SubscriptionKey


def statements_left(key: SubscriptionKey) -> list[str]:
    """Return the statements, in order, which every database takes. The first one says which procedures are to be
    dropped: several publications may share one."""
    procedures = sa.select(OBJECTS.c.object_name).where(_is_mine(OBJECTS, key))
    deletes = [
        sa.delete(it).where(_is_mine(it, key), it.c.publisher_system == key.publisher_system)
        for it in (WATERMARKS, SNAPSHOTS, ARTICLES)
    ]
    return [
        f"{_text(procedures)};  -- DROP PROCEDURE each that no other publication calls",
        *(f"{_text(it)};" for it in (*deletes, sa.delete(OBJECTS).where(_is_mine(OBJECTS, key)))),
    ]


def _is_mine(table: sa.Table, key: SubscriptionKey) -> sa.ColumnElement[bool]:
    return sa.and_(table.c.publisher_db == key.publisher_db, table.c.publication == key.publication)


def _text(statement: sa.Select[tuple[str]] | sa.Delete) -> str:
    return " ".join(str(statement.compile(compile_kwargs={"literal_binds": True})).split())
