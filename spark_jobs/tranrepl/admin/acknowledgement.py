"""Errors that a person has seen, and that need nothing more: they stay in the history, and count no more."""

from __future__ import annotations

from tranrepl.distributor.monitoring.publication import find_publication
from tranrepl.distributor.monitoring.recorded_errors import RecordedError, newest_errors
from tranrepl.topology import Topology

_MOST = 1000
"""The newest of those are looked at that the history has kept."""


def acknowledge_errors(topology: Topology, who: str) -> list[str]:
    """Acknowledge all errors of the publication that stand, in the name of `who`; return them, in words. Nothing else
    changes: what stopped a delivery stops it again.

    Raises ConfigurationError where the publication is not set up.
    """
    name = topology.publication.publication
    with topology.distributor() as database:
        database.publications.get(name)
        with database.transaction() as connection:
            record = find_publication(connection, name)
            found = [] if record is None else newest_errors(connection, record, _MOST)
        standing = [it for it in found if not (it.healed or it.skipped)]
        database.errors.acknowledge([it.id for it in standing], who)
    return [f"acknowledged: {_in_words(it)}" for it in standing]


def _in_words(error: RecordedError) -> str:
    number = f"error {error.number}" if error.number else f"{error.kind.value} error"
    return f"{number} of {error.subscription or 'the log reader'}, {error.time:%Y-%m-%d %H:%M:%S %Z}"
