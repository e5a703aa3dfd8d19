"""Scripts run at a PostgreSQL Subscriber, in the transaction of the rows around them and of the watermark."""

from __future__ import annotations

import psycopg

from tranrepl.error_numbers import Codes
from tranrepl.errors import ConfigurationError, ErrorDetails, ReplicationError
from tranrepl.postgres.script_check import refusal
from tranrepl.postgres.session import Session, own_path, translate
from tranrepl.subscriber.batching.steps import ScriptStep

_ENDS_TRANSACTION = "2D000"
_SKIP = "`tranrepl skip FILE -s NAME --xact-seqno 0x{}` leaves the script out at this Subscriber"
_MEND = f"mend what it needs at the Subscriber and deliver again; or {_SKIP}"
_REWRITE = f"{_SKIP}; run it without that statement then: `tranrepl exec FILE --sql SCRIPT.sql`"
"""For a script that can never run as it stands."""


def run_script(session: Session, where: str, step: ScriptStep) -> str:
    """Run the whole text inside the open transaction; return what is told of it. Raises an error that names the
    script, where it fails or cannot run in a transaction; then the transaction must be rolled back."""
    place = ErrorDetails(xact_seqno=step.xact_seqno.hex(), command_id=step.command_id)
    if (why := refusal(step.script.sql)) is not None:
        error = ConfigurationError(f"{where}: script {step.script.name} is not run: {why}")
        error.add(place.model_copy(update={"remedy": _REWRITE.format(step.xact_seqno.hex())}))
        raise error
    try:
        with own_path(session):
            # Without parameters: the text goes by the simple protocol, with as many statements as it has.
            session.execute(step.script.sql.encode())
    except psycopg.Error as error:
        problem = _problem(f"{where}: script {step.script.name}", error)
        problem.add(place)
        if problem.report.remedy is None:
            remedy = _REWRITE if error.sqlstate == _ENDS_TRANSACTION else _MEND
            problem.add(ErrorDetails(remedy=remedy.format(step.xact_seqno.hex())))
        raise problem from error
    return f"{where}: ran script {step.script.name} at 0x{step.xact_seqno.hex()}"


def _problem(where: str, error: psycopg.Error) -> ReplicationError:
    if error.sqlstate != _ENDS_TRANSACTION:
        return translate(where, error)
    return ConfigurationError(
        f"{where}: {error.diag.message_primary}: a COMMIT or ROLLBACK in it, or in a procedure that it calls, ends the "
        "transaction that also holds the rows around it",
        **Codes.POSTGRES.value.numbered(_ENDS_TRANSACTION),
    )
