"""Commands applied at a Subscriber that SQLAlchemy reaches: in bulk where its database has a way, or serially."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa

from tranrepl.errors import ErrorReport
from tranrepl.model.article import RegisteredArticle
from tranrepl.settings.publication import Apply
from tranrepl.subscriber.applier_options import AS_CONFIGURED, Applied, ApplierOptions
from tranrepl.subscriber.base.applier import Applier, naming_change
from tranrepl.subscriber.base.committing_ddl import CommittedChanges
from tranrepl.subscriber.base.database import SqlDatabase, translated_errors
from tranrepl.subscriber.base.destination import parents_first_among
from tranrepl.subscriber.base.key_changes import UnfitRows
from tranrepl.subscriber.base.savepoint import BulkAttempts, TransactionEndedError, why_undone
from tranrepl.subscriber.base.serial import SqlSerial
from tranrepl.subscriber.base.sql_schema_changes import SqlSchemaChanges
from tranrepl.subscriber.base.watermark import Watermark
from tranrepl.subscriber.batching.steps import (
    BulkStep,
    Operations,
    RowStep,
    SchemaStep,
    ScriptStep,
    SerialStep,
    Step,
    TruncateStep,
)
from tranrepl.subscriber.constraints import children_first
from tranrepl.subscriber.subscription import ALONE, CommandPlace, Stream, SubscriptionKey, UnfinishedBatch

_MOST_KEPT_BYTES = 256 * 1024 * 1024
"""The most that is kept of commands applied in the open transaction, to apply them again."""


class SqlApplier(Applier):
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
        self._articles = articles
        self._options = options
        self._where = f"Subscriber {key.subscription}"
        super().__init__(Watermark(session, database, key, self._where))
        self._serial = SqlSerial(session, database, articles, self._where, options.skip_errors)
        self._ranks: dict[tuple[int, ...], Mapping[int, int]] = {}
        self._begin = partial(self.begin, b"")
        self._kept = _KeptSteps()
        self._expected = b""
        self._finishing: UnfinishedBatch | None = None
        self._applied_before: CommandPlace | None = None
        self._changes = SqlSchemaChanges(
            session, database, key, self._where, articles, UnfitRows(options.rows_are_copied, options.shared_tables)
        )
        self._committed = CommittedChanges(session, database, key, self._changes, self._watermark, self._where)
        self._bulk_operations: Mapping[int, Operations] = {}
        self._attempts: BulkAttempts | None = None
        self._find_bulk()

    @property
    def bulk_operations(self) -> Mapping[int, Operations]:
        return self._bulk_operations

    def _errors(self) -> AbstractContextManager[None]:
        return translated_errors(self._where, self._database)

    def _find_bulk(self) -> None:
        """Find out what may go in bulk, with the tables as they are now."""
        with self._errors():
            bulk = self._database.bulk(self._session, self._articles) if self._options.apply is Apply.AUTO else None
        self._bulk_operations = bulk.operations if bulk else {}
        self._attempts = None
        if bulk is not None:
            self._attempts = BulkAttempts(bulk, partial(why_undone, self._session, self._database, self._where, bulk))

    def renew(self) -> None:
        with self._errors():
            self._database.configure_session(self._session, self._options)
        self._ranks.clear()
        self._find_bulk()

    def look_again(self) -> None:
        self.renew()
        self._serial.forget_tables()

    def begin(self, watermark: bytes, stream: Stream = ALONE, finishing: UnfinishedBatch | None = None) -> None:
        with self._errors():
            # Reading the catalogue may have begun one.
            self._session.rollback()
            self._applied_before = self._watermark.fence(watermark, stream, finishing)
            self._database.began(self._session)
        self._expected, self._finishing = watermark, finishing
        self._begin = partial(self.begin, watermark, stream, finishing)
        self._kept.forget()

    def ready(self) -> None:
        """Do nothing: no database here waits with a constraint for the commit."""

    def rollback(self) -> None:
        with self._errors():
            self._session.rollback()

    def _before_commit(self) -> None:
        self._database.before_commit(self._session)

    def _commit(self) -> None:
        self._session.commit()

    def flush(self) -> None:
        """Do nothing: every commit is durable by itself."""

    def apply(self, steps: Sequence[Step]) -> None:
        for step in steps:
            if isinstance(step, SchemaStep):
                self._change_schema(step)
            elif isinstance(step, ScriptStep):
                self._leave_out(step)
            else:
                self._apply_rows(self._unapplied(step))
            if self._database.errors_end_transactions:
                self._kept.keep(step)

    def _apply_rows(self, step: RowStep) -> None:
        try:
            self._apply(step)
        except TransactionEndedError as ended:
            if self._attempts is not None and isinstance(step, BulkStep):
                self._attempts.count(str(ended))
            self._begin_again(ended)
            self._serial.apply_one_by_one(self._in_order(step))

    def _unapplied(self, step: RowStep) -> RowStep:
        """Return what of a step is not applied, where an earlier job has committed what comes before a schema change:
        such a step goes serially."""
        place = self._applied_before
        if place is None:
            return step
        commands = step.commands
        earlier = pc.and_(
            pc.equal(commands["xact_seqno"], pa.scalar(place.xact_seqno, pa.binary())),
            pc.less(commands["command_id"], place.command_id),
        )
        return SerialStep(commands.filter(pc.invert(earlier))) if pc.any(earlier).as_py() else step

    def _change_schema(self, step: SchemaStep) -> None:
        """Apply a schema change. What is known of how to apply in bulk is of the tables as they were."""
        with naming_change(step), self._errors():
            if self._database.ddl_commits:
                self._said += self._committed.apply(step, self._expected, self._finishing)
            else:
                self._said += self._changes.apply(step)
        self._attempts = None
        self._serial.forget_tables()

    def _leave_out(self, step: ScriptStep) -> None:
        self._said.append(
            f"{self._where}: script {step.script.name} at 0x{step.xact_seqno.hex()} was not run: it is for PostgreSQL "
            f"Subscribers, and this is {self._database.capabilities.title}"
        )

    def take_applied(self) -> Applied:
        return self._attempts.take_applied() if self._attempts else Applied()

    def _apply(self, step: RowStep) -> None:
        if self._attempts is None or not isinstance(step, BulkStep) or not self._attempts.apply(step):
            self._serial.apply(self._in_order(step))

    def _begin_again(self, ended: TransactionEndedError) -> None:
        """Apply again what had been applied in the transaction. Raises what ended it where that is not all kept."""
        kept = self._kept.steps
        if kept is None:
            raise ended.problem from ended
        self._begin()
        for step in kept:
            if isinstance(step, SchemaStep):
                self._change_schema(step)
            elif not isinstance(step, ScriptStep):
                self._serial.apply_again(self._in_order(step))
            self._kept.keep(step)

    def _in_order(self, step: RowStep) -> pa.Table:
        return self._children_first(step.commands) if isinstance(step, TruncateStep) else step.commands

    def _children_first(self, commands: pa.Table) -> pa.Table:
        """Sort commands children first where their tables refer to one another; else keep their order."""
        numbers = tuple(dict.fromkeys(commands["article_id"].to_pylist()))
        if numbers not in self._ranks:
            found = self._serial.targets(commands)
            with self._errors():
                self._ranks[numbers] = parents_first_among(self._session, self._database, found)
        return children_first(commands, self._ranks[numbers])

    def take_skipped(self) -> list[ErrorReport]:
        return self._serial.take_skipped()

    def take_notices(self) -> list[str]:
        return self._serial.take_notices()


class _KeptSteps:
    """What the open transaction has applied, in order."""

    def __init__(self) -> None:
        self.steps: list[Step] | None = []
        """None where it was too much to be kept."""
        self._bytes = 0

    def forget(self) -> None:
        self.steps, self._bytes = [], 0

    def keep(self, step: Step) -> None:
        self._bytes += step.commands.nbytes
        if self.steps is None or self._bytes > _MOST_KEPT_BYTES:
            self.steps = None
        else:
            self.steps.append(step)
