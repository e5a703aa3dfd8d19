"""What Subscribers say of scripts, whatever their database."""

from __future__ import annotations

from tranrepl.subscriber.batching.steps import ScriptStep

SKIP_REMEDY = (
    "mend what it needs at the Subscriber and deliver again; or `tranrepl skip FILE -s SUBSCRIPTION --xact-seqno 0x{}` "
    "leaves out its transaction there, which holds nothing else where `tranrepl exec FILE` wrote it"
)


def not_run(step: ScriptStep, where: str, title: str) -> str:
    """Return what is told where a script is passed over."""
    return (
        f"{where}: script {step.script.name} at 0x{step.xact_seqno.hex()} was not run: it is for PostgreSQL "
        f"Subscribers, and this is {title}"
    )
