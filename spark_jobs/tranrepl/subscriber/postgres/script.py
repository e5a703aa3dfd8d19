"""Scripts run at a PostgreSQL Subscriber, in the transaction of the rows around them and of the watermark."""

from __future__ import annotations

import psycopg

from tranrepl.error_numbers import Codes
from tranrepl.errors import ConfigurationError, ErrorDetails, ReplicationError
from tranrepl.postgres.script_check import refusal
from tranrepl.postgres.session import Session, own_path, translate
from tranrepl.subscriber.batching.steps import ScriptStep
from tranrepl.subscriber.scripts import MEND_REMEDY, REWRITE_REMEDY

_ENDS_TRANSACTION = "2D000"


class ScriptApply:
    """Runs scripts, inside the open transaction."""

    def __init__(self, session: Session, where: str) -> None:
        self._session = session
        self._where = where
        self._said: list[str] = []

    def run(self, step: ScriptStep) -> None:
        """Run the whole text. Raises an error that names the script, where it fails or cannot run in a transaction;
        then the transaction must be rolled back."""
        place = ErrorDetails(xact_seqno=step.xact_seqno.hex(), command_id=step.command_id)
        if (why := refusal(step.script.sql)) is not None:
            error = ConfigurationError(f"{self._where}: script {step.script.name} is not run: {why}")
            error.add(place.model_copy(update={"remedy": REWRITE_REMEDY.format(step.xact_seqno.hex())}))
            raise error
        try:
            with own_path(self._session):
                # Without parameters: the text goes by the simple protocol, with as many statements as it has.
                self._session.execute(step.script.sql.encode())
        except psycopg.Error as error:
            problem = _problem(f"{self._where}: script {step.script.name}", error)
            problem.add(place)
            if problem.report.remedy is None:
                remedy = REWRITE_REMEDY if error.sqlstate == _ENDS_TRANSACTION else MEND_REMEDY
                problem.add(ErrorDetails(remedy=remedy.format(step.xact_seqno.hex())))
            raise problem from error
        self._said.append(f"{self._where}: ran script {step.script.name} at 0x{step.xact_seqno.hex()}")

    def take_said(self) -> list[str]:
        """Return what was run since the last call."""
        said, self._said = self._said, []
        return said


def _problem(where: str, error: psycopg.Error) -> ReplicationError:
    if error.sqlstate != _ENDS_TRANSACTION:
        return translate(where, error)
    return ConfigurationError(
        f"{where}: {error.diag.message_primary}: a COMMIT or ROLLBACK in it, or in a procedure that it calls, ends the "
        "transaction that also holds the rows around it",
        **Codes.POSTGRES.value.numbered(_ENDS_TRANSACTION),
    )
