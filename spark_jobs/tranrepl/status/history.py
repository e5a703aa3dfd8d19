"""Rows of the distribution database's history, as a report has them."""

from __future__ import annotations

from collections.abc import Mapping

from tranrepl.distributor.error_rows import ErrorRow
from tranrepl.distributor.tables import RunStatus
from tranrepl.status.report import LastError, LastRun


def run_of(row: Mapping[str, object] | None) -> LastRun | None:
    """Return a history row; None for none."""
    if row is None:
        return None
    name = RunStatus(int(str(row["runstatus"]))).name.lower()
    return LastRun.model_validate({"status": name, "time": row["time"], "comments": row["comments"]})


def error_of(row: ErrorRow, *, healed: bool) -> LastError:
    """Return a row of `msrepl_errors`."""
    return LastError(
        kind=row.kind,
        number=row.number,
        text=row.text,
        time=row.time,
        article=row.article,
        xact_seqno=row.xact_seqno.hex() if row.xact_seqno is not None else None,
        command_id=row.command_id,
        healed=healed,
    )
