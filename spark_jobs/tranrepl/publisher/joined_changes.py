"""Schema changes of one table without a row of it between them: one change, where Subscribers may do both at once."""

from __future__ import annotations

from tranrepl.model.schema_change import ColumnAction, LabelAction, SchemaChange
from tranrepl.publisher.schema_decision import Decision

_TYPED = (ColumnAction.ADD, ColumnAction.RETYPE)


def may_be_one(earlier: SchemaChange, decision: Decision) -> bool:
    """Return whether what was decided may go with an earlier change: rows of a partition go by the names that the
    columns have by then, and a column that is added has the type of before: that is renamed first."""
    if (earlier.partitions and decision.columns) or (earlier.columns and decision.partitions):
        return False
    renamed = any(it.action is not LabelAction.ADD for it in decision.labels)
    return not (renamed and any(it.action in _TYPED for it in earlier.columns))


def together(earlier: SchemaChange, decision: Decision) -> SchemaChange:
    """Return a change with what followed it at once."""
    return earlier.model_copy(
        update={
            "columns": (*earlier.columns, *decision.columns),
            "labels": (*earlier.labels, *decision.labels),
            "partitions": (*earlier.partitions, *decision.partitions),
            "rows_unknown": earlier.rows_unknown or decision.rows_unknown,
            "notes": tuple(dict.fromkeys([*earlier.notes, *decision.notes])),
        }
    )
