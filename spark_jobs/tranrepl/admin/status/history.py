"""Rows of the distribution database's history, as a report has them."""

from __future__ import annotations

from collections.abc import Mapping

from tranrepl.admin.status.report import LastError, LastRun
from tranrepl.distributor.error_rows import ErrorRow
from tranrepl.distributor.tables import RunStatus
from tranrepl.next_steps import Place, step_lines


def run_of(row: Mapping[str, object] | None) -> LastRun | None:
    """Return a history row; None for none."""
    if row is None:
        return None
    name = RunStatus(int(str(row["runstatus"]))).name.lower()
    return LastRun.model_validate({"status": name, "time": row["time"], "comments": row["comments"]})


def error_of(row: ErrorRow, *, healed: bool, place: Place | None = None) -> LastError:
    """Return a row of `msrepl_errors`; for a place whose next steps are asked for, with them."""
    error = row.report
    return LastError(
        kind=error.kind,
        number=error.number,
        text=error.message,
        time=row.time,
        article=error.article,
        xact_seqno=error.xact_seqno,
        command_id=error.command_id,
        healed=healed,
        next_steps=[] if healed or place is None else list(step_lines(error, place)),
    )
