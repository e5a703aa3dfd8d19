"""AUTO_INCREMENT columns of a MariaDB or MySQL server: which numbers each gives, and which is next."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

from tranrepl.model.names import TableName
from tranrepl.model.sequences import ColumnSequence, SequenceDefinition, SequenceState

_BITS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
_COUNTING = (
    "SELECT t.table_schema, t.table_name, c.column_name, c.column_type, COALESCE(t.auto_increment, 1) "
    "FROM information_schema.tables t JOIN information_schema.columns c "
    "ON c.table_schema = t.table_schema AND c.table_name = t.table_name "
    "WHERE LOCATE('auto_increment', c.extra) > 0 AND (t.table_schema, t.table_name) IN ({})"
)


@dataclass(frozen=True, slots=True)
class CountingColumn:
    """The column of a table that numbers its rows."""

    name: str
    numbers: SequenceDefinition
    next_number: int

    def sequence(self, table: TableName) -> ColumnSequence:
        """Return the same as a sequence, which has its table's name."""
        return ColumnSequence(table, self.numbers, SequenceState(self.next_number, is_called=False))


def counting_columns(
    execute: Callable[[str, tuple[str, ...]], Iterable[Any]], tables: Collection[TableName]
) -> dict[TableName, CountingColumn]:
    """Return by table the column that numbers its rows by whole numbers, where it has one. `execute` returns the rows
    of a query whose values are bound by `%s`."""
    if not tables:
        return {}
    query = _COUNTING.format(", ".join("(%s, %s)" for _ in tables))
    values = tuple(part for it in tables for part in (it.schema, it.table))
    return {
        TableName(schema, table): CountingColumn(column, numbers, int(following))
        for schema, table, column, spelling, following in execute(query, values)
        if (numbers := numbers_of(spelling)) is not None
    }


def numbers_of(column_type: str) -> SequenceDefinition | None:
    """Return the numbers that an AUTO_INCREMENT column of this type gives; None where it is no whole number."""
    bits = _BITS.get(column_type.partition("(")[0].partition(" ")[0])
    if bits is None:
        return None
    largest = 2 ** (bits if "unsigned" in column_type else bits - 1) - 1
    return SequenceDefinition(start=1, increment=1, minimum=1, maximum=largest, cycles=False)
