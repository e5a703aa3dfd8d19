"""What Subscribers say of scripts, whatever their database."""

from __future__ import annotations

from tranrepl.subscriber.batching.steps import ScriptStep

_SKIP = "`tranrepl skip FILE -s NAME --xact-seqno 0x{}` leaves the script out at this Subscriber"
MEND_REMEDY = f"mend what it needs at the Subscriber and deliver again; or {_SKIP}"
REWRITE_REMEDY = f"{_SKIP}; run it without that statement then: `tranrepl exec FILE --sql SCRIPT.sql`"
"""For a script that can never run as it stands."""


def not_run(step: ScriptStep, where: str, title: str) -> str:
    """Return what is told where a script is passed over."""
    return (
        f"{where}: script {step.script.name} at 0x{step.xact_seqno.hex()} was not run: it is for PostgreSQL "
        f"Subscribers, and this is {title}"
    )
