"""Rows that went with a partition at the Publisher, at a Subscriber where they are in one table: deleted by the limits
that the partition had, where values are compared alike in every database."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy import types

from tranrepl.model.article import RegisteredArticle
from tranrepl.model.partition_rows import Edge, PartitionLevel, PartitionLimits, PartitionRows
from tranrepl.model.schema_change import PartitionChange, SchemaChange
from tranrepl.model.source_types import Family, source_type
from tranrepl.subscriber.base.database import SqlDatabase
from tranrepl.subscriber.base.statements import own_rows_deleted
from tranrepl.subscriber.base.target import SqlTarget

_INTEGERS = (Family.SMALLINT, Family.INTEGER, Family.BIGINT)
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_Condition = sa.ColumnElement[bool]


def why_rows_unknown(change: SchemaChange, old: RegisteredArticle) -> str | None:
    """Return why it is not known which rows went with a partition; None where they are those within its limits."""
    for it in change.partitions:
        if it.removes_rows and (problem := _problem(it, old)) is not None:
            return f"rows went with partition {it.table}: {problem}"
    return None


def _problem(change: PartitionChange, article: RegisteredArticle) -> str | None:
    if change.rows is None:
        return "which ones cannot be found by comparing values"
    families = {it.name: source_type(it.type_name).family for it in article.columns}
    for columns, limits in change.rows.limits():
        for at, name in enumerate(columns):
            if families.get(name) is Family.DATE:
                if not all(map(_DATE.fullmatch, _values(limits, at))):
                    return f"column {name} has limits that other databases do not have"
            elif families.get(name) not in _INTEGERS:
                return f"column {name} may be compared otherwise in another database"
    return None


def _values(limits: PartitionLimits, at: int) -> list[str]:
    """Return the values of one column of a key among the limits."""
    edges = [it.values[at] for it in (limits.lower, limits.upper) if it is not None and at < len(it.values)]
    return [*edges, *(limits.listed or ())]


def delete_rows(database: SqlDatabase, target: SqlTarget, rows: PartitionRows) -> sa.Delete:
    """Return the statement that deletes these rows of the article."""
    table = target.table()
    columns = _Columns(target, table)
    return own_rows_deleted(database, target, table).where(sa.true(), *map(columns.of_level, rows.levels))


@dataclass(frozen=True, slots=True)
class _Columns:
    """Conditions on the columns of one table in a statement."""

    target: SqlTarget
    table: sa.TableClause

    def of_level(self, level: PartitionLevel) -> _Condition:
        if level.limits.is_default:
            return sa.not_(sa.or_(sa.false(), *(self._within(level.columns, it) for it in level.others)))
        return self._within(level.columns, level.limits)

    def _within(self, columns: Sequence[str], limits: PartitionLimits) -> _Condition:
        if limits.listed is not None:
            (column,) = columns
            return sa.or_(sa.false(), *(self._compared(column, "=", it) for it in limits.listed))
        ends = []
        if limits.lower is not None:
            ends.append(self._beyond(columns, limits.lower, ">"))
        if limits.upper is not None:
            ends.append(self._beyond(columns, limits.upper, "<"))
        return sa.and_(sa.true(), *ends)

    def _beyond(self, columns: Sequence[str], edge: Edge, operator: str) -> _Condition:
        """Return that a row's values come after, or before, those of an edge: the first column that differs says
        it."""
        pairs = list(zip(columns, edge.values, strict=False))
        equal = [self._compared(column, "=", value) for column, value in pairs]
        differs = [self._compared(column, operator, value) for column, value in pairs]
        ways = [sa.and_(*equal[:at], it) for at, it in enumerate(differs)]
        return sa.or_(*ways, sa.and_(*equal)) if edge.included else sa.or_(*ways)

    def _compared(self, name: str, operator: str, value: str) -> _Condition:
        found = next(it for it in self.target.columns if it.name == name)
        column: sa.ColumnElement[object] = self.table.c[name]
        if self._is_integer(name) and not isinstance(found.type.type, types.Integer | types.Numeric):
            # The destination keeps the number as text, which is in another order.
            number = sa.cast(column, types.BigInteger())
            return number.bool_op(operator)(sa.bindparam(None, int(value), types.BigInteger()))
        return column.bool_op(operator)(sa.bindparam(None, found.conversion.convert(value), found.conversion.bind))

    def _is_integer(self, name: str) -> bool:
        declared = next(it.type_name for it in self.target.article.columns if it.name == name)
        return source_type(declared).family in _INTEGERS
