"""Commands applied in order at a Subscriber that SQLAlchemy reaches, by statements or by calling procedures.

Many go together: those of one shape where the row count proves that every one met exactly one row; those of any shape
where the database takes many statements in one round trip. On an error, or where a row was not met, they are rolled
back to a savepoint, and their halves go together: so the one that fails is found, and fails by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice

import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from tranrepl.error_numbers import VALUE_DOES_NOT_FIT
from tranrepl.errors import (
    ROW_NOT_FOUND,
    ConfigurationError,
    DataError,
    ErrorReport,
    InternalError,
    ReplicationError,
    TransientError,
)
from tranrepl.jobs.results import MOST_NOTICES
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.commands import Operation
from tranrepl.subscriber.base.database import SqlDatabase, translated_errors
from tranrepl.subscriber.base.destination import targets
from tranrepl.subscriber.base.execution import BoundStatement
from tranrepl.subscriber.base.savepoint import require_transaction, roll_back
from tranrepl.subscriber.base.statements import (
    Command,
    ParameterError,
    Parameters,
    Shape,
    Statement,
    command_rows,
    key_of,
    parameters,
    shape_of,
    statement,
)
from tranrepl.subscriber.base.target import SqlTarget
from tranrepl.subscriber.command_text import key_text, row_not_found_text

_MOST_TOGETHER = 1000


@dataclass(frozen=True, slots=True)
class _Bound:
    """A command, its statement, and what that is executed with; `problem` where a value does not fit."""

    command: Command
    statement: Statement
    parameters: Parameters
    problem: ParameterError | None = None


class SqlSerial:
    """Applies commands in order, inside the open transaction."""

    def __init__(
        self,
        session: sa.Connection,
        database: SqlDatabase,
        articles: Mapping[int, RegisteredArticle],
        where: str,
        skip_errors: frozenset[str],
    ) -> None:
        self._session = session
        self._database = database
        self._articles = articles
        self._where = where
        self._skipped_codes = database.error_codes.codes_of(skip_errors)
        self._skipped: list[ErrorReport] = []
        self._notices: dict[str, None] = {}
        self._targets: dict[int, SqlTarget] = {}
        self._statements: dict[Shape, Statement] = {}

    def apply(self, commands: pa.Table) -> None:
        """Apply commands, many together where that can be. Raises TransactionEndedError where an error of one of many
        ended the transaction."""
        self.targets(commands)
        for together in self._batches(commands):
            self._apply_together(together)

    def apply_one_by_one(self, commands: pa.Table) -> None:
        self.targets(commands)
        for command in command_rows(commands):
            self._apply_or_skip(self._bind(command))

    def apply_again(self, commands: pa.Table) -> None:
        """Apply commands of a transaction that an error has ended. What is skipped of them is known already."""
        skipped, self._skipped = self._skipped, []
        self.apply_one_by_one(commands)
        self._skipped = skipped

    def take_skipped(self) -> list[ErrorReport]:
        skipped, self._skipped = self._skipped, []
        return skipped

    def take_notices(self) -> list[str]:
        notices, self._notices = list(self._notices), {}
        return notices

    def targets(self, commands: pa.Table) -> list[SqlTarget]:
        """Return the tables of the commands' articles; those that are not known yet are read together."""
        numbers = commands["article_id"].unique().to_pylist()
        unread = [it for it in numbers if it not in self._targets]
        for number in unread:
            if number not in self._articles:
                raise InternalError(f"{self._where}: a stored command is of unknown article {number}")
        if unread:
            with translated_errors(self._where, self._database):
                found = targets(self._session, self._database, [self._articles[it] for it in unread], self._where)
            self._targets.update(zip(unread, found, strict=True))
        return [self._targets[it] for it in numbers]

    def forget_tables(self) -> None:
        """Forget what was read of tables: they are others from here on."""
        self._targets.clear()
        self._statements.clear()

    # Statements

    def _bind(self, command: Command) -> _Bound:
        of_shape = self._target(command.article_id)
        prepared = self._statement(shape_of(command, of_shape))
        try:
            return _Bound(command, prepared, parameters(command, of_shape, prepared.passed))
        except ParameterError as error:
            return _Bound(command, prepared, {}, error)

    def _target(self, article_id: int) -> SqlTarget:
        return self._targets[article_id]

    def _statement(self, shape: Shape) -> Statement:
        if shape not in self._statements:
            self._statements[shape] = statement(self._database, self._target(shape.article_id), shape)
        return self._statements[shape]

    def _batches(self, commands: pa.Table) -> Iterator[list[_Bound]]:
        """Yield commands that may go together: in one round trip, or as executions of one statement."""
        bound = map(self._bind, command_rows(commands))
        if self._database.statements_together > 1:
            yield from _pieces(bound, self._database.statements_together)
            return
        for together, run in groupby(bound, lambda it: id(it.statement) if it.statement.together else None):
            yield from _pieces(run, 1 if together is None else _MOST_TOGETHER)

    # Applying

    def _apply_together(self, batch: Sequence[_Bound]) -> None:
        if len(batch) == 1:
            self._apply_or_skip(batch[0])
        elif any(it.problem is not None for it in batch) or not self._met_together(batch):
            half = len(batch) // 2
            self._apply_together(batch[:half])
            self._apply_together(batch[half:])

    def _met_together(self, batch: Sequence[_Bound]) -> bool:
        """Apply all at once, or none of them; return whether each met its row."""
        savepoint = self._savepoint()
        try:
            met = self._execute_together(batch)
        except (SQLAlchemyError, OverflowError) as error:
            problem = self._database.translate(self._where, error)
            if isinstance(problem, TransientError):
                # It may have ended the transaction with its savepoints.
                raise problem from error
            require_transaction(self._session, self._database, problem)
            met = False
        with translated_errors(self._where, self._database):
            if met:
                savepoint.commit()
            else:
                savepoint.rollback()
        return met

    def _execute_together(self, batch: Sequence[_Bound]) -> bool:
        if self._database.statements_together > 1:
            statements = [
                BoundStatement(it.statement.executable, it.parameters, it.statement.must_meet) for it in batch
            ]
            self._notice(self._database.execute_together(self._session, statements))
            return True
        prepared = batch[0].statement
        result = self._session.execute(prepared.executable, [it.parameters for it in batch])
        return not prepared.must_meet or result.rowcount == len(batch)

    def _savepoint(self) -> sa.NestedTransaction:
        with translated_errors(self._where, self._database):
            return self._session.begin_nested()

    def _apply_or_skip(self, bound: _Bound) -> None:
        if not self._skipped_codes:
            self._apply_one(bound)
            return
        savepoint = self._savepoint()
        try:
            self._apply_one(bound)
        except DataError as error:
            if error.report.code not in self._skipped_codes:
                raise
            roll_back(self._session, self._database, self._where, savepoint, error)
            self._skipped.append(error.report)
            return
        with translated_errors(self._where, self._database):
            savepoint.commit()

    def _notice(self, messages: Sequence[str]) -> None:
        if len(self._notices) < MOST_NOTICES:
            self._notices |= dict.fromkeys(messages)

    def _apply_one(self, bound: _Bound) -> None:
        prepared = bound.statement
        if bound.problem is not None:
            raise self._at_command(
                bound.command, DataError(f"{self._where}: {bound.problem}", number=VALUE_DOES_NOT_FIT)
            )
        try:
            result = self._session.execute(prepared.executable, bound.parameters)
            met = result.rowcount if prepared.must_meet else 1
            if not prepared.must_meet:
                self._notice(self._database.warnings(self._session, result))
        except (SQLAlchemyError, OverflowError) as error:
            raise self._at_command(bound.command, self._database.translate(self._where, error)) from error
        if met == 0:
            raise self._at_command(bound.command, DataError(self._where, number=ROW_NOT_FOUND))
        if met < 0:
            raise ConfigurationError(
                f"{self._where}: the driver {self._session.dialect.driver} does not count the rows of a statement, so "
                "that a missing row would not be seen",
                remedy="another driver, or a server whose sessions do not begin with SET NOCOUNT ON",
            )

    def _at_command(self, command: Command, problem: ReplicationError) -> ReplicationError:
        """Return the problem with the command, the article and the key that it is about."""
        if not isinstance(problem, DataError | ConfigurationError):
            return problem
        of_article = self._target(command.article_id)
        key = "" if command.operation is Operation.TRUNCATE else key_text(key_of(command, of_article))
        if problem.report.number == ROW_NOT_FOUND:
            message = f"{self._where}: {row_not_found_text(command.operation, of_article.article.destination)}{key}"
        else:
            about = ", ".join(filter(None, [str(of_article.article.source), key]))
            message = f"{problem.message} (article {about})"
        return type(problem)(
            message,
            remedy=problem.report.remedy,
            number=problem.report.number,
            database_code=problem.report.database_code,
            xact_seqno=command.xact_seqno.hex(),
            command_id=command.command_id,
            article=str(of_article.article.source),
        )


def _pieces(bound: Iterator[_Bound], most: int) -> Iterator[list[_Bound]]:
    while piece := list(islice(bound, most)):
        yield piece
