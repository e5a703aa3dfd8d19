"""The agents' history: how their runs went, and what follows from that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from tranrepl.distributor.database.connection import DatabaseConnection, writable
from tranrepl.distributor.database.errors import Errors
from tranrepl.distributor.database.healing import ended_acknowledged
from tranrepl.distributor.database.history_rows import (
    did_nothing_but_meet_another,
    distribution_values,
    failed,
    history_values,
)
from tranrepl.distributor.database.publications import PublicationRecord
from tranrepl.distributor.database.subscriptions import SubscriptionRecord
from tranrepl.distributor.notifications import REGISTERED, notify
from tranrepl.distributor.tables import (
    RunStatus,
    msdistribution_history,
    mslogreader_history,
    msrepl_errors,
    mssubscriptions,
)
from tranrepl.errors import ARTICLE_DOES_NOT_EXIST, NOT_REGISTERED, ErrorKind
from tranrepl.jobs.results import JobResult
from tranrepl.jobs.validation_report import passed_comments


@dataclass(frozen=True, slots=True)
class RunRow:
    """A history row that its run still writes."""

    id: int
    record: PublicationRecord
    subscription: SubscriptionRecord | None


class History:
    """What `mslogreader_history` and `msdistribution_history` hold."""

    def __init__(self, database: DatabaseConnection, errors: Errors) -> None:
        self._database = database
        self._errors = errors

    def begin_run(
        self, record: PublicationRecord, subscription: SubscriptionRecord | None = None, *, snapshot: bool = False
    ) -> RunRow:
        """Record that a run begins, by a row of status 1: the log reader's, or one subscription's distribution or
        snapshot.

        The run's later states take its place (`updateable_row`), so that a job that was killed leaves what it
        recorded last.
        """
        table = mslogreader_history if subscription is None else msdistribution_history
        own: dict[str, Any] = {} if subscription is None else {"subscription_id": subscription.subscription_id}
        if snapshot:
            # One that is refused before it copies is a snapshot's too.
            own["snapshot"] = []
        values = history_values(JobResult()) | {"runstatus": RunStatus.START, "comments": "Starting."}
        with self._database.transaction() as connection:
            inserted = connection.execute(
                table.insert().values(
                    publication_id=record.publication_id, start_time=datetime.now(UTC), **values, **own
                )
            )
        key = inserted.inserted_primary_key
        return RunRow(int(key[0]) if key else 0, record, subscription)

    def record_progress(self, row: RunRow, result: JobResult) -> None:
        """Record what the run has done so far: status 3."""
        self._update_run(row, _run_values(row, result) | {"runstatus": RunStatus.IN_PROGRESS})

    def record_comments(self, row: RunRow, comments: str) -> None:
        """Record what the run does while nothing is counted: status 3."""
        self._update_run(row, {"runstatus": RunStatus.IN_PROGRESS, "comments": comments})

    def end_run(self, row: RunRow, result: JobResult) -> None:
        """Record how the run ended: status 2, 4, 5 or 6. One that was fenced off with nothing done leaves no row: what
        goes on is the other job's, and no error is healed by it."""
        if did_nothing_but_meet_another(result):
            table = _history_of(row)
            with self._database.transaction() as connection:
                connection.execute(table.delete().where(table.c.id == row.id))
            return
        name = row.subscription.subscription if row.subscription else None
        values = _run_values(row, result)
        if failed(result) and result.error:
            values["error_id"] = self._errors.record(row.record, result.error, name)
        self._update_run(row, values)

    def record_log_reader(self, record: PublicationRecord, result: JobResult) -> None:
        """Record a run of the log reader that has ended."""
        self.end_run(self.begin_run(record), result)

    def record_distribution(
        self, record: PublicationRecord, subscription: SubscriptionRecord, result: JobResult
    ) -> None:
        """Record a run of a distribution that has ended."""
        self.end_run(self.begin_run(record, subscription), result)

    def record_validation(self, record: PublicationRecord, subscription: SubscriptionRecord, result: JobResult) -> None:
        """Record a validation. One that has found differences has done its work: its row in `msdistribution_history`
        names error 20574, and is none of a failure."""
        values = history_values(JobResult(seconds=result.seconds, error=result.error))
        if result.error is not None:
            values["error_id"] = self._errors.record(record, result.error, subscription.subscription)
        if result.validation is not None:
            comments = result.error.message if result.error else passed_comments(result.validation)
            values |= {"runstatus": RunStatus.SUCCEED, "comments": comments}
        row = self.begin_run(record, subscription)
        self._update_run(row, values)

    def record_administration(
        self, record: PublicationRecord, subscription: SubscriptionRecord, xact_seqno: bytes, comments: str
    ) -> None:
        """Record that a watermark was moved by hand, in a row of `msdistribution_history`. A continuous delivery is
        notified, and reads it again."""
        values = history_values(JobResult(last_xact_seqno=xact_seqno.hex()))
        row = self.begin_run(record, subscription)
        self._update_run(row, values | {"runstatus": RunStatus.SUCCEED, "comments": comments})
        mine = mssubscriptions.c.subscription_id == subscription.subscription_id
        with self._database.transaction() as connection:
            # Another version of the row is what it notices.
            connection.execute(mssubscriptions.update().where(mine).values(status=mssubscriptions.c.status))
            notify(connection, record.publication_id, REGISTERED)

    def _update_run(self, row: RunRow, values: Mapping[str, object]) -> None:
        table = _history_of(row)
        with self._database.transaction() as connection:
            written = writable(connection, values)
            connection.execute(table.update().where(table.c.id == row.id).values(time=sa.func.now(), **written))

    def newest(
        self, record: PublicationRecord, subscription: SubscriptionRecord | None = None
    ) -> dict[str, object] | None:
        """Return the newest history row of the log reader, or of one subscription's distribution."""
        table = mslogreader_history if subscription is None else msdistribution_history
        query = sa.select(table, ended_acknowledged(table).label("acknowledged"))
        query = query.where(table.c.publication_id == record.publication_id)
        if subscription is not None:
            query = query.where(table.c.subscription_id == subscription.subscription_id)
        with self._database.reading() as connection:
            row = connection.execute(query.order_by(table.c.id.desc()).limit(1)).one_or_none()
        return dict(row._mapping) if row else None

    def counted(self, row: RunRow) -> JobResult:
        """Return what a run has recorded of itself, as far as its row has it."""
        table = _history_of(row)
        with self._database.reading() as connection:
            found = connection.execute(sa.select(table).where(table.c.id == row.id)).one()
        own = {} if row.subscription is None else {"in_bulk": found.bulk_commands, "fallbacks": found.fallbacks or {}}
        return JobResult(
            **own,
            transactions=found.delivered_transactions,
            commands=found.delivered_commands,
            commands_by_article=found.commands_by_article,
            latency_ms=found.delivery_latency,
            last_xact_seqno=None if found.xact_seqno is None else bytes(found.xact_seqno).hex(),
        )

    def log_reader_runs(self, record: PublicationRecord, silent: timedelta) -> bool:
        """Return whether a run of the log reader goes on. One that was killed does not, nor one that has recorded
        nothing for so long."""
        history = mslogreader_history.c
        newest = (
            sa.select(history.runstatus, (history.time > sa.func.now() - silent).label("recent"))
            .where(history.publication_id == record.publication_id)
            .order_by(history.id.desc())
            .limit(1)
        )
        with self._database.reading() as connection:
            row = connection.execute(newest).one_or_none()
        return row is not None and row.recent and row.runstatus in (RunStatus.START, RunStatus.IN_PROGRESS)

    def log_reader_has_failed(self, record: PublicationRecord) -> bool:
        """Return whether the last run of the log reader ended in an error that is not transient: a person has to do
        something, which may be setup. One that read all the log has not failed, even if it missed a table. One that met
        an edited file and read nothing does not count: the run before it does."""
        history = mslogreader_history.c
        newest = (
            sa.select(msrepl_errors.c.error_type, msrepl_errors.c.error_code)
            .select_from(mslogreader_history.outerjoin(msrepl_errors, history.error_id == msrepl_errors.c.id))
            .where(
                history.publication_id == record.publication_id,
                sa.or_(msrepl_errors.c.error_code.is_distinct_from(NOT_REGISTERED), history.delivered_transactions > 0),
            )
            .order_by(history.id.desc())
            .limit(1)
        )
        with self._database.reading() as connection:
            found = connection.execute(newest).one_or_none()
        if found is None or found.error_type in (None, ErrorKind.TRANSIENT):
            return False
        return found.error_code not in (ARTICLE_DOES_NOT_EXIST, NOT_REGISTERED)

    def last_known_watermark(self, record: PublicationRecord, subscription: SubscriptionRecord) -> bytes | None:
        """Return where the last run that knew it left the Subscriber; None before the first."""
        query = (
            sa.select(msdistribution_history.c.xact_seqno)
            .where(
                msdistribution_history.c.publication_id == record.publication_id,
                msdistribution_history.c.subscription_id == subscription.subscription_id,
                msdistribution_history.c.xact_seqno.is_not(None),
            )
            .order_by(msdistribution_history.c.id.desc())
            .limit(1)
        )
        with self._database.reading() as connection:
            seqno = connection.execute(query).scalar_one_or_none()
        return bytes(seqno) if seqno is not None else None

    def delivered_commands(self, record: PublicationRecord, subscription: SubscriptionRecord) -> dict[str, int]:
        """Return the commands delivered since the subscription was created, by article."""
        query = sa.select(msdistribution_history.c.commands_by_article).where(
            msdistribution_history.c.publication_id == record.publication_id,
            msdistribution_history.c.subscription_id == subscription.subscription_id,
        )
        removed = sa.select(mssubscriptions.c.delivered_commands).where(
            mssubscriptions.c.subscription_id == subscription.subscription_id
        )
        with self._database.transaction() as connection:
            before = connection.execute(removed).scalar_one()
            return _sum_by_article([before or {}, *connection.execute(query).scalars()])

    def remove(self, record: PublicationRecord, age: timedelta) -> int:
        """Remove history rows so old, and errors, save the newest row of each agent and the newest that knows its
        position. What they say of delivered commands is kept in sum. Returns the number of rows.
        """
        with self._database.transaction() as connection:
            removed = self._remove_rows(connection, mslogreader_history, record, age)
            rows = self._remove_rows(connection, msdistribution_history, record, age)
            for subscription_id in {row.subscription_id for row in rows}:
                mine = mssubscriptions.c.subscription_id == subscription_id
                known = connection.execute(
                    sa.select(mssubscriptions.c.delivered_commands).where(mine).with_for_update()
                ).scalar_one()
                gone = [row.commands_by_article for row in rows if row.subscription_id == subscription_id]
                connection.execute(
                    mssubscriptions.update()
                    .where(mine)
                    .values(delivered_commands=_sum_by_article([known or {}, *gone]))
                )
            errors = connection.execute(
                msrepl_errors.delete().where(
                    msrepl_errors.c.publication_id == record.publication_id,
                    msrepl_errors.c.time <= sa.func.now() - age,
                    *(
                        ~sa.exists().where(history.c.error_id == msrepl_errors.c.id)
                        for history in (mslogreader_history, msdistribution_history)
                    ),
                )
            )
        return len(removed) + len(rows) + errors.rowcount

    def _remove_rows(
        self, connection: sa.Connection, table: sa.Table, record: PublicationRecord, age: timedelta
    ) -> Sequence[sa.Row[Any]]:
        agent = [table.c.subscription_id] if "subscription_id" in table.c else [table.c.publication_id]
        newest = sa.select(sa.func.max(table.c.id)).group_by(*agent)
        return connection.execute(
            table.delete()
            .where(
                table.c.publication_id == record.publication_id,
                table.c.time <= sa.func.now() - age,
                table.c.id.not_in(newest),
                table.c.id.not_in(newest.where(table.c.xact_seqno.is_not(None))),
            )
            .returning(table)
        ).all()


def _history_of(row: RunRow) -> sa.Table:
    return mslogreader_history if row.subscription is None else msdistribution_history


def _run_values(row: RunRow, result: JobResult) -> dict[str, Any]:
    return history_values(result) if row.subscription is None else distribution_values(result)


def _sum_by_article(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for row in counts:
        for article, commands in row.items():
            total[article] = total.get(article, 0) + commands
    return total
