"""Errors that a person has seen, and that need nothing more: they stay in the history, and no longer count."""

from __future__ import annotations

from tranrepl.distributor.database.errors import RecordedError, newest_errors
from tranrepl.topology import Topology

_MOST = 1000
"""The newest of those are looked at that the history has kept."""


def acknowledge_errors(topology: Topology, who: str) -> list[str]:
    """Acknowledge all errors of the publication that stand, in the name of `who`; return them, in words. Nothing else
    changes: what stopped a delivery stops it again.

    Raises ConfigurationError where the publication is not set up.
    """
    with topology.distributor() as database:
        record = database.publications.get(topology.publication.publication)
        with database.transaction() as connection:
            found = newest_errors(connection, record.publication_id, _MOST)
        unresolved = [it for it in found if it.unresolved]
        database.errors.acknowledge([it.id for it in unresolved], who)
    return [f"acknowledged: {_in_words(it)}" for it in unresolved]


def _in_words(error: RecordedError) -> str:
    report = error.report
    number = f"error {report.number}" if report.number else f"{report.kind.value} error"
    return f"{number} of {error.subscription or 'the log reader'}, {error.time:%Y-%m-%d %H:%M:%S %Z}"
