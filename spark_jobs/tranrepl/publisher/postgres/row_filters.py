"""Row filters: what their conditions say, and for which rows they are true.

The Publisher itself evaluates a filter, on the values that its log gave: its own types, collations and functions, and
so the very predicate that a snapshot or a validation reads the table with.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import sqlglot
from psycopg import RawCursor, sql
from sqlglot import exp
from sqlglot.errors import SqlglotError

from tranrepl.errors import DataError, ErrorDetails, TransientError
from tranrepl.model.article import RegisteredArticle
from tranrepl.postgres.session import Session, translated_errors
from tranrepl.publisher.label_names import LabelNames, translated
from tranrepl.publisher.log_range import UnclearRowsError
from tranrepl.publisher.postgres.filter_labels import (
    PresentLabels,
    UnknownLabelsError,
    defined_columns,
    label_names,
    present_labels,
    types_of,
    with_present_names,
)

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]

_REMEMBERED = 10_000
_REMEMBERED_BYTES = 8 * 1024 * 1024
_ASKED_BYTES = 64 * 1024 * 1024
"""Bytes of values in one query: as text of an array they may be twice as long, and a server takes 1 GB."""
_MORE_RENAMES = 10
"""How often labels may be renamed while one query is asked."""
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
    announced: bool = True
    """Labels that are renamed are announced in the log, so that a value's names are those of its article."""
    _remembered: dict[int, _Remembered] = field(default_factory=dict)

    @classmethod
    def of(
        cls, session: Session, articles: Iterable[RegisteredArticle], *, announced: bool = True
    ) -> PostgresRowFilters:
        """Return the articles' row filters, to be evaluated in this session, at the Publisher."""
        by_table = {it.source_object_id: it.article_id for it in articles if it.filter is not None}
        collations: dict[int, dict[str, sql.Identifier]] = defaultdict(dict)
        with translated_errors(f"Publisher {session.info.dbname}"):
            for table, name, schema, collation in session.execute(_OTHER_COLLATIONS, [list(by_table)]):
                collations[by_table[table]][name] = sql.Identifier(schema, collation)
        return cls(session, collations, announced)

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
            _refuse_unclear(parts, new, encoded)
            answers[new] = np.concatenate([it.matching for it in parts])
            rows = distinct.take(pa.array(new))
            fits = known.rows.nbytes + rows.nbytes <= _REMEMBERED_BYTES
            if fits and len(known.rows) + len(new) <= _REMEMBERED:
                known = _Remembered(pa.concat_arrays([known.rows, rows]), np.concatenate([known.answers, answers[new]]))
                self._remembered[article.article_id] = known
        matching: Bools = answers[encoded.indices.to_numpy()]
        return matching

    def _answers(self, article: RegisteredArticle, columns: Sequence[pa.StringArray]) -> _Answers:
        """Return the answers for rows whose labels have the names of the article's definition."""
        positions = filter_positions(article)
        known = types_of(defined_columns(article, positions))
        if not known:
            return _Answers(self._evaluate(article, columns))
        for _ in range(_MORE_RENAMES):
            present = self._present_labels(article, known)
            try:
                answers = self._answers_by(article, columns, known, present)
            except DataError:
                if self._present_labels(article, known) == present:
                    raise
                continue
            if self._present_labels(article, known) == present:
                return answers
        raise TransientError(
            f"Publisher {self.session.info.dbname}, article {article.source}: filter: labels of its columns' types are "
            "renamed all the while",
            article=str(article.source),
        )

    def _present_labels(
        self, article: RegisteredArticle, types: Mapping[int, tuple[str, ...]]
    ) -> dict[int, PresentLabels]:
        with translated_errors(self._where(article)):
            return present_labels(self.session, types)

    def _answers_by(
        self,
        article: RegisteredArticle,
        columns: Sequence[pa.StringArray],
        known: Mapping[int, tuple[str, ...]],
        present: Mapping[int, PresentLabels],
    ) -> _Answers:
        if all(it not in present or present[it].labels == labels for it, labels in known.items()):
            return _Answers(self._evaluate(article, columns))
        try:
            names = {it: present[it].names_of(labels) for it, labels in known.items() if it in present}
            condition = with_present_names(self.session, article.filter or "", self._asking(article), names, present)
        except UnknownLabelsError:
            none = np.zeros(len(columns[0]), dtype=np.bool_)
            return _Answers(none, ~none, "labels of a type that its row filter reads were renamed")
        defined = defined_columns(article, filter_positions(article))
        renamed = [label_names(it, at, names, announced=self.announced) for at, it in enumerate(defined)]
        values, unclear = _with_present_labels(columns, [it for it in renamed if it is not None])
        clear = np.flatnonzero(~unclear)
        matching = np.zeros(len(unclear), dtype=np.bool_)
        if len(clear):
            asked = article.model_copy(update={"filter": condition})
            matching[clear] = self._evaluate(asked, [it.take(pa.array(clear)) for it in values])
        names_of_columns = ", ".join(defined[it.at].name for it in renamed if it is not None)
        return _Answers(matching, unclear, f"a label inside of values of {names_of_columns} was renamed")

    def _asking(self, article: RegisteredArticle) -> Callable[[str], sql.Composed]:
        collations = self.collations.get(article.article_id, {})
        return lambda condition: filter_query(article, condition, collations)

    def _where(self, article: RegisteredArticle) -> str:
        return f"Publisher {self.session.info.dbname}, article {article.source}: filter"

    def _evaluate(self, article: RegisteredArticle, columns: Sequence[pa.StringArray]) -> Bools:
        try:
            with translated_errors(self._where(article)):
                # Neither the condition nor a name is a place for %s.
                values = [array_text(column) for column in columns]
                query = self._asking(article)(article.filter or "")
                row = RawCursor(self.session).execute(query, values).fetchone()
        except DataError as error:
            error.add(ErrorDetails(article=str(article.source), remedy=_REMEDY))
            raise
        answer = (row[0] if row else None) or ""
        return np.equal(np.frombuffer(answer.encode(), dtype=np.uint8), ord("1"))


@dataclass(frozen=True, slots=True)
class _Answers:
    """For which rows a filter is true, shape (rows,)."""

    matching: Bools
    unclear: Bools | None = None
    """Those of which nothing tells; None: none is."""
    reason: str = ""


def _refuse_unclear(parts: Sequence[_Answers], asked: Ints, encoded: pa.DictionaryArray) -> None:
    """Raise UnclearRowsError where there is no answer for some of the distinct rows that were asked for."""
    without = [np.zeros(len(it.matching), dtype=np.bool_) if it.unclear is None else it.unclear for it in parts]
    unclear = asked[np.concatenate(without)]
    if len(unclear):
        reason = next(it.reason for it in parts if it.unclear is not None and it.unclear.any())
        raise UnclearRowsError(reason, np.isin(encoded.indices.to_numpy(), unclear))


def _with_present_labels(
    columns: Sequence[pa.StringArray], names: Sequence[LabelNames]
) -> tuple[list[pa.StringArray], Bools]:
    """Return the values with the names that labels have now, and the rows of which they do not tell what they have."""
    now, unclear = list(columns), np.zeros(len(columns[0]), dtype=np.bool_)
    for it in names:
        now[it.at], not_told = translated(columns[it.at], it)
        unclear |= not_told
    return now, unclear


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
    condition = sql.SQL(text)
    columns = [article.columns[at] for at in filter_positions(article)]
    if not columns:
        return sql.SQL("SELECT CASE WHEN ({}) THEN '1' ELSE '0' END").format(condition)
    arrays = sql.SQL(", ").join(sql.SQL("${}::text[]").format(at + 1) for at in range(len(columns)))
    names = sql.SQL(", ").join(sql.Identifier(f"tranrepl_{at}") for at in range(len(columns)))
    typed = sql.SQL(", ").join(
        sql.SQL("{}::{}{} AS {}").format(
            sql.Identifier(f"tranrepl_{at}"),
            sql.SQL(column.type_name),
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
