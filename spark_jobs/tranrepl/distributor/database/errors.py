"""Errors as they are recorded: what stopped an agent, and commands that were skipped."""

from __future__ import annotations

from collections.abc import Sequence

from tranrepl.distributor.database.connection import DatabaseConnection
from tranrepl.distributor.database.publications import PublicationRecord
from tranrepl.distributor.tables import msrepl_errors
from tranrepl.distributor.text_encoding import writable
from tranrepl.errors import ErrorReport


class Errors:
    """What `msrepl_errors` holds."""

    def __init__(self, database: DatabaseConnection) -> None:
        self._database = database

    def record(self, record: PublicationRecord, error: ErrorReport, subscription: str | None = None) -> int:
        """Record what stopped an agent. Returns the row's id, which goes into the history row."""
        with self._database.transaction() as connection:
            values = writable(connection, _error_values(record, error, subscription))
            result = connection.execute(msrepl_errors.insert().values(**values))
        key = result.inserted_primary_key
        return int(key[0]) if key else 0

    def record_skipped(self, record: PublicationRecord, subscription: str, errors: Sequence[ErrorReport]) -> None:
        """Record commands that `skip_errors` left out, with what they were."""
        with self._database.transaction() as connection:
            rows = [{**_error_values(record, error, subscription), "skipped": True} for error in errors]
            connection.execute(msrepl_errors.insert(), [writable(connection, row) for row in rows])


def _error_values(record: PublicationRecord, error: ErrorReport, subscription: str | None) -> dict[str, object]:
    """Return a row of `msrepl_errors`."""
    return {
        "publication_id": record.publication_id,
        "subscription": subscription,
        "error_type": error.kind,
        "error_code": error.shown_number or None,
        "error_text": "\n".join(filter(None, [error.message, error.remedy])),
        "article": error.article,
        "xact_seqno": bytes.fromhex(error.xact_seqno) if error.xact_seqno else None,
        "command_id": error.command_id,
        "command": error.command,
    }
