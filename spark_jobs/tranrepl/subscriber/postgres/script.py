"""Scripts run at a PostgreSQL Subscriber, in the transaction of the rows around them and of the watermark."""

from __future__ import annotations

import psycopg

from tranrepl.errors import ConfigurationError, ErrorDetails
from tranrepl.postgres.script_check import refusal
from tranrepl.postgres.session import Session, translate
from tranrepl.subscriber.batching.steps import ScriptStep
from tranrepl.subscriber.scripts import SKIP_REMEDY


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
            error.add(place.model_copy(update={"remedy": SKIP_REMEDY.format(step.xact_seqno.hex())}))
            raise error
        try:
            # Without parameters: the text goes by the simple protocol, with as many statements as it has.
            self._session.execute(step.script.sql.encode())
        except psycopg.Error as error:
            problem = translate(f"{self._where}: script {step.script.name}", error)
            problem.add(ErrorDetails(xact_seqno=step.xact_seqno.hex(), command_id=step.command_id))
            if problem.report.remedy is None:
                problem.add(ErrorDetails(remedy=SKIP_REMEDY.format(step.xact_seqno.hex())))
            raise problem from error
        self._said.append(f"{self._where}: ran script {step.script.name} at 0x{step.xact_seqno.hex()}")

    def take_said(self) -> list[str]:
        """Return what was run since the last call."""
        said, self._said = self._said, []
        return said
