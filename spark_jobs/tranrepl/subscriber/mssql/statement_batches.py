"""Many statements as one batch of T-SQL, in one round trip.

An error of one statement does not end a batch, as long as the transaction is open; its sender rolls it back
then. Where an error or a procedure has ended the transaction, the batch must not go on: what follows would be committed
at once, statement by statement.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event

from tranrepl.subscriber.base.execution import SETS_IDENTITY, BoundStatement
from tranrepl.subscriber.mssql.driver import complete
from tranrepl.subscriber.mssql.statement_execution import with_identity

_IS_BATCH = "tranrepl_batch"
_MUST_MEET = "if @@rowcount = 0 begin raiserror (N'no row was met', 16, 1) return end"
_STANDS = "if xact_state() <> 1 return"
_DONE = "select 1 as done"


class IncompleteBatchError(sa.exc.SQLAlchemyError):
    """A batch ended before its last statement, without an error of the server's."""


def configure(engine: sa.Engine) -> sa.Engine:
    """Return the engine, which from now on reads all that a batch answers, where a late error may be."""
    event.listen(engine, "do_execute_no_params", _execute)
    return engine


def execute_batch(session: sa.Connection, statements: Sequence[BoundStatement]) -> None:
    """Execute statements, each of which does what it would do by itself."""
    written = [_written(session.dialect, it) for it in statements]
    batch = "\n".join([*written, _DONE])
    result = session.exec_driver_sql(batch, execution_options={"no_parameters": True, _IS_BATCH: True})
    if not result.context.root_connection.info.pop(_IS_BATCH, False):
        raise IncompleteBatchError("a batch of statements ended early")


def _written(dialect: sa.Dialect, statement: BoundStatement) -> str:
    compiled = _compiled(dialect, statement.executable)
    bound = compiled.construct_params(statement.parameters)
    for name, process in compiled._bind_processors.items():
        bound[name] = process(bound[name])
    text = complete(str(compiled), bound)
    table = statement.executable.get_execution_options().get(SETS_IDENTITY)
    if table is not None:
        text = with_identity(text, table)
    return "\n".join([text, _MUST_MEET, _STANDS] if statement.must_meet else [text, _STANDS])


@lru_cache(maxsize=1024)
def _compiled(dialect: sa.Dialect, executable: Any) -> Any:
    return executable.compile(dialect=dialect)


def _execute(cursor: Any, statement: str, context: Any) -> bool:
    """Execute a batch; return whether it was one."""
    if not context.execution_options.get(_IS_BATCH):
        return False
    context.root_connection.info[_IS_BATCH] = False
    cursor.execute(statement)
    last: Any = None
    while True:
        if cursor.description is not None:
            last = cursor.description[0][0]
            cursor.fetchall()
        if not cursor.nextset():
            break
    cursor.description = None
    context.root_connection.info[_IS_BATCH] = last == "done"
    return True
