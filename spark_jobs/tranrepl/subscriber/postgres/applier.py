"""Commands applied at a PostgreSQL Subscriber, in bulk where that may be, or serially; and scripts among them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from threading import Event
from typing import LiteralString

import psycopg
import pyarrow as pa
import pyarrow.compute as pc

from tranrepl.error_numbers import Codes
from tranrepl.errors import ConfigurationError, DataError, ErrorDetails, ErrorReport, ReplicationError
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.names import TableName
from tranrepl.postgres.script_check import refusal
from tranrepl.postgres.session import Session, own_path, translate, translated_errors
from tranrepl.settings.publication import Apply
from tranrepl.subscriber.applier_options import AS_CONFIGURED, Applied, ApplierOptions
from tranrepl.subscriber.base.applier import Applier, naming_change
from tranrepl.subscriber.base.key_changes import UnfitRows
from tranrepl.subscriber.base.savepoint import BulkAttempts
from tranrepl.subscriber.base.watermark import Watermark
from tranrepl.subscriber.batching.commit_batches import unless_too_long
from tranrepl.subscriber.batching.fold import fold
from tranrepl.subscriber.batching.fold_text import fold_text
from tranrepl.subscriber.batching.staging import census_of
from tranrepl.subscriber.batching.steps import (
    BulkStep,
    MismatchError,
    Operations,
    SchemaStep,
    ScriptStep,
    SerialStep,
    Step,
    TruncateStep,
)
from tranrepl.subscriber.constraints import children_first, refer_to_one_another
from tranrepl.subscriber.postgres.bulk import FIND_AS_BEFORE, FIND_BY_KEY, BulkApply
from tranrepl.subscriber.postgres.bulk_rules import ApplyRules
from tranrepl.subscriber.postgres.core import core
from tranrepl.subscriber.postgres.database import POSTGRES, make_durable
from tranrepl.subscriber.postgres.destination import Targets
from tranrepl.subscriber.postgres.prefetch import Prefetch
from tranrepl.subscriber.postgres.procedures import delete_all
from tranrepl.subscriber.postgres.schema_changes import PostgresSchemaChanges
from tranrepl.subscriber.postgres.serial import SerialApply
from tranrepl.subscriber.postgres.users_code import delete_on_own_path, leave_path
from tranrepl.subscriber.subscription import ALONE, Stream, SubscriptionKey, UnfinishedBatch


def apply_in_order(
    commands: pa.Table,
    serially: Callable[[pa.Table], None],
    in_bulk: Callable[[pa.Table], bool],
    refused: frozenset[str],
) -> None:
    """Apply commands (row layout, in order) of which bulk has refused the whole.

    `serially` applies all or raises and leaves nothing, `in_bulk` applies all or says that it has left nothing.
    `refused` are a database's codes of errors for which a transaction goes in bulk. Raises what `serially` did where
    that does not help either.
    """
    while True:
        try:
            serially(commands)
        except DataError as problem:
            before, failing, after = _around(commands, problem)
            alone = len(before) == len(after) == 0
            if problem.report.code not in refused or alone or len(failing) < 2:
                raise
            serially(before)
            if not in_bulk(failing):
                raise
            commands = after
        else:
            return


def _around(commands: pa.Table, problem: DataError) -> tuple[pa.Table, pa.Table, pa.Table]:
    """Return the commands before the transaction that failed, its own, and those after it."""
    seqno = pa.scalar(bytes.fromhex(problem.report.xact_seqno or ""), pa.binary())
    seqnos = commands["xact_seqno"]
    start, end = pc.sum(pc.less(seqnos, seqno)).as_py() or 0, pc.sum(pc.less_equal(seqnos, seqno)).as_py() or 0
    return commands.slice(0, start), commands.slice(start, end - start), commands.slice(end)


_INSUFFICIENT_RESOURCES = "53"
"""Class of SQLSTATE. What a statement over many rows has no memory for, one row at a time may have."""


def why_undone(
    session: Session,
    where: str,
    work: Callable[[], object],
    before: Sequence[LiteralString] = (),
    after: Sequence[LiteralString] = (),
) -> str | None:
    """Do the work between the statements `before` and `after` it; None where it was done. Otherwise nothing of it
    stays. Raises what another way would meet too, as a lost connection."""
    with translated_errors(where):
        session.execute("; ".join(["SAVEPOINT tranrepl_bulk", *before]))
    try:
        work()
    except MismatchError as mismatch:
        why = str(mismatch)
    except psycopg.Error as error:
        problem = translate(where, error)
        lacking = (error.sqlstate or "").startswith(_INSUFFICIENT_RESOURCES)
        if not lacking and not isinstance(problem, (DataError, ConfigurationError)):
            raise problem from error
        why = f"error {problem.report.shown_number}"
    else:
        with translated_errors(where):
            session.execute("; ".join(["RELEASE SAVEPOINT tranrepl_bulk", *after]))
        return None
    with translated_errors(where):
        session.execute("ROLLBACK TO SAVEPOINT tranrepl_bulk; RELEASE SAVEPOINT tranrepl_bulk")
    return why


_LONGEST_TURN = 0.05
"""Seconds that planning waits at most for the Subscriber to be at work."""
_NOTHING: Mapping[int, Operations] = {}
_REFUSED_BY_REFERENCES = frozenset({"23503", "23001"})


class PostgresApplier(Applier):
    """One connection's transactions, each opened under the fence of the watermark."""

    def __init__(
        self,
        session: Session,
        key: SubscriptionKey,
        articles: Mapping[int, RegisteredArticle],
        prefetch: Prefetch,
        connect: Callable[[], Session],
        options: ApplierOptions = AS_CONFIGURED,
    ) -> None:
        """Set what is applied where; `connect` opens another session, in autocommit."""
        self._session = session
        self._prefetch = prefetch
        # Cleared from a transaction's begin until the Subscriber has something to do.
        self._at_work = Event()
        self._at_work.set()
        self._where = f"Subscriber {key.subscription}"
        super().__init__(Watermark(core(session), POSTGRES, key, self._where))
        self._articles, self._serially = articles, options.apply is not Apply.AUTO
        self._rules = rules = ApplyRules(session, articles)
        self._targets = targets = Targets(session, self._where, articles)
        self._serial = SerialApply(
            session, articles, self._where, targets, options.skip_errors, rules, at_work=self._at_work
        )
        self._bulk = BulkApply(session, targets, lambda: rules.bulk.parents_first)
        self._altered: list[TableName] = []
        self._attempts = BulkAttempts(self._bulk, self._why_undone)
        self._schema = PostgresSchemaChanges(
            session, key, self._where, connect, articles, UnfitRows(options.rows_are_copied, options.shared_tables)
        )

    def _errors(self) -> AbstractContextManager[None]:
        return translated_errors(self._where)

    @property
    def bulk_operations(self) -> Mapping[int, Operations]:
        return _NOTHING if self._serially else self._rules.operations

    def begin(self, watermark: bytes, stream: Stream = ALONE, finishing: UnfinishedBatch | None = None) -> None:
        self._at_work.clear()
        self._serial.ran_code = False
        with self._errors():
            self._watermark.fence(watermark, stream, finishing)

    def apply(self, steps: Sequence[Step]) -> None:
        try:
            for step in steps:
                if isinstance(step, SchemaStep):
                    self._change_schema(step)
                elif isinstance(step, ScriptStep):
                    self._run_script(step)
                elif isinstance(step, TruncateStep):
                    self._empty(step)
                elif isinstance(step, SerialStep):
                    self._serial.apply(step)
                elif not self._attempts.apply(step):
                    self._apply_in_order(step.commands)
        finally:
            self._at_work.set()

    def with_text(self, step: Step) -> Step:
        if isinstance(step, BulkStep):
            texts = unless_too_long(step.commands, lambda: tuple(map(fold_text, step.folded)))
            return replace(step, texts=texts) if texts is not None else SerialStep(step.commands)
        if isinstance(step, SchemaStep):
            self._prefetch.change_planned()
        if not isinstance(step, SerialStep):
            return step
        # Both threads want the interpreter, and until the Subscriber is at work, it waits for the other one.
        self._at_work.wait(_LONGEST_TURN)
        text = self._serial.staged_text(step.commands)
        self._prefetch.read(step.commands)
        return replace(step, text=text)

    def _change_schema(self, step: SchemaStep) -> None:
        self._at_work.set()
        with naming_change(step):
            self._said += self._schema.apply(step)
        # What was made for the old definition.
        self._serial.forget()
        self._targets.forget(step.old.destination)
        self._bulk.forget(step.old)
        self._altered.append(step.old.destination)

    def renew(self) -> None:
        with self._errors():
            self._rules.renew(self._altered)
            self._session.commit()
        for _ in self._altered:
            self._prefetch.change_applied()
        self._altered.clear()

    def look_again(self) -> None:
        known = self._rules.unedited, self._rules.operations, self._rules.bulk.code
        with self._errors():
            self._rules.renew({it.destination for it in self._articles.values()})
            self._session.commit()
        if (self._rules.unedited, self._rules.operations, self._rules.bulk.code) != known:
            # The dispatcher has the bodies of procedures that were as setup made them.
            self._serial.forget()
            self._targets.forget()

    def _run_script(self, step: ScriptStep) -> None:
        self._at_work.set()
        self._serial.ran_code = True
        self._said.append(run_script(self._session, self._where, step))
        # It may have altered anything.
        self._serial.forget()
        self._targets.forget()

    def take_applied(self) -> Applied:
        return self._attempts.take_applied()

    def _why_undone(self, step: BulkStep) -> str | None:
        self._at_work.set()
        with self._errors():
            self._bulk.prepare(step)
        return why_undone(
            self._session, self._where, lambda: self._bulk.apply(step), before=FIND_BY_KEY, after=FIND_AS_BEFORE
        )

    def _apply_in_order(self, commands: pa.Table) -> None:
        """Apply serially what could not go in bulk."""
        # Outside of what may be undone.
        self._serial.prepare(census_of(commands))

        def serially(part: pa.Table) -> None:
            with self._session.transaction():
                self._serial.apply(SerialStep(part))

        def in_bulk(part: pa.Table) -> bool:
            return self._attempts.apply(BulkStep(part, fold(part, self._articles)))

        apply_in_order(commands, serially, in_bulk, _REFUSED_BY_REFERENCES)

    def _empty(self, step: TruncateStep) -> None:
        """Empty tables that refer to one another by one statement, so that a circle of them is no obstacle."""
        self._at_work.set()
        commands, numbers = step.commands, step.commands["article_id"].to_pylist()
        if refer_to_one_another(numbers, self._rules.bulk.references):
            self._targets.find(numbers)
            self._serial.ran_code = True
            statement = delete_on_own_path([delete_all(self._targets[it]) for it in dict.fromkeys(numbers)])
            if self._attempts.count(why_undone(self._session, self._where, lambda: self._session.execute(statement))):
                return
            commands = children_first(commands, self._rules.bulk.parents_first)
        self._serial.apply(SerialStep(commands))

    def take_skipped(self) -> list[ErrorReport]:
        return self._serial.take_skipped()

    def take_notices(self) -> list[str]:
        return self._serial.take_notices()

    def ready(self) -> None:
        path = own_path(self._session) if self._serial.ran_code else nullcontext()
        with self._errors(), path:
            self._session.execute("SET CONSTRAINTS ALL IMMEDIATE")

    def rollback(self) -> None:
        with self._errors():
            self._session.rollback()
        self._serial.forget()
        self._bulk.rolled_back()

    def _before_commit(self) -> None:
        """Do nothing: no procedure ends the transaction."""

    def _commit(self) -> None:
        if self._serial.ran_code:
            leave_path(self._session)
        self._session.commit()
        self._serial.committed()
        self._bulk.committed()

    def flush(self) -> None:
        """Make the commits durable."""
        with self._errors():
            make_durable(self._session)
            self._session.commit()


_ENDS_TRANSACTION = "2D000"
_SKIP = "`tranrepl skip FILE -s NAME --xact-seqno 0x{}` leaves the script out at this Subscriber"
_MEND = f"mend what it needs at the Subscriber and deliver again; or {_SKIP}"
_REWRITE = f"{_SKIP}; run it without that statement then: `tranrepl exec FILE --sql SCRIPT.sql`"
"""For a script that can never run as it stands."""


def run_script(session: Session, where: str, step: ScriptStep) -> str:
    """Run the whole text inside the open transaction; return the notes on it. Raises an error that names the
    script, where it fails or cannot run in a transaction; then the transaction must be rolled back."""
    place = ErrorDetails(xact_seqno=step.xact_seqno.hex(), command_id=step.command_id)
    if (why := refusal(step.script.sql)) is not None:
        error = ConfigurationError(f"{where}: script {step.script.name} is not run: {why}")
        error.add(place.model_copy(update={"remedy": _REWRITE.format(step.xact_seqno.hex())}))
        raise error
    try:
        with own_path(session):
            # Without parameters: the text goes by the simple protocol, with as many statements as it has.
            session.execute(step.script.sql.encode())
    except psycopg.Error as error:
        problem = _problem(f"{where}: script {step.script.name}", error)
        problem.add(place)
        if problem.report.remedy is None:
            remedy = _REWRITE if error.sqlstate == _ENDS_TRANSACTION else _MEND
            problem.add(ErrorDetails(remedy=remedy.format(step.xact_seqno.hex())))
        raise problem from error
    return f"{where}: ran script {step.script.name} at 0x{step.xact_seqno.hex()}"


def _problem(where: str, error: psycopg.Error) -> ReplicationError:
    if error.sqlstate != _ENDS_TRANSACTION:
        return translate(where, error)
    return ConfigurationError(
        f"{where}: {error.diag.message_primary}: a COMMIT or ROLLBACK in it, or in a procedure that it calls, ends the "
        "transaction that also holds the rows around it",
        **Codes.POSTGRES.value.numbered(_ENDS_TRANSACTION),
    )
