"""Commands applied one by one at a PostgreSQL Subscriber."""

from __future__ import annotations

import re
from collections.abc import Mapping

import psycopg
import pyarrow as pa
from psycopg import sql

from tranrepl.article import RegisteredArticle
from tranrepl.call_syntax import Argument, arguments
from tranrepl.commands import Method
from tranrepl.errors import ConfigurationError, DataError, InternalError, ReplicationError
from tranrepl.failpoint import Failpoint, reach
from tranrepl.postgres import Session, translate, translated_errors
from tranrepl.subscriber.dialect import SubscriptionKey
from tranrepl.subscriber.postgres import PostgresSubscriber
from tranrepl.subscriber.postgres_procedures import Target, called, statements, trusted
from tranrepl.subscriber.procedure_names import PREFIXES
from tranrepl.subscriber.staging import Kind, StagingLayout, copy_text, kinds_of, staging_layout

_STAGE = sql.Identifier("pg_temp", "tranrepl_commands")
_APPLY = sql.Identifier("pg_temp", "tranrepl_apply")
_FAILED_NOTICE = "tranrepl failed command "
_COPY_LINE = re.compile(r"COPY tranrepl_commands, line (\d+)")


class SerialApply:
    """Applies commands one by one, in order, inside the Subscriber: staged by COPY, dispatched by PL/pgSQL.

    A failing command ends the transaction with its own error, named by its place among those staged.
    """

    def __init__(
        self, session: Session, articles: Mapping[int, RegisteredArticle], subscriber: PostgresSubscriber
    ) -> None:
        self._session = session
        self._articles = articles
        self._subscriber = subscriber
        self._targets: dict[int, Target] = {}
        self._layout = staging_layout((), articles, {})
        self._failed_command: int | None = None
        self._staged = False
        session.add_notice_handler(self._notice)

    def prepare(self, commands: pa.Table) -> None:
        """Make the staging table and the dispatcher ready for the kinds of these commands. Not in a transaction that
        applied something, where it can be helped: it is DDL."""
        kinds = kinds_of(commands)
        if kinds.issubset(self._layout.kinds):
            return
        for kind in kinds:
            if kind.article_id not in self._articles:
                raise InternalError(
                    f"{self._subscriber.where}: a stored command is of unknown article {kind.article_id}"
                )
            if kind.article_id not in self._targets:
                self._targets[kind.article_id] = self._subscriber.target(self._articles[kind.article_id])
        wanted = kinds.union(self._layout.kinds)
        types = {
            (kind, argument): self._targets[kind.article_id].type_name(argument)
            for kind in wanted
            for argument in arguments(self._articles[kind.article_id], kind.operation)
        }
        self._layout = staging_layout(wanted, self._articles, types)
        with translated_errors(self._subscriber.where):
            self._session.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(_STAGE))
            self._session.execute(_stage_table(self._layout))
            self._session.execute(_apply_function(self._layout, self._targets))

    def apply(self, commands: pa.Table) -> None:
        """Apply within the open transaction. Raises DataError with the failing command's place and article."""
        if len(commands) == 0:
            return
        self.prepare(commands)
        self._failed_command = None
        try:
            if self._staged:
                self._session.execute(sql.SQL("TRUNCATE {}").format(_STAGE))
            self._staged = True
            with self._session.cursor().copy(sql.SQL("COPY {} FROM STDIN").format(_STAGE)) as copy:
                copy.write(copy_text(commands, self._layout))
            self._session.execute(sql.SQL("SELECT {}()").format(_APPLY))
        except psycopg.Error as error:
            raise self._at_command(commands, error) from error

    def committed(self) -> None:
        """The commit emptied the staging table."""
        self._staged = False

    def _notice(self, diagnostic: psycopg.errors.Diagnostic) -> None:
        message = diagnostic.message_primary or ""
        if message.startswith(_FAILED_NOTICE):
            self._failed_command = int(message.removeprefix(_FAILED_NOTICE))

    def _at_command(self, commands: pa.Table, error: psycopg.Error) -> ReplicationError:
        line = _COPY_LINE.search(error.diag.context or "")
        place = int(line[1]) - 1 if line else self._failed_command
        problem = translate(self._subscriber.where, error)
        if place is None or not isinstance(problem, (DataError, ConfigurationError)):
            return problem
        row = commands.slice(place, 1).to_pylist()[0]
        problem.xact_seqno = row["xact_seqno"].hex()
        problem.command_id = row["command_id"]
        problem.article = str(self._articles[row["article_id"]].source)
        return problem


class PostgresApplier:
    """One connection's transactions, each opened under the fence of the watermark."""

    def __init__(self, session: Session, key: SubscriptionKey, articles: Mapping[int, RegisteredArticle]) -> None:
        self._session = session
        self._subscriber = PostgresSubscriber(session, key)
        self._serial = SerialApply(session, articles, self._subscriber)

    def begin(self, watermark: bytes) -> None:
        with translated_errors(self._subscriber.where):
            self._subscriber.lock_watermark(watermark)

    def apply(self, commands: pa.Table) -> None:
        self._serial.apply(commands)

    def commit(self, xact_seqno: bytes) -> None:
        with translated_errors(self._subscriber.where):
            self._subscriber.advance_watermark(xact_seqno)
            reach(Failpoint.WATERMARK_SET)
            self._session.commit()
        self._serial.committed()

    def flush(self) -> None:
        """Make the commits durable: a synchronous one writes out the log of those before it."""
        with translated_errors(self._subscriber.where):
            self._session.execute("SET synchronous_commit = on")
            # Without an xid there is nothing to commit, and nothing is written.
            self._session.execute("SELECT pg_current_xact_id()")
            self._session.commit()


def _stage_table(layout: StagingLayout) -> sql.Composed:
    slots = [sql.SQL(", {} {}").format(sql.Identifier(slot.name), trusted(slot.type_name)) for slot in layout.slots]
    return sql.SQL(
        "CREATE TEMPORARY TABLE {} (seq integer NOT NULL, kind smallint NOT NULL{}) ON COMMIT DELETE ROWS"
    ).format(_STAGE, sql.SQL("").join(slots))


def _apply_function(layout: StagingLayout, targets: Mapping[int, Target]) -> sql.Composed:
    """The dispatcher: reads what is staged, in order, and calls what each kind calls."""
    branches = sql.SQL("").join(
        sql.SQL("    WHEN {} THEN\n{}").format(sql.Literal(number), _branch(layout, kind, targets[kind.article_id]))
        for number, kind in enumerate(layout.kinds)
    )
    body = sql.SQL(
        "\n#variable_conflict use_variable\nDECLARE tranrepl_command record;\nBEGIN\n"
        "  FOR tranrepl_command IN SELECT * FROM {} ORDER BY seq LOOP\n"
        "    CASE tranrepl_command.kind\n{}    END CASE;\n  END LOOP;\n"
        # The notice names the command; the error itself goes on untouched.
        "EXCEPTION WHEN OTHERS THEN\n  RAISE NOTICE '{}%', tranrepl_command.seq;\n  RAISE;\nEND\n"
    ).format(_STAGE, branches, sql.SQL(_FAILED_NOTICE))
    return sql.SQL("CREATE OR REPLACE FUNCTION {}() RETURNS void LANGUAGE plpgsql AS {}").format(
        _APPLY, sql.Literal(body.as_string(None))
    )


def _branch(layout: StagingLayout, kind: Kind, target: Target) -> sql.Composable:
    places = layout.places[kind]

    def value(argument: Argument) -> sql.Composable:
        return sql.SQL("tranrepl_command.{}").format(sql.Identifier(layout.slots[places[argument]].name))

    procedural = kind.operation in PREFIXES and target.article.propagation(kind.operation).method is Method.PROCEDURE
    if not procedural:
        return statements(target, kind.operation, value)
    passed = sql.SQL(", ").join(map(value, arguments(target.article, kind.operation)))
    return sql.SQL("      CALL {}({});\n").format(called(target.article, kind.operation), passed)
