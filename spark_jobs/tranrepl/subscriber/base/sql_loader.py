"""Ranges of a snapshot loaded where SQLAlchemy reaches the Subscriber: rows go in by INSERT, many at a time."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy.exc import SQLAlchemyError

from tranrepl.error_numbers import VALUE_DOES_NOT_FIT
from tranrepl.errors import ConfigurationError, DataError, ReplicationError
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.commands import Operation
from tranrepl.model.row_images import values
from tranrepl.subscriber.base.database import translated_errors
from tranrepl.subscriber.base.destination import target
from tranrepl.subscriber.base.execution import BulkInsert
from tranrepl.subscriber.base.snapshot import Loader
from tranrepl.subscriber.base.statements import (
    Command,
    ParameterError,
    Parameters,
    Shape,
    Statement,
    insert_statement,
    key_of,
    parameters,
    statement,
)
from tranrepl.subscriber.base.target import SqlTarget
from tranrepl.subscriber.batching.steps import MismatchError
from tranrepl.subscriber.command_text import key_text
from tranrepl.subscriber.comparison import by_statements

_ROWS_TOGETHER = 1000


_ESCAPED = re.compile(rb"\\(.)", re.DOTALL)
_NOT_OF_IMAGES = {b"b": b"\b", b"f": b"\f", b"v": b"\v"}


def chunk_images(chunk: bytes) -> pa.StringArray:
    """Return whole rows in COPY's text form as images: COPY escapes more than those do."""
    if any(b"\\" + escape in chunk for escape in _NOT_OF_IMAGES):
        chunk = _ESCAPED.sub(lambda it: _NOT_OF_IMAGES.get(it[1], it[0]), chunk)
    return pc.split_pattern(pa.array([chunk.removesuffix(b"\n")], pa.string()), "\n").flatten()


class SqlLoader(Loader):
    @contextmanager
    def _transaction(self, where: str) -> Iterator[None]:
        """Enclose one that `_require_transaction` may begin again."""
        with translated_errors(where, self._database):
            self._session.rollback()
            yield
            self._session.commit()

    def _insert(self, article: RegisteredArticle, chunks: Iterable[bytes]) -> tuple[int, int]:
        at = target(self._session, self._database, article, self._where)
        prepared, in_bulk = insert_statement(at), self._database.bulk_insert(self._session, article)
        rows = size = 0
        for chunk in filter(None, chunks):
            images = chunk_images(chunk)
            if in_bulk is None or not self._insert_in_bulk(at, prepared, in_bulk, images):
                self._insert_by_values(at, prepared, images)
            rows += len(images)
            size += len(chunk)
        return rows, size

    def _delete(self, article: RegisteredArticle, keys: pa.StringArray) -> None:
        at = target(self._session, self._database, by_statements(article), self._where)
        prepared = statement(self._database, at, Shape(article.article_id, Operation.DELETE, None))
        for first in range(0, len(keys), _ROWS_TOGETHER):
            lines = keys.slice(first, _ROWS_TOGETHER).to_pylist()
            bound = [parameters(_deletion(at, line), at, prepared.passed) for line in lines]
            self._session.execute(prepared.executable, bound)

    def _insert_in_bulk(self, at: SqlTarget, prepared: Statement, insert: BulkInsert, images: pa.StringArray) -> bool:
        """Insert all of the rows, or none: an error of one row is known when it goes by itself. Return whether they
        were inserted."""
        savepoint = self._session.begin_nested()
        try:
            insert(images)
        except MismatchError:
            savepoint.rollback()
            return False
        except SQLAlchemyError as error:
            problem = self._database.translate(self._where, error)
            if not isinstance(problem, DataError | ConfigurationError):
                raise problem from error
            self._require_transaction(at, prepared, images.to_pylist(), problem)
            savepoint.rollback()
            return False
        savepoint.commit()
        return True

    def _insert_by_values(self, at: SqlTarget, prepared: Statement, images: pa.StringArray) -> None:
        for first in range(0, len(images), _ROWS_TOGETHER):
            lines = images.slice(first, _ROWS_TOGETHER).to_pylist()
            bound = [self._bound(at, prepared, line) for line in lines]
            savepoint = self._session.begin_nested()
            try:
                self._session.execute(prepared.executable, bound)
            except SQLAlchemyError as error:
                problem = self._database.translate(self._where, error)
                if not isinstance(problem, DataError):
                    raise problem from error
                self._require_transaction(at, prepared, lines, problem)
                savepoint.rollback()
                self._insert_row_by_row(at, prepared, lines)
            else:
                savepoint.commit()

    def _require_transaction(
        self, at: SqlTarget, prepared: Statement, lines: Sequence[str], problem: ReplicationError
    ) -> None:
        """Raise the problem where its error has ended the transaction, with the range's rows; of a row, if it is one
        row's."""
        if self._database.in_transaction(self._session):
            return
        self._session.rollback()
        self._insert_row_by_row(at, prepared, lines)
        raise problem

    def _insert_row_by_row(self, at: SqlTarget, prepared: Statement, lines: Sequence[str]) -> None:
        """Insert each row by itself. Raises DataError that names the row which does not go in."""
        for line in lines:
            try:
                self._session.execute(prepared.executable, self._bound(at, prepared, line))
            except SQLAlchemyError as error:
                problem = self._database.translate(self._where, error)
                source = str(at.article.source)
                key = key_text(key_of(_insertion(at, line), at))
                raise type(problem)(
                    f"{problem.message} (article {source}, {key})",
                    number=problem.report.number,
                    database_code=problem.report.database_code,
                    remedy=problem.report.remedy,
                    article=source,
                ) from error

    def _bound(self, at: SqlTarget, prepared: Statement, line: str) -> Parameters:
        try:
            return parameters(_insertion(at, line), at, prepared.passed)
        except ParameterError as error:
            raise DataError(
                f"{self._where}, article {at.article.source}: {error}",
                number=VALUE_DOES_NOT_FIT,
                article=str(at.article.source),
            ) from error


def _deletion(at: SqlTarget, key: str) -> Command:
    of_key = dict(zip(at.article.key_positions, values(key), strict=True))
    before = [of_key.get(position) for position in range(len(at.columns))]
    return Command(b"", 0, at.article.article_id, Operation.DELETE, before, [], None)


def _insertion(at: SqlTarget, line: str) -> Command:
    return Command(b"", 0, at.article.article_id, Operation.INSERT, [], values(line), None)
