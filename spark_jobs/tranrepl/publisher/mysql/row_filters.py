"""Row filters of a MariaDB Publisher: what their conditions may say, and for which rows of the log they are true.

The Publisher itself evaluates a filter, on the values that its log gave, in columns of the table's own types and
collations. A condition is taken apart and written again: nothing but what is allowed here becomes SQL.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import pyarrow as pa
import pymysql
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from tranrepl.errors import DataError
from tranrepl.model.arrays import Bools, Ints
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.names import TableName
from tranrepl.mysql.session import Session, error_number, error_text, quoted, translated_errors
from tranrepl.publisher.mysql.column_types import DeclaredType, declared

_ALLOWED = (
    *(exp.And, exp.Or, exp.Not, exp.Paren, exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ),
    *(exp.Is, exp.Null, exp.Boolean, exp.In, exp.Between, exp.Like, exp.Coalesce, exp.Literal, exp.Column),
    *(exp.Identifier, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.Neg),
)
_WORDS = "AND, OR, NOT, comparisons, IN, BETWEEN, LIKE, IS NULL, COALESCE and arithmetic over columns and constants"
_COMPARISONS = (exp.EQ, exp.NEQ, exp.NullSafeEQ, exp.In, exp.Is)
_TEXTS = ("char", "varchar", "tinytext", "text", "mediumtext", "longtext")
_NUMBERS = ("tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "float", "double", "year")
_MOMENTS = ("date", "time", "datetime", "timestamp")
_ENUM = "enum"
_OUT_OF_RANGE = 1690
_AT_ONCE = 10_000
_MOST_OF_PACKET = 3
"""Values may take one part in so many of the longest statement: a quote in it is written twice."""


@dataclass(frozen=True, slots=True)
class Condition:
    sql: str
    columns: tuple[str, ...]
    """The names of the columns that it reads, as the catalogue spells them."""


@cache
def _parsed(text: str) -> exp.Expr:
    try:
        trees = sqlglot.parse(text, dialect="mysql")
    except SqlglotError as error:
        raise ValueError(f"not a condition in SQL: {str(error).splitlines()[0]}") from None
    tree = trees[0] if len(trees) == 1 else None
    if tree is None:
        raise ValueError("allowed: one condition, as in price > 1 AND state = 'new'")
    for it in tree.walk():
        if not isinstance(it, _ALLOWED) or (isinstance(it, exp.In) and not it.expressions):
            raise ValueError(f"{it.sql('mysql')} is not understood; allowed: {_WORDS}")
        if isinstance(it, exp.Literal) and ("\\" in it.this or not it.this.isprintable()):
            raise ValueError("a constant may hold neither a backslash nor a control character")
    return tree


def condition(text: str, table: TableName, spelled: Mapping[str, str]) -> Condition:
    """Return a filter as a condition on columns of the table. `spelled`: types as the catalogue spells them, by column.
    Raises ValueError where it is none."""
    tree = _parsed(text).copy()
    names = {it.lower(): it for it in spelled}
    columns: dict[str, None] = {}
    for it in list(tree.find_all(exp.Column)):
        name = names.get(it.name.lower())
        if name is None or it.args.get("db") or it.table not in ("", table.table):
            raise ValueError(f"{it.sql('mysql')}: allowed: columns of {table}: {', '.join(spelled)}")
        _require_type(it, name, declared(spelled[name]))
        columns[name] = None
        it.set("table", None)
        it.set("this", exp.to_identifier(name, quoted=True))
    if not columns:
        raise ValueError("it reads no column")
    tree = tree.transform(_without_zero_dates)
    return Condition(tree.sql("mysql", comments=False, normalize_functions=False), tuple(columns))


def _without_zero_dates(of: exp.Expr) -> exp.Expr:
    """Return `IS NULL` as `<=> NULL`: in a WHERE, the one is true for a date of zeros in a column that has no NULL."""
    if isinstance(of, exp.Is) and isinstance(of.expression, exp.Null):
        return exp.Paren(this=exp.NullSafeEQ(this=exp.Paren(this=of.this), expression=of.expression))
    return of


def _require_type(column: exp.Column, name: str, of: DeclaredType) -> None:
    if of.name == _ENUM:
        beside = column.parent
        constants = [] if beside is None else [it for it in beside.args.values() if it is not column]
        listed = [it for some in constants for it in (some if isinstance(some, list) else [some])]
        if isinstance(beside, _COMPARISONS) and all(
            it is None or isinstance(it, exp.Null) or (isinstance(it, exp.Literal) and it.is_string) for it in listed
        ):
            return
        raise ValueError(f"{name} is an enum: allowed: it is equal to a text, or one of some")
    if "zerofill" in of.spelling and isinstance(column.parent, (exp.Like, exp.Coalesce)):
        raise ValueError(f"{name} has zeros before its number in a table alone (ZEROFILL): allowed: it is a number")
    if of.name not in (*_TEXTS, *_NUMBERS, *_MOMENTS):
        raise ValueError(f"{name} is of type {of.spelling}: a filter reads numbers, texts, dates, times and enums")


@dataclass(frozen=True, slots=True)
class _Filter:
    condition: Condition
    columns: str
    """Columns of a table that is made of values."""

    @classmethod
    def of(cls, session: Session, text: str, table: TableName) -> _Filter:
        """Look at the table's columns. Raises ValueError where it is no condition on them."""
        rows = session.execute(
            "SELECT column_name, column_type, character_set_name, collation_name FROM information_schema.columns "
            "WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position",
            [table.schema, table.table],
        )
        if not rows:
            raise ValueError(f"there is no table {table} any more")
        found = condition(text, table, {name: spelling for name, spelling, *_ in rows})
        types = {name: _type(declared(spelling), *of) for name, spelling, *of in rows}
        listed = [f"{quoted(it)} {types[it]} PATH '$[{at}]' ERROR ON ERROR" for at, it in enumerate(found.columns)]
        return cls(found, ", ".join(("tranrepl_row FOR ORDINALITY", *listed)))

    def query(self) -> str:
        """Return the statement that selects the numbers, from 1, of the rows for which it is true, as one text, and how
        many these are; the rows' values are bound, in JSON."""
        columns, chosen = (it.replace("%", "%%") for it in (self.columns, self.condition.sql))
        made = f"JSON_TABLE(%s, '$[*]' COLUMNS ({columns})) AS tranrepl_rows"
        return f"SELECT count(*), group_concat(tranrepl_row) FROM {made} WHERE {chosen}"  # noqa: S608 - quoted


def _type(of: DeclaredType, charset: str | None, collation: str | None) -> str:
    """Return the type that a value has among others that are not in a table."""
    spelling = of.spelling
    if of.name == "timestamp":
        # Times are UTC in our sessions, and a timestamp is never NULL by itself.
        spelling = f"datetime({of.first or 0})"
    if of.name == _ENUM:
        spelling = "varchar(255)"
    return spelling if collation is None else f"{spelling} CHARACTER SET {charset} COLLATE {collation}"


def filter_problem(session: Session, text: str, table: TableName, published: Collection[str]) -> str | None:
    """Return why a row filter cannot be evaluated; None where it can."""
    try:
        found = _Filter.of(session, text, table)
        session.execute(found.query(), ["[]"])
    except ValueError as error:
        return str(error)
    except pymysql.err.Error as error:
        return error_text(error)
    left_out = [it for it in found.condition.columns if it not in published]
    return f"it reads column {left_out[0]}, which the article does not publish" if left_out else None


class MySqlRowFilters:
    """Evaluates filters of any of these articles, in a session."""

    def __init__(self, session: Session, where: str, articles: Sequence[RegisteredArticle]) -> None:
        self._session = session
        self._where = where
        with translated_errors(where):
            session.execute(f"SET SESSION group_concat_max_len = {10 * _AT_ONCE}")
            ((most,),) = session.execute("SELECT @@max_allowed_packet")
            self._filters = {it.article_id: self._filter(it) for it in articles if it.filter is not None}
        self._most_bytes = int(most) // _MOST_OF_PACKET

    def _filter(self, article: RegisteredArticle) -> _Filter:
        try:
            return _Filter.of(self._session, article.filter or "", article.source)
        except ValueError as error:
            raise self._error(article, str(error)) from error

    def columns(self, article: RegisteredArticle) -> tuple[int, ...]:
        names = self._filters[article.article_id].condition.columns
        places = {column.name: at for at, column in enumerate(article.columns)}
        return tuple(places[it] for it in names)

    def matches(self, article: RegisteredArticle, rows: pa.StringArray, columns: Sequence[pa.StringArray]) -> Bools:
        encoded = rows.dictionary_encode()
        codes = encoded.indices.to_numpy()
        _, first = np.unique(codes, return_index=True)
        values = list(zip(*(it.take(pa.array(first)).to_pylist() for it in columns), strict=True))
        answers = np.zeros(len(values), dtype=np.bool_)
        for at in range(0, len(values), _AT_ONCE):
            answers[at + self._true(article, values[at : at + _AT_ONCE])] = True
        found: Bools = answers[codes]
        return found

    def _true(self, article: RegisteredArticle, values: Sequence[tuple[str | None, ...]]) -> Ints:
        """Return the places of the rows for which the filter is true."""
        text = json.dumps(values, ensure_ascii=False)
        if len(text.encode()) > self._most_bytes:
            if len(values) == 1:
                raise self._error(article, "the values that it reads of a row are longer than max_allowed_packet")
            half = len(values) // 2
            return np.concatenate([self._true(article, values[:half]), half + self._true(article, values[half:])])
        try:
            ((count, numbers),) = self._session.execute(self._filters[article.article_id].query(), [text])
        except pymysql.err.Error as error:
            is_data = isinstance(error, pymysql.err.DataError | pymysql.err.ProgrammingError)
            if is_data or error_number(error) == _OUT_OF_RANGE:
                raise self._error(article, error_text(error)) from error
            with translated_errors(self._where):
                raise error
        places = np.array((numbers or "").split(",") if count else [], dtype=np.int64) - 1
        if len(places) != count:
            raise self._error(article, "the server has cut its answer short")
        return places

    def _error(self, article: RegisteredArticle, why: str) -> DataError:
        return DataError(
            f"{self._where}: the row filter of article {article.source} cannot be evaluated: {why}",
            remedy="write the article's `filter` so that it has an answer for each row, and run `tranrepl setup FILE`",
            article=str(article.source),
        )
