"""Schema changes applied at a PostgreSQL Subscriber: in the transaction of the rows before and after them, and of the
watermark.

Source: PostgreSQL documentation, `ALTER TABLE`, `ALTER TYPE`, `SET CONSTRAINTS`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import psycopg
from psycopg import sql

from tranrepl.errors import ConfigurationError, DataError, ErrorDetails, TransientError
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.schema_change import ColumnAction, SchemaChange
from tranrepl.postgres.catalogue import qualified
from tranrepl.postgres.rights import INSUFFICIENT_PRIVILEGE
from tranrepl.postgres.session import Session, own_path, translate, translated_errors
from tranrepl.schema.words import change_in_words
from tranrepl.subscriber.base.column_changes import column_plan
from tranrepl.subscriber.base.key_changes import UnfitRows
from tranrepl.subscriber.base.schema_changes import SchemaChanges
from tranrepl.subscriber.batching.steps import SchemaStep
from tranrepl.subscriber.postgres.column_types import PublishersTypes
from tranrepl.subscriber.postgres.columns import PostgresColumns, change_key
from tranrepl.subscriber.postgres.core import core
from tranrepl.subscriber.postgres.destination import find_targets
from tranrepl.subscriber.postgres.enum_labels import (
    Numbers,
    add_labels,
    alters_a_type,
    rename_types,
    type_numbers,
)
from tranrepl.subscriber.postgres.partition_changes import PartitionsApply
from tranrepl.subscriber.postgres.procedure_setup import renew_procedures
from tranrepl.subscriber.postgres.rights import LET_OWNER, lets_procedures_follow, not_owned, type_problems
from tranrepl.subscriber.postgres.table_setup import missing_types, way_on
from tranrepl.subscriber.subscription import SubscriptionKey

_LOCK_SECONDS = 2.0
"""How long the lock on a table is waited for at a time: others wait behind us meanwhile."""
_LOCK_ATTEMPTS = 6
_BETWEEN_ATTEMPTS = 1.0


class PostgresSchemaChanges(SchemaChanges):
    """Inside the open transaction."""

    def __init__(
        self,
        session: Session,
        key: SubscriptionKey,
        where: str,
        connect: Callable[[], Session],
        articles: Mapping[int, RegisteredArticle],
        unfit: UnfitRows,
    ) -> None:
        """`connect` opens another session, in autocommit."""
        super().__init__(core(session), key, where, articles, unfit)
        self._session = session
        self._key = key
        self._connect = connect

    def apply(self, step: SchemaStep) -> list[str]:
        with translated_errors(self._where):
            return super().apply(step)

    def _change(self, step: SchemaStep, new: RegisteredArticle) -> list[str]:
        change = step.change
        done = self._change_labels(step, new)
        if change.columns or change.partitions or change.rows_unknown is not None:
            done += self._alter_table(step, new)
        return [*done, *self._renew_procedures(new)]

    def _alter_table(self, step: SchemaStep, new: RegisteredArticle) -> list[str]:
        self._settle_constraints(step)
        _require_types(self._session, self._where, step.change, new)
        before = self._session.execute("SELECT pg_catalog.current_setting('lock_timeout')").fetchone()
        self._lock(step)
        columns = PostgresColumns(self._session, self._where, step, self._unfit)
        plan = column_plan(PublishersTypes(), step.change, step.old, new, columns.there(), self._where)
        done = [*columns.execute(plan.steps), *plan.notes]
        if step.change.partitions:
            done += PartitionsApply(self._session, self._where, new).apply(step)
        done += (f"{self._where}: {it}" for it in change_key(self._session, self._where, step, self._unfit))
        self._session.execute("SELECT pg_catalog.set_config('lock_timeout', %s, true)", before)
        self._session.execute("SET CONSTRAINTS ALL DEFERRED")
        return done

    def _change_labels(self, step: SchemaStep, new: RegisteredArticle) -> list[str]:
        change = step.change
        if not change.labels:
            return []
        numbers = type_numbers(self._session, step.old, new, change)
        if alters_a_type(self._session, change, numbers):
            done = list(add_labels(self._session, change, numbers))
        else:
            done = self._add_labels_before(change, numbers)
        done += rename_types(self._session, self._where, change, numbers)
        return [f"{self._where}: {it}" for it in done]

    def _add_labels_before(self, change: SchemaChange, numbers: Numbers) -> list[str]:
        """Add labels in a commit of their own: none can be used in the transaction that adds it."""
        with self._connect() as other:
            other.execute("SELECT pg_catalog.set_config('lock_timeout', %s, false)", [f"{int(_LOCK_SECONDS * 1000)}ms"])
            return list(add_labels(other, change, numbers))

    def _settle_constraints(self, step: SchemaStep) -> None:
        """Let deferred constraints be checked now: a table with checks pending cannot be altered."""
        try:
            with translated_errors(self._where), own_path(self._session):
                self._session.execute("SET CONSTRAINTS ALL IMMEDIATE")
        except DataError as error:
            raise ConfigurationError(
                f"{error.message}: a deferred constraint does not hold where its transaction changes the schema "
                f"({change_in_words(step.change)}), and it cannot wait for the commit",
                remedy="not_for_replication: true for the subscription keeps foreign keys from acting on deliveries; "
                "or drop the constraint at the Subscriber, deliver, and add it again",
                article=str(step.change.source),
            ) from error

    def _lock(self, step: SchemaStep) -> None:
        """Lock the table against all others. Its readers may hold that up: it is tried for a bounded time."""
        name = step.old.destination
        for problem in not_owned(self._session, self._where, [name]):
            raise problem
        for attempt in range(_LOCK_ATTEMPTS):
            try:
                with self._session.transaction():
                    milliseconds = f"{int(_LOCK_SECONDS * 1000)}ms"
                    self._session.execute("SELECT pg_catalog.set_config('lock_timeout', %s, true)", [milliseconds])
                    self._session.execute(sql.SQL("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE").format(qualified(name)))
                # Undone with the savepoint where it failed, kept where it did not.
                return
            except psycopg.errors.LockNotAvailable:
                if attempt + 1 < _LOCK_ATTEMPTS:
                    time.sleep(_BETWEEN_ATTEMPTS)
            except psycopg.Error as error:
                raise translate(self._where, error) from error
        raise TransientError(
            f"{self._where}: table {name} is in use: {change_in_words(step.change)} waited {_LOCK_ATTEMPTS} times for "
            "its lock",
            remedy="it is tried again with the next delivery; pg_locks and pg_stat_activity show who uses the table",
            article=str(step.change.source),
        )

    def _renew_procedures(self, new: RegisteredArticle) -> list[str]:
        (target,) = find_targets(self._session, self._where, [new])
        try:
            with translated_errors(self._where), self._session.transaction():
                return renew_procedures(self._session, self._where, self._key, target)
        except ConfigurationError as error:
            if error.report.database_code == INSUFFICIENT_PRIVILEGE:
                statements = lets_procedures_follow(self._session)
                error.add(ErrorDetails(remedy=" ".join([LET_OWNER, *(f"{it};" for it in statements)])))
            raise


def _require_types(session: Session, where: str, change: SchemaChange, new: RegisteredArticle) -> None:
    """Raise ConfigurationError where a column is to have a type that is not there, with the statements that make it, or
    one that runs the code of others."""
    for part in change.columns:
        chosen = part.action in (ColumnAction.ADD, ColumnAction.RETYPE) and part.generation_expression is None
        columns = () if new.source_definition is None else new.source_definition.columns
        needed = next(([it] for it in columns if it.type_name == part.type_name), [])
        missing = missing_types(session, needed) if chosen else []
        if missing:
            raise ConfigurationError(
                f"article {change.source}: {where}: column {part.column} is to have type {part.type_name}, and there "
                f"is no type {', '.join(it.name for it in missing)}",
                remedy=f"{'; '.join(way_on(session, it) for it in missing)}; then `tranrepl run FILE`. Where the type "
                "is there by another name, rename it instead (ALTER TYPE ... RENAME TO ..., SET SCHEMA ...)",
                article=str(change.source),
            )
        at = f"article {change.source}: {where}"
        for problem in type_problems(session, at, part.column, part.type_name or "") if chosen else ():
            raise problem
