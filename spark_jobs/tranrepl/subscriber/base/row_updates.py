"""Values that rows get with a schema change, as a statement."""

from __future__ import annotations

import sqlalchemy as sa

from tranrepl.subscriber.base.column_changes import RowUpdate
from tranrepl.subscriber.base.target import SqlTarget


def update_statement(at: SqlTarget, update: RowUpdate) -> sa.Update | None:
    """Return the statement; None of a column that is not published any more."""
    converts = next((it.conversion for it in at.columns if it.name == update.column), None)
    if converts is None:
        return None
    table = at.table()
    column = table.c[update.column]
    value = None if update.value is None else converts.convert(update.value)
    bound = sa.bindparam("tranrepl_value", value, converts.bind)
    return sa.update(table).values({column: bound, **at.kept(table, [update.column])})
