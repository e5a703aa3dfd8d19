"""The statements that compare a PostgreSQL table without moving its rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from psycopg import sql

from tranrepl.model.comparison import WHOLE, Checksum, Pages


@dataclass(frozen=True, slots=True)
class PostgresColumn:
    """`native` is the value for `hash_function`, `text` the form in which it is compared otherwise; `shown` is what
    people and statements know it by."""

    native: sql.Composable
    text: sql.Composable
    shown: sql.Composable
    hash_function: str = "hashtextextended"
    plain: bool = False
    """`text` has neither | nor ~."""


@dataclass(frozen=True, slots=True)
class PostgresSide:
    """In PostgreSQL, where a part of a table is a range of its pages."""

    table: sql.Composable
    columns: tuple[PostgresColumn, ...]
    key: tuple[int, ...]
    """Positions of the key's columns."""
    checksum_by: Checksum
    condition: sql.Composable | None = None

    def count(self, pages: Pages = WHOLE) -> str:
        return self._select(sql.SQL("count(*), 0::bigint"), _on(pages))

    def checksum(self, pages: Pages = WHOLE) -> str:
        return self._select(
            sql.SQL("count(*), coalesce(bit_xor({}), 0)").format(self._number(range(len(self.columns)))), _on(pages)
        )

    def buckets(self, buckets: int, pages: Pages = WHOLE) -> str:
        selected = sql.SQL("{} & {}, count(*), bit_xor({})").format(
            self._number(self.key), _bigint(buckets - 1), self._number(range(len(self.columns)))
        )
        return f"{self._select(selected, _on(pages))} GROUP BY 1"

    def numbers(self, buckets: int, chosen: Sequence[int]) -> str:
        key = self._number(self.key)
        found = sql.SQL("{} & {} = ANY ({})").format(key, _bigint(buckets - 1), _bigints(chosen))
        return self._select(sql.SQL("{}, {}").format(key, self._number(range(len(self.columns)))), [found])

    def rows(self, keys: Sequence[int]) -> str:
        key = self._number(self.key)
        shown = [self.columns[at].shown for at in self.key]
        digests = [sql.SQL("md5(convert_to({}, 'UTF8'))").format(column.text) for column in self.columns]
        found = sql.SQL("{} = ANY ({})").format(key, _bigints(keys))
        return self._select(sql.SQL(", ").join([key, *shown, *digests]), [found])

    def _select(self, selected: sql.Composable, conditions: Sequence[sql.Composable]) -> str:
        conditions = [*conditions, *([self.condition] if self.condition is not None else [])]
        where = sql.SQL(" AND ").join(sql.SQL("({})").format(it) for it in conditions)
        statement = sql.SQL("SELECT {} FROM {} WHERE {}").format(
            selected, self.table, where if conditions else sql.SQL("true")
        )
        return statement.as_string(None)

    def _number(self, positions: Sequence[int]) -> sql.Composed:
        if self.checksum_by is Checksum.NATIVE:
            # Each column has its own seed. The outer function keeps rows that exchange a value from cancelling out.
            values = sql.SQL(" # ").join(_hashed(self.columns[at], at + 1) for at in positions)
            return sql.SQL("hashint8extended({}, 0)").format(values)
        texts = sql.SQL(", ").join(_unambiguous(self.columns[at]) for at in positions)
        return sql.SQL("('x' || left(md5(concat_ws('|', {})), 16))::bit(64)::bigint").format(texts)


def _hashed(column: PostgresColumn, seed: int) -> sql.Composed:
    """Hash a column by its type's own function, which forms no record of the row as `hash_record_extended` does."""
    return sql.SQL("coalesce({}({}, {}), {})").format(
        sql.SQL(column.hash_function), column.native, sql.Literal(seed), sql.Literal(-seed)
    )


def _unambiguous(column: PostgresColumn) -> sql.Composed:
    text = column.text if column.plain else sql.SQL("md5(convert_to({}, 'UTF8'))").format(column.text)
    return sql.SQL("coalesce({}, '~')").format(text)


def _on(pages: Pages) -> list[sql.Composable]:
    bounds = ((">=", pages.first), ("<", pages.end))
    return [
        sql.SQL("ctid {} {}::tid").format(sql.SQL(sign), sql.Literal(f"({page},0)"))
        for sign, page in bounds
        if page is not None
    ]


def _bigint(number: int) -> sql.Composed:
    return sql.SQL("{}::bigint").format(sql.Literal(number))


def _bigints(numbers: Sequence[int]) -> sql.Composed:
    return sql.SQL("{}::bigint[]").format(sql.Literal("{" + ",".join(map(str, numbers)) + "}"))
