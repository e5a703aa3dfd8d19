"""Row filters: what their conditions say, and for which rows they are true.

The Publisher itself evaluates a filter, on the values that its log gave: its own types, collations and functions, and
so the very predicate that a snapshot or a validation reads the table with.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import sqlglot
from psycopg import RawCursor, sql
from sqlglot import exp
from sqlglot.errors import SqlglotError

from tranrepl.errors import DataError, ErrorDetails
from tranrepl.model.arrays import Bools
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.source_sql import read_condition
from tranrepl.model.table_definition import labels_follow
from tranrepl.postgres.composed_sql import condition_sql, type_sql
from tranrepl.postgres.session import Session, translated_errors
from tranrepl.publisher.log_range import UnclearRowsError

_REMEMBERED = 10_000
_REMEMBERED_BYTES = 8 * 1024 * 1024
_ASKED_BYTES = 64 * 1024 * 1024
"""Bytes of values in one query: as text of an array they may be twice as long, and a server takes 1 GB."""
_LABELS = """
SELECT enumtypid::bigint, array_agg(enumlabel::text ORDER BY enumsortorder)
  FROM pg_catalog.pg_enum WHERE enumtypid = ANY (%s::oid[]) GROUP BY enumtypid
"""
_NO_LABEL = "22P02"
"""What the server says of a value that is no label of an enumerated type."""
_RENAMED = "a label of a type that its row filter reads was renamed"
_REMEDY = (
    "write the article's `filter` so that it has an answer for each row, and run `tranrepl setup FILE`: what is not "
    "read yet is read with it"
)
_OF_OTHER_ROWS = (exp.Query, exp.AggFunc, exp.Window)


def filter_columns(text: str, table: str) -> tuple[str, ...]:
    """Return the columns that a row filter, written in PostgreSQL's SQL, reads, as the catalogue spells them.

    Raises ValueError where it is not one condition over columns of `table`.
    """
    tree = _parse(text)
    refused = next(tree.find_all(*_OF_OTHER_ROWS, exp.Placeholder, exp.Parameter), None)
    if refused is not None:
        raise ValueError(f"{refused.sql('postgres')}: a filter looks at the values of one row only")
    return tuple(dict.fromkeys(_column_name(it, table) for it in tree.find_all(exp.Column)))


def filter_parts(text: str) -> list[str]:
    """Return the expressions that a row filter is made of: each before those that it is a part of, itself at the
    end."""
    parts = [
        it.sql("postgres", normalize_functions=False) for it in _parse(text).dfs() if isinstance(it, exp.Condition)
    ]
    return parts[::-1]


@cache
def _parse(text: str) -> exp.Condition:
    try:
        trees = sqlglot.parse(text, dialect="postgres")
    except SqlglotError as error:
        raise ValueError(f"not a condition in SQL: {_first_error(error)}") from None
    tree = trees[0] if len(trees) == 1 else None
    if tree is None or not isinstance(tree, exp.Condition):
        raise ValueError("allowed: one condition, as in credit_rating > 1 AND active")
    read_condition(text)
    return tree


def _first_error(error: SqlglotError) -> str:
    return str(error).splitlines()[0]


def _column_name(column: exp.Column, table: str) -> str:
    qualifier = column.args.get("table")
    if column.args.get("db") or (qualifier is not None and folded_name(qualifier) != table):
        raise ValueError(f"{column.sql('postgres')}: allowed: columns of {table}")
    return folded_name(column.this)


def folded_name(identifier: exp.Identifier) -> str:
    """Fold a name as PostgreSQL does: without quotes, to lower case."""
    return str(identifier.this) if identifier.args.get("quoted") else str(identifier.this).lower()


def filter_positions(article: RegisteredArticle) -> tuple[int, ...]:
    """Return positions of the published columns that the article's filter reads."""
    if article.filter is None:
        return ()
    names = filter_columns(article.filter, article.source.table)
    return tuple(at for at, column in enumerate(article.columns) if column.name in names)


def _labels_read(article: RegisteredArticle) -> dict[int, tuple[str, ...]]:
    """Return the labels of the enumerated types that columns of the article's filter are made of, by the types'
    numbers."""
    known = article.source_definition.by_ordinal
    columns = [known.get(article.columns[at].ordinal) for at in filter_positions(article)]
    types = [of for it in columns if it is not None for of in it.types or ()]
    return {it.oid: it.labels for it in types if it.labels is not None}


@dataclass(slots=True)
class _Remembered:
    rows: pa.StringArray = field(default_factory=lambda: pa.array([], pa.string()))
    answers: Bools = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))


@dataclass(slots=True)
class PostgresRowFilters:
    """Evaluates filters of any article. What was evaluated once is remembered: columns that filters look at mostly
    have few values."""

    session: Session
    collations: Mapping[int, Mapping[str, sql.Identifier]]
    """Collations by article_id and column, where they are not those of the columns' types."""
    captured: bool = True
    """Labels that are renamed are captured in the log, so that a value has the labels of its article's definition."""
    _remembered: dict[int, _Remembered] = field(default_factory=dict)

    @classmethod
    def of(
        cls, session: Session, articles: Iterable[RegisteredArticle], *, captured: bool = True
    ) -> PostgresRowFilters:
        """Return the articles' row filters, to be evaluated in this session, at the Publisher."""
        by_table = {it.source_object_id: it.article_id for it in articles if it.filter is not None}
        collations: dict[int, dict[str, sql.Identifier]] = defaultdict(dict)
        with translated_errors(f"Publisher {session.info.dbname}"):
            for table, name, schema, collation in session.execute(_OTHER_COLLATIONS, [list(by_table)]):
                collations[by_table[table]][name] = sql.Identifier(schema, collation)
        return cls(session, collations, captured)

    def columns(self, article: RegisteredArticle) -> tuple[int, ...]:
        """Return the positions of the published columns that the article's filter looks at."""
        return filter_positions(article)

    def matches(self, article: RegisteredArticle, rows: pa.StringArray, columns: Sequence[pa.StringArray]) -> Bools:
        """Return for which rows the article's filter is true, shape (rows,); NULL is not.

        `columns` hold the values at `filter_positions(article)`; `rows` the same, one string (with no two alike for
        different values) a row. Raises DataError where the condition itself fails, as a division by zero does.
        """
        encoded = rows.dictionary_encode()
        distinct = encoded.dictionary
        known = self._remembered.get(article.article_id, _Remembered())
        at = pc.index_in(distinct, value_set=known.rows)
        new = np.flatnonzero(at.is_null().to_numpy(zero_copy_only=False))
        answers = np.zeros(len(distinct), dtype=np.bool_)
        old = at.is_valid().to_numpy(zero_copy_only=False)
        answers[old] = known.answers[at.drop_null().to_numpy()]
        if len(new):
            first = pc.index_in(distinct.take(pa.array(new)), value_set=rows)
            parts = [self._answers(article, part) for part in _parts([column.take(first) for column in columns])]
            answered = [it for it in parts if it is not None]
            if len(answered) < len(parts):
                raise UnclearRowsError(_RENAMED, np.isin(encoded.indices.to_numpy(), new))
            answers[new] = np.concatenate(answered)
            rows = distinct.take(pa.array(new))
            fits = known.rows.nbytes + rows.nbytes <= _REMEMBERED_BYTES
            if fits and len(known.rows) + len(new) <= _REMEMBERED:
                known = _Remembered(pa.concat_arrays([known.rows, rows]), np.concatenate([known.answers, answers[new]]))
                self._remembered[article.article_id] = known
        matching: Bools = answers[encoded.indices.to_numpy()]
        return matching

    def _answers(self, article: RegisteredArticle, columns: Sequence[pa.StringArray]) -> Bools | None:
        """Return the answers; None where the values may have other labels than the catalogue."""
        labels = _labels_read(article)
        if not labels:
            return self._evaluate(article, columns)
        try:
            answers = self._evaluate(article, columns)
        except DataError as error:
            if error.report.database_code == _NO_LABEL:
                return None
            raise
        if self.captured:
            with translated_errors(self._where(article)):
                now: dict[int, list[str]] = dict(self.session.execute(_LABELS, [list(labels)]).fetchall())
            if not all(labels_follow(it, now.get(number, it)) for number, it in labels.items()):
                return None
        return answers

    def _where(self, article: RegisteredArticle) -> str:
        return f"Publisher {self.session.info.dbname}, article {article.source}: filter"

    def _evaluate(self, article: RegisteredArticle, columns: Sequence[pa.StringArray]) -> Bools:
        try:
            with translated_errors(self._where(article)):
                # Neither the condition nor a name is a place for %s.
                values = [array_text(column) for column in columns]
                query = filter_query(article, article.filter or "", self.collations.get(article.article_id, {}))
                row = RawCursor(self.session).execute(query, values).fetchone()
        except DataError as error:
            error.add(ErrorDetails(article=str(article.source), remedy=_REMEDY))
            raise
        answer = (row[0] if row else None) or ""
        return np.equal(np.frombuffer(answer.encode(), dtype=np.uint8), ord("1"))


def _parts(columns: Sequence[pa.StringArray]) -> Iterator[list[pa.StringArray]]:
    """Yield the same rows, so many together as one query takes."""
    if not columns:
        yield []
        return
    weights = sum(pc.fill_null(pc.binary_length(it), 0).to_numpy().astype(np.int64) for it in columns)
    part = np.cumsum(weights) // _ASKED_BYTES
    cuts = [0, *(np.flatnonzero(np.diff(part)) + 1).tolist(), len(columns[0])]
    for start, end in pairwise(cuts):
        yield [column.slice(start, end - start) for column in columns]


_OTHER_COLLATIONS = """
SELECT a.attrelid::bigint, a.attname, n.nspname, c.collname
  FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_collation c ON c.oid = a.attcollation
  JOIN pg_catalog.pg_namespace n ON n.oid = c.collnamespace JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
 WHERE a.attrelid = ANY (%s::oid[]) AND a.attnum > 0 AND a.attcollation <> t.typcollation
"""


def filter_query(article: RegisteredArticle, text: str, collations: Mapping[str, sql.Identifier]) -> sql.Composed:
    """Return a condition over the columns that the article's filter reads, which carry the table's names, types and
    collations."""
    condition = condition_sql(text)
    columns = [article.columns[at] for at in filter_positions(article)]
    if not columns:
        return sql.SQL("SELECT CASE WHEN ({}) THEN '1' ELSE '0' END").format(condition)
    arrays = sql.SQL(", ").join(sql.SQL("${}::text[]").format(at + 1) for at in range(len(columns)))
    names = sql.SQL(", ").join(sql.Identifier(f"tranrepl_{at}") for at in range(len(columns)))
    typed = sql.SQL(", ").join(
        sql.SQL("{}::{}{} AS {}").format(
            sql.Identifier(f"tranrepl_{at}"),
            type_sql(column.type_name),
            sql.SQL(" COLLATE {}").format(collations[column.name]) if column.name in collations else sql.SQL(""),
            sql.Identifier(column.name),
        )
        for at, column in enumerate(columns)
    )
    return sql.SQL(
        "SELECT string_agg(CASE WHEN ({condition}) THEN '1' ELSE '0' END, '' ORDER BY tranrepl_row) "
        "FROM unnest({arrays}) WITH ORDINALITY AS tranrepl_values({names}, tranrepl_row), "
        "LATERAL (SELECT {typed}) AS {table}"
    ).format(
        condition=condition,
        arrays=arrays,
        names=names,
        typed=typed,
        table=sql.Identifier(article.source.table),
    )


def array_text(values: pa.StringArray) -> str:
    """Write values as the text form of a PostgreSQL array."""
    escaped = pc.replace_substring(pc.replace_substring(values, "\\", "\\\\"), '"', '\\"')
    quoted = pc.fill_null(pc.binary_join_element_wise('"', escaped, '"', ""), "NULL")
    listed = pa.ListArray.from_arrays(pa.array([0, len(quoted)], pa.int32()), quoted)
    return "{" + str(pc.binary_join(listed, ",")[0].as_py()) + "}"
