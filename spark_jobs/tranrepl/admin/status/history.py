"""Rows of the distribution database's history, as a report has them."""

from __future__ import annotations

from collections.abc import Mapping

from tranrepl.admin.status.report import LastError, LastRun
from tranrepl.distributor.database import ErrorRow
from tranrepl.distributor.tables import RunStatus
from tranrepl.next_steps import Place, step_lines


def run_of(row: Mapping[str, object] | None) -> LastRun | None:
    """Return a history row; None for none."""
    if row is None:
        return None
    name = RunStatus(int(str(row["runstatus"]))).name.lower()
    chosen = {it: row[it] for it in ("time", "comments", "acknowledged")}
    return LastRun.model_validate({"status": name, **chosen})


def error_of(row: ErrorRow, *, healed: bool, place: Place | None = None) -> LastError:
    """Return a row of `msrepl_errors`; for a place whose next steps are asked for, with them."""
    healed = healed or row.acknowledged_at is not None
    steps = () if healed or place is None else tuple(step_lines(row.report, place))
    return LastError(
        **row.report.model_dump(),
        time=row.time,
        healed=healed,
        acknowledged_at=row.acknowledged_at,
        acknowledged_by=row.acknowledged_by,
        next_steps=steps,
    )
