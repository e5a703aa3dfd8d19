"""The model's tables, created or migrated by setup, and what it reports of that."""

from __future__ import annotations

from collections.abc import Callable

from tranrepl.distributor.database import DistributionDatabase
from tranrepl.distributor.version import this_version
from tranrepl.subscriber.base.subscriber import Subscriber
from tranrepl.subscriber.replication_tables import THIS_VERSION

Say = Callable[[str], None]


def set_up_distribution_tables(database: DistributionDatabase, say: Say) -> None:
    """Bring the distribution database's tables to this version, and report it with `say` where they were not.

    Raises ConfigurationError where a newer version made them.
    """
    _report(database.where, database.migrate(), this_version(), say)


def set_up_subscriber_tables(subscriber: Subscriber, say: Say) -> None:
    """Bring the model's tables at a Subscriber to this version, and report it with `say` where they were not.

    Raises ConfigurationError where a newer version made them.
    """
    _report(subscriber.where, subscriber.set_up_tables(), THIS_VERSION, say)


def _report(where: str, before: object | None, after: object, say: Say) -> None:
    if before is None:
        say(f"created the tables of {where}")
    elif before != after:
        say(f"migrated the tables of {where} from {before} to {after}")
