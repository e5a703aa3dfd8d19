"""The model's tables, created or migrated by setup, and what it reports of that."""

from __future__ import annotations

from collections.abc import Callable

from tranrepl.distributor.database import DistributionDatabase
from tranrepl.subscriber.base.subscriber import Subscriber

Say = Callable[[str], None]


def set_up_distribution_tables(database: DistributionDatabase, say: Say) -> None:
    """Bring the distribution database's tables to this version, and report it with `say` where they were not.

    Raises ConfigurationError where a newer version made them.
    """
    before = database.version()
    database.migrate()
    _report(database.where, before, database.version(), say)


def set_up_subscriber_tables(subscriber: Subscriber, say: Say) -> None:
    """Bring the model's tables at a Subscriber to this version, and report it with `say` where they were not.

    Raises ConfigurationError where a newer version made them.
    """
    before = subscriber.tables_version()
    subscriber.set_up_tables()
    _report(subscriber.where, before, subscriber.tables_version(), say)


def _report(where: str, before: object | None, after: object | None, say: Say) -> None:
    if before is None:
        say(f"created the tables of {where}")
    elif before != after:
        say(f"migrated the tables of {where} from {before} to {after}")
