"""Rows that went with a partition at the Publisher, at a Subscriber where they are in one table: deleted by the limits
that the partition had, where values are compared alike in every database."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy import types

from tranrepl.model.article import RegisteredArticle
from tranrepl.model.partition_rows import Edge, PartitionLevel, PartitionLimits, PartitionRows
from tranrepl.model.schema_change import SchemaChange
from tranrepl.model.source_types import Family, source_type
from tranrepl.subscriber.base.database import SqlDatabase
from tranrepl.subscriber.base.statements import own_rows_deleted
from tranrepl.subscriber.base.target import SqlTarget

_INTEGERS = (Family.SMALLINT, Family.INTEGER, Family.BIGINT)
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
Condition = sa.ColumnElement[bool]


def _why_incomparable(family: Family | None, limits: PartitionLimits, values: Sequence[str]) -> str | None:
    """Return why values of a column are not those of these limits in every database, as in "has …"; None where they
    are."""
    del limits
    if family is Family.DATE:
        return None if all(map(_DATE.fullmatch, values)) else "has limits that other databases do not have"
    return None if family in _INTEGERS else "may be compared otherwise in another database"


def why_rows_unknown(
    change: SchemaChange,
    old: RegisteredArticle,
    why_incomparable: Callable[[Family | None, PartitionLimits, Sequence[str]], str | None] = _why_incomparable,
) -> str | None:
    """Return why it is not known which rows went with a partition; None where they are those within its limits."""
    families = {it.name: source_type(it.type_name).family for it in old.columns}
    for part in change.partitions:
        if part.removes_rows and part.rows is None:
            return f"rows went with partition {part.table}: which ones cannot be found by comparing values"
        for columns, limits in part.rows.limits() if part.removes_rows and part.rows is not None else ():
            for at, name in enumerate(columns):
                problem = why_incomparable(families.get(name), limits, _values(limits, at))
                if problem is not None:
                    return f"rows went with partition {part.table}: column {name} {problem}"
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


class RowConditions(ABC):
    """Conditions on the columns of one table in a statement."""

    @abstractmethod
    def compared(self, name: str, operator: str, value: str) -> Condition:
        """Return the comparison of a column with a value in the Publisher's text."""

    def of_level(self, level: PartitionLevel) -> Condition:
        if level.limits.is_default:
            return sa.not_(sa.or_(sa.false(), *(self._within(level.columns, it) for it in level.others)))
        return self._within(level.columns, level.limits)

    def _within(self, columns: Sequence[str], limits: PartitionLimits) -> Condition:
        if limits.listed is not None:
            (column,) = columns
            return sa.or_(sa.false(), *(self.compared(column, "=", it) for it in limits.listed))
        ends = []
        if limits.lower is not None:
            ends.append(self._beyond(columns, limits.lower, ">"))
        if limits.upper is not None:
            ends.append(self._beyond(columns, limits.upper, "<"))
        return sa.and_(sa.true(), *ends)

    def _beyond(self, columns: Sequence[str], edge: Edge, operator: str) -> Condition:
        """Return that a row's values come after, or before, those of an edge: the first column that differs says
        it."""
        pairs = list(zip(columns, edge.values, strict=False))
        equal = [self.compared(column, "=", value) for column, value in pairs]
        differs = [self.compared(column, operator, value) for column, value in pairs]
        ways = [sa.and_(*equal[:at], it) for at, it in enumerate(differs)]
        return sa.or_(*ways, sa.and_(*equal)) if edge.included else sa.or_(*ways)


@dataclass(frozen=True, slots=True)
class _Columns(RowConditions):
    """Values are bound as the destination's columns have them."""

    target: SqlTarget
    table: sa.TableClause

    def compared(self, name: str, operator: str, value: str) -> Condition:
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
