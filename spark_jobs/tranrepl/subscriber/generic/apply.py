"""Commands applied at a Subscriber that SQLAlchemy reaches: in bulk where its database has a way; or in order, by
statements or by calling procedures.

Consecutive commands of one shape go together where the row count proves that every one met exactly one row. Where it
does not, or on an error, they are rolled back to a savepoint and applied serially, which finds the one that fails.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any

import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from tranrepl.error_numbers import VALUE_DOES_NOT_FIT
from tranrepl.errors import (
    ROW_NOT_FOUND,
    ConfigurationError,
    DataError,
    ErrorKind,
    ErrorReport,
    InternalError,
    ReplicationError,
    TransientError,
)
from tranrepl.failpoint import Failpoint, reach
from tranrepl.jobs.results import MOST_NOTICES
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.commands import Operation
from tranrepl.settings.publication import Apply
from tranrepl.subscriber.batching.steps import Operations, SerialStep, Step, TruncateStep
from tranrepl.subscriber.bulk_attempts import BulkAttempts
from tranrepl.subscriber.dialect import (
    ALONE,
    AS_CONFIGURED,
    Applied,
    ApplierOptions,
    Stream,
    StreamRecord,
    SubscriptionKey,
    UnfinishedBatch,
)
from tranrepl.subscriber.generic.command_rows import Command, command_rows
from tranrepl.subscriber.generic.constraints import parents_first_among
from tranrepl.subscriber.generic.database import SqlDatabase
from tranrepl.subscriber.generic.destination import targets
from tranrepl.subscriber.generic.savepoint import why_undone
from tranrepl.subscriber.generic.session_errors import translated_errors
from tranrepl.subscriber.generic.statements import (
    ParameterError,
    Parameters,
    Shape,
    Statement,
    key_of,
    parameters,
    shape_of,
    statement,
)
from tranrepl.subscriber.generic.target import SqlTarget
from tranrepl.subscriber.generic.watermark import Watermark
from tranrepl.subscriber.row_not_found import key_text, row_not_found_text
from tranrepl.subscriber.truncation import children_first

_MOST_TOGETHER = 1000


@dataclass(frozen=True, slots=True)
class _Bound:
    """A command, and what its statement is executed with; `problem` where a value does not fit."""

    command: Command
    parameters: Parameters
    problem: ParameterError | None = None


class SqlApplier:
    """One connection's transactions, each opened under the fence of the watermark."""

    def __init__(
        self,
        session: sa.Connection,
        database: SqlDatabase,
        key: SubscriptionKey,
        articles: Mapping[int, RegisteredArticle],
        options: ApplierOptions = AS_CONFIGURED,
    ) -> None:
        self._session = session
        self._database = database
        self._skipped_codes = database.error_codes.codes_of(options.skip_errors)
        self._skipped: list[ErrorReport] = []
        self._notices: dict[str, None] = {}
        self._articles = articles
        self._where = f"Subscriber {key.subscription}"
        self._watermark = Watermark(session, database, key, self._where)
        self._targets: dict[int, SqlTarget] = {}
        self._statements: dict[Shape, Statement] = {}
        self._ranks: dict[tuple[int, ...], Mapping[int, int]] = {}
        with translated_errors(self._where, database):
            bulk = database.bulk(session, articles) if options.apply is Apply.AUTO else None
        self.bulk_operations: Mapping[int, Operations] = bulk.operations if bulk else {}
        self._attempts: BulkAttempts | None = None
        if bulk is not None:
            self._attempts = BulkAttempts(bulk, partial(why_undone, session, database, self._where, bulk))

    def begin(self, watermark: bytes, stream: Stream = ALONE, finishing: UnfinishedBatch | None = None) -> None:
        with translated_errors(self._where, self._database):
            # Reading the catalogue may have begun one.
            self._session.rollback()
            self._watermark.fence(watermark, stream, finishing)
            self._database.began(self._session)

    def ready(self) -> None:
        """Do nothing: no database here waits with a constraint for the commit."""

    def rollback(self) -> None:
        with translated_errors(self._where, self._database):
            self._session.rollback()

    def commit_stream(self, stream: Stream, record: StreamRecord) -> None:
        with translated_errors(self._where, self._database):
            self._database.before_commit(self._session)
            self._watermark.record(stream, record)
            self._session.commit()

    def commit(self, xact_seqno: bytes) -> None:
        with translated_errors(self._where, self._database):
            self._database.before_commit(self._session)
            self._watermark.advance(xact_seqno)
            reach(Failpoint.WATERMARK_SET)
            self._session.commit()

    def flush(self) -> None:
        """Do nothing: every commit is durable by itself."""

    def apply(self, steps: Sequence[Step]) -> None:
        for step in steps:
            if isinstance(step, TruncateStep):
                self._apply_serially(self._children_first(step.commands))
            elif self._attempts is None or isinstance(step, SerialStep) or not self._attempts.apply(step):
                self._apply_serially(step.commands)

    def with_text(self, step: Step) -> Step:
        return step

    def take_applied(self) -> Applied:
        return self._attempts.take_applied() if self._attempts else Applied()

    def _apply_serially(self, commands: pa.Table) -> None:
        self._find_targets(commands)
        for shape, run in groupby(command_rows(commands), lambda it: shape_of(it, self._target(it.article_id))):
            self._apply_run(shape, list(run))

    def _children_first(self, commands: pa.Table) -> pa.Table:
        """Sort commands children first where their tables refer to one another; else keep their order."""
        self._find_targets(commands)
        numbers = tuple(dict.fromkeys(commands["article_id"].to_pylist()))
        if numbers not in self._ranks:
            found = [self._target(it) for it in numbers]
            with translated_errors(self._where, self._database):
                self._ranks[numbers] = parents_first_among(self._session, self._database, found)
        return children_first(commands, self._ranks[numbers])

    def take_skipped(self) -> list[ErrorReport]:
        skipped, self._skipped = self._skipped, []
        return skipped

    def take_notices(self) -> list[str]:
        notices, self._notices = list(self._notices), {}
        return notices

    def _find_targets(self, commands: pa.Table) -> None:
        """Read the tables of the commands' articles, together."""
        unread = [it for it in commands["article_id"].unique().to_pylist() if it not in self._targets]
        if not unread:
            return
        for number in unread:
            if number not in self._articles:
                raise InternalError(f"{self._where}: a stored command is of unknown article {number}")
        with translated_errors(self._where, self._database):
            found = targets(self._session, self._database, [self._articles[it] for it in unread], self._where)
        self._targets.update(zip(unread, found, strict=True))

    def _target(self, article_id: int) -> SqlTarget:
        return self._targets[article_id]

    def _statement(self, shape: Shape) -> Statement:
        if shape not in self._statements:
            self._statements[shape] = statement(self._database, self._target(shape.article_id), shape)
        return self._statements[shape]

    def _apply_run(self, shape: Shape, run: Sequence[Command]) -> None:
        prepared, of_shape = self._statement(shape), self._target(shape.article_id)
        bound = [_bind(command, of_shape, prepared) for command in run]
        for start in range(0, len(bound), _MOST_TOGETHER):
            part = bound[start : start + _MOST_TOGETHER]
            fits = all(it.problem is None for it in part)
            if len(part) == 1 or not fits or not prepared.together or not self._met_together(prepared, part):
                for one in part:
                    self._apply_or_skip(prepared, one)

    def _met_together(self, prepared: Statement, part: Sequence[_Bound]) -> bool:
        """Apply all at once, or none of them; return whether each met its row."""
        savepoint = self._savepoint()
        try:
            result = self._session.execute(prepared.executable, [it.parameters for it in part])
            met = not prepared.must_meet or result.rowcount == len(part)
        except (SQLAlchemyError, OverflowError) as error:
            problem = self._database.translate(self._where, error)
            if isinstance(problem, TransientError):
                # It may have ended the transaction with its savepoints.
                raise problem from error
            met = False
        with translated_errors(self._where, self._database):
            if met:
                savepoint.commit()
            else:
                savepoint.rollback()
        return met

    def _savepoint(self) -> sa.NestedTransaction:
        with translated_errors(self._where, self._database):
            return self._session.begin_nested()

    def _apply_or_skip(self, prepared: Statement, bound: _Bound) -> None:
        if not self._skipped_codes:
            self._apply_one(prepared, bound)
            return
        savepoint = self._savepoint()
        try:
            self._apply_one(prepared, bound)
        except DataError as error:
            if error.report.code not in self._skipped_codes:
                raise
            self._undo(savepoint, error)
            self._skipped.append(error.report)
            return
        with translated_errors(self._where, self._database):
            savepoint.commit()

    def _undo(self, savepoint: sa.NestedTransaction, error: DataError) -> None:
        """Undo the command that is skipped. Raises ConfigurationError where its error has undone more than that."""
        try:
            with translated_errors(self._where, self._database):
                savepoint.rollback()
        except ConfigurationError as gone:
            problem = {
                "kind": ErrorKind.CONFIGURATION,
                "message": f"{error.message}; it cannot be skipped: with it the whole transaction was rolled back",
                "remedy": "a procedure or trigger whose errors are skipped leaves the transaction open where it fails",
            }
            raise error.report.model_copy(update=problem).to_exception() from gone

    def _notice(self, result: sa.CursorResult[Any]) -> None:
        if len(self._notices) < MOST_NOTICES:
            self._notices |= dict.fromkeys(self._database.warnings(self._session, result))

    def _apply_one(self, prepared: Statement, bound: _Bound) -> None:
        if bound.problem is not None:
            raise self._at_command(
                bound.command, DataError(f"{self._where}: {bound.problem}", number=VALUE_DOES_NOT_FIT)
            )
        try:
            result = self._session.execute(prepared.executable, bound.parameters)
            met = result.rowcount if prepared.must_meet else 1
            if not prepared.must_meet:
                self._notice(result)
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


def _bind(command: Command, of_shape: SqlTarget, prepared: Statement) -> _Bound:
    try:
        return _Bound(command, parameters(command, of_shape, prepared.passed))
    except ParameterError as error:
        return _Bound(command, {}, error)
