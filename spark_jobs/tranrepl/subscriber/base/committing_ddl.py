"""Schema changes where DDL ends the transaction, as at MariaDB: done in steps, of which each may be done again.

What comes before the change is committed with the change's place, and with the columns that its table has: those say
after a crash whether the table was altered, which one statement does as a whole. Then come the table, the procedures
and the recorded definition; what comes behind the change goes on in a new transaction. Between these commits a lock of
the session's own keeps others away: the server frees it once the session has ended, with the statement that a killed
job had left to it. It is a lock of the server's, not of one table: nothing else of ours waits for it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import sqlalchemy as sa

from tranrepl.failpoint import Failpoint, reach
from tranrepl.model.article import RegisteredArticle
from tranrepl.subscriber.base.column_changes import ColumnPlan
from tranrepl.subscriber.base.column_steps import TableColumn
from tranrepl.subscriber.base.database import SqlDatabase
from tranrepl.subscriber.base.key_changes import key_change
from tranrepl.subscriber.base.sql_schema_changes import SqlSchemaChanges
from tranrepl.subscriber.base.watermark import Watermark
from tranrepl.subscriber.batching.steps import SchemaStep
from tranrepl.subscriber.subscription import CommandPlace, SubscriptionKey, UnfinishedBatch, fenced

_DDL_LOCK_SECONDS = 60
"""How long a statement waits for readers of the table: all others wait behind it."""


class CommittedChanges:
    """One session's schema changes, each begun and ended in an open transaction under the fence of the watermark."""

    def __init__(
        self,
        session: sa.Connection,
        database: SqlDatabase,
        key: SubscriptionKey,
        changes: SqlSchemaChanges,
        watermark: Watermark,
        where: str,
    ) -> None:
        self._session = session
        self._database = database
        self._key = key
        self._changes = changes
        self._watermark = watermark
        self._where = where

    def apply(self, step: SchemaStep, expected: bytes, finishing: UnfinishedBatch | None = None) -> list[str]:
        """Apply a change behind what the open transaction has applied, and open another one. Return what was left
        alone. `expected` is the watermark, `finishing` as the transaction was begun.

        Raises ConfigurationError where a person must do something before, FencedError where another job was here.
        """
        place = CommandPlace(step.xact_seqno, step.command_id)
        if not self._changes.is_pending(step):
            return self._changes.already_applied(step)
        recorded = self._watermark.columns_before(place)
        before = self._changes.columns(step.old) if recorded is None and step.new is not None else recorded or ()
        plan = self._changes.plan(step, before)
        if step.new is None or not (
            plan.steps or key_change(step) is not None or self._changes.has_procedures(step.new)
        ):
            self._end(step, plan)
            return self._told(step, plan)
        if recorded is None:
            self._changes.require_fitting_rows(step)
        self._begin(place, before)
        # A custom procedure takes the calls of before or of after: its turn comes once those of before are committed.
        self._changes.require_procedures(step.old, step.new)
        fence = partial(self._fence, expected, place, finishing)
        key = self._alter(step, step.new, plan, before, fence)
        fence()
        self._end(step, plan)
        self._watermark.end_change()
        self._session.commit()
        reach(Failpoint.DEFINITION_RECORDED)
        fence()
        self._database.began(self._session)
        return [*self._told(step, plan), *key]

    def _told(self, step: SchemaStep, plan: ColumnPlan) -> list[str]:
        return [*self._changes.notes(step), *plan.in_words, *self._changes.take_ran()]

    def _begin(self, place: CommandPlace, before: tuple[TableColumn, ...]) -> None:
        self._database.before_commit(self._session)
        self._watermark.begin_change(place, before)
        self._session.commit()
        reach(Failpoint.CHANGE_BEGUN)

    def _alter(
        self,
        step: SchemaStep,
        new: RegisteredArticle,
        plan: ColumnPlan,
        before: tuple[TableColumn, ...],
        fence: Callable[[], None],
    ) -> list[str]:
        if not self._database.lock_session(self._session, self._lock):
            raise fenced(self._where)
        fence()
        self._session.commit()
        self._database.wait_for_lock(self._session, _DDL_LOCK_SECONDS)
        if _names(self._changes.columns(step.old)) == _names(before):
            self._changes.change_columns(step, new, plan)
        self._changes.complete_columns(new, plan)
        key = self._changes.change_key(step)
        reach(Failpoint.COLUMNS_CHANGED)
        self._changes.follow(new)
        self._session.commit()
        reach(Failpoint.PROCEDURES_FOLLOWED)
        return key

    def _end(self, step: SchemaStep, plan: ColumnPlan) -> None:
        if step.new is not None:
            self._changes.update_rows(step.new, plan)
            self._changes.remove_rows(step, step.new)
        self._changes.record(step)

    def _fence(self, expected: bytes, place: CommandPlace, finishing: UnfinishedBatch | None) -> None:
        """Lock the watermark in the transaction. Raises FencedError where another job was here meanwhile."""
        if self._watermark.fence(expected, finishing=finishing) != place:
            raise fenced(self._where)

    @property
    def _lock(self) -> str:
        key = self._key
        database = self._session.engine.url.database or ""
        return f"{database}/{key.publisher_system}/{key.publisher_db}/{key.publication}/{key.subscription}"


def _names(columns: tuple[TableColumn, ...]) -> list[str]:
    return [it.name for it in columns]
