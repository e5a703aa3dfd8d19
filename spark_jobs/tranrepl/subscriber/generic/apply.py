"""Commands applied at a Subscriber that SQLAlchemy reaches: in bulk where its database has a way, or serially."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import pyarrow as pa
import sqlalchemy as sa

from tranrepl.errors import ConfigurationError, ErrorReport
from tranrepl.failpoint import Failpoint, reach
from tranrepl.model.article import RegisteredArticle
from tranrepl.settings.publication import Apply
from tranrepl.subscriber.batching.steps import BulkStep, Operations, SchemaStep, Step, TruncateStep
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
from tranrepl.subscriber.generic.constraints import parents_first_among
from tranrepl.subscriber.generic.database import SqlDatabase
from tranrepl.subscriber.generic.savepoint import TransactionEndedError, why_undone
from tranrepl.subscriber.generic.serial import SqlSerial
from tranrepl.subscriber.generic.session_errors import translated_errors
from tranrepl.subscriber.generic.watermark import Watermark
from tranrepl.subscriber.truncation import children_first

_MOST_KEPT_BYTES = 256 * 1024 * 1024
"""Of commands that were applied in the open transaction, to apply them again."""


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
        self._where = f"Subscriber {key.subscription}"
        self._watermark = Watermark(session, database, key, self._where)
        self._serial = SqlSerial(session, database, articles, self._where, options.skip_errors)
        self._ranks: dict[tuple[int, ...], Mapping[int, int]] = {}
        self._begin = partial(self.begin, b"")
        self._kept = _KeptCommands()
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
        self._begin = partial(self.begin, watermark, stream, finishing)
        self._kept.forget()

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
            try:
                self._apply(step)
            except TransactionEndedError as ended:
                if self._attempts is not None and isinstance(step, BulkStep):
                    self._attempts.count(str(ended))
                self._begin_again(ended)
                self._serial.apply_one_by_one(self._in_order(step))
            if self._database.errors_end_transactions:
                self._kept.keep(self._in_order(step))

    def with_text(self, step: Step) -> Step:
        return step

    def take_applied(self) -> Applied:
        return self._attempts.take_applied() if self._attempts else Applied()

    def _apply(self, step: Step) -> None:
        if isinstance(step, SchemaStep):
            raise ConfigurationError(
                f"{self._where}: a schema change of article {step.change.source} cannot be applied at "
                f"{self._database.capabilities.title}",
                article=str(step.change.source),
            )
        if self._attempts is None or not isinstance(step, BulkStep) or not self._attempts.apply(step):
            self._serial.apply(self._in_order(step))

    def _begin_again(self, ended: TransactionEndedError) -> None:
        """Apply again what had been applied in the transaction. Raises what ended it where that is not all kept."""
        kept = self._kept.tables
        if kept is None:
            raise ended.problem from ended
        self._begin()
        for commands in kept:
            self._serial.apply_again(commands)
            self._kept.keep(commands)

    def _in_order(self, step: Step) -> pa.Table:
        return self._children_first(step.commands) if isinstance(step, TruncateStep) else step.commands

    def _children_first(self, commands: pa.Table) -> pa.Table:
        """Sort commands children first where their tables refer to one another; else keep their order."""
        numbers = tuple(dict.fromkeys(commands["article_id"].to_pylist()))
        if numbers not in self._ranks:
            found = self._serial.targets(commands)
            with translated_errors(self._where, self._database):
                self._ranks[numbers] = parents_first_among(self._session, self._database, found)
        return children_first(commands, self._ranks[numbers])

    def take_skipped(self) -> list[ErrorReport]:
        return self._serial.take_skipped()

    def take_notices(self) -> list[str]:
        return self._serial.take_notices()


class _KeptCommands:
    """What the open transaction has applied, in order."""

    def __init__(self) -> None:
        self.tables: list[pa.Table] | None = []
        """None where it was too much to be kept."""
        self._bytes = 0

    def forget(self) -> None:
        self.tables, self._bytes = [], 0

    def keep(self, commands: pa.Table) -> None:
        self._bytes += commands.nbytes
        if self.tables is None or self._bytes > _MOST_KEPT_BYTES:
            self.tables = None
        else:
            self.tables.append(commands)
