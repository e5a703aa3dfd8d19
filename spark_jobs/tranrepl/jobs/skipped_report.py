"""What is said of commands that `skip_errors` let a delivery leave out: never nothing."""

from __future__ import annotations

import shlex

from tranrepl.errors import ErrorReport
from tranrepl.jobs.results import JobResult
from tranrepl.printable import one_line
from tranrepl.remedies import Place


def skipped_warning(place: Place, result: JobResult) -> str | None:
    """Return what there is to say of commands that a delivery left out; None where it left out none."""
    if not result.skipped:
        return None
    were = "1 command was" if result.skipped == 1 else f"{result.skipped:,} commands were"
    named = "; ".join(_named(it) for it in result.first_skipped)
    first = "" if result.skipped == len(result.first_skipped) else "first "
    look, repair = skipped_steps(place, result)
    return (
        f"{were} skipped, as skip_errors says: subscription {place.subscription} lacks what they change: "
        f"{first}{named}. `{look}` shows the first one, msrepl_errors has all of them (skipped = true), and "
        f"`{repair}` finds the rows that differ"
    )


def skipped_steps(place: Place, result: JobResult) -> tuple[str, str]:
    """Return the commands that show the first one, and that compare the rows."""
    file, subscription = shlex.quote(place.settings_file), shlex.quote(place.subscription)
    seqno = next((f" --from 0x{it.xact_seqno} --to 0x{it.xact_seqno}" for it in result.first_skipped), "")
    return f"tranrepl browse {file}{seqno}", f"tranrepl validate {file} -s {subscription}"


def _named(error: ErrorReport) -> str:
    key = f" ({error.key})" if error.key else ""
    where = f"article {one_line(error.article or '')}{key}, command {error.command_id} of 0x{error.xact_seqno}"
    return f"error {error.shown_number}, {where}"
