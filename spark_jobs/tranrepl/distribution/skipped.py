"""Skipped commands, recorded in `MSrepl_errors` by whoever applies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tranrepl.connections import Connection
from tranrepl.distributor.database import DistributionDatabase
from tranrepl.errors import ErrorReport


@dataclass(frozen=True, slots=True)
class SkippedCommands:
    """It travels pickled with the delivery, password and all."""

    connection: Connection
    """The distribution database's."""
    publication: str
    subscription: str

    def record(self, errors: Sequence[ErrorReport]) -> None:
        """Record the errors of skipped commands. Raises ReplicationError where the distribution database cannot be
        reached: then nothing is skipped."""
        with DistributionDatabase(self.connection) as database:
            database.errors.record_skipped(database.publications.get(self.publication), self.subscription, errors)
