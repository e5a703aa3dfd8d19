"""Errors with what can be done about them, for those who may see values of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import sqlalchemy as sa

from tranrepl.distributor.monitoring.publication import MonitoredRecord
from tranrepl.distributor.monitoring.recorded_errors import RecordedError, newest_errors
from tranrepl.errors import ErrorReport
from tranrepl.next_steps import Place, step_lines, usual_file
from tranrepl_airflow.monitor.overview import WITHHELD

PAGE = 50
"""Errors on one page."""


@dataclass(frozen=True, slots=True)
class ShownError:
    """An error. Who may not edit the DAG sees neither its text, nor the key, nor the command."""

    error: RecordedError
    next_steps: Sequence[str]
    """What can be done, as lines of a shell; none where it is healed, was skipped, or is not the agent's newest."""


@dataclass(frozen=True, slots=True)
class ErrorList:
    errors: Sequence[ShownError]
    subscriptions: Sequence[str]
    """All of the publication."""
    earlier: int | None
    """What to ask for `before` to get the earlier ones; None where there are none."""


@dataclass(frozen=True, slots=True)
class ErrorQuestion:
    """Which errors are looked at."""

    publication: str
    may_edit: bool
    subscription: str | None = None
    before: int | None = None

    def ask(self, connection: sa.Connection, record: MonitoredRecord) -> ErrorList:
        """Return the newest of the chosen errors, the latest first."""
        found = newest_errors(connection, record, PAGE + 1, self.subscription, self.before)
        errors = found[:PAGE]
        newest = {it.subscription: it.id for it in reversed(errors)} if self.before is None else {}
        return ErrorList(
            [self._shown(it, is_newest=newest.get(it.subscription) == it.id) for it in errors],
            [it.subscription for it in record.subscriptions.values()],
            errors[-1].id if len(found) > PAGE else None,
        )

    def _shown(self, error: RecordedError, *, is_newest: bool) -> ShownError:
        if not self.may_edit:
            return ShownError(replace(error, text=WITHHELD, key=None, command=None), [])
        stands = is_newest and not (error.healed or error.skipped)
        return ShownError(error, list(self._steps(error)) if stands else [])

    def _steps(self, error: RecordedError) -> Sequence[str]:
        report = ErrorReport(
            kind=error.kind,
            message=error.text,
            number=error.number,
            xact_seqno=error.xact_seqno.removeprefix("0x") if error.xact_seqno else None,
            command_id=error.command_id,
            article=error.article,
            key=error.key,
            not_repaired=error.not_repaired,
            schema_change=error.schema_change,
        )
        return list(step_lines(report, Place(usual_file(self.publication), error.subscription or "")))
