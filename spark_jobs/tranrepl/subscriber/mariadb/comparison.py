"""A MariaDB or MySQL Subscriber's end of a comparison."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import sqlalchemy as sa
from pymysql.converters import escape_item

from tranrepl.model.comparison import Form
from tranrepl.subscriber.base.comparison import ComparisonWays
from tranrepl.subscriber.base.target import SqlTarget
from tranrepl.subscriber.mariadb.comparison_statements import MariaDbSide, compared_column, form_of
from tranrepl.subscriber.mariadb.sql_text import qualified_name, quoted_name

_LOCK_SECONDS = 10
"""Behind a statement that alters a table and waits for another of these sessions, one would wait for a day."""


def _hold(session: sa.Connection) -> None:
    session.exec_driver_sql(f"SET lock_wait_timeout = {_LOCK_SECONDS}")
    session.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    session.exec_driver_sql("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")


def _side(found: SqlTarget, forms: Sequence[Form]) -> MariaDbSide:
    columns = tuple(
        compared_column(column, form, quoted_name(column.name))
        for column, form in zip(found.columns, forms, strict=True)
    )
    return MariaDbSide(qualified_name(found.schema, found.name), columns, found.article.key_positions)


WAYS = ComparisonWays(
    hold=_hold,
    form=lambda family, column: form_of(family, column.type),
    side=_side,
    literal=partial(escape_item, charset="utf8mb4"),
    begin="START TRANSACTION",
)
