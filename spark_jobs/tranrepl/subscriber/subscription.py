"""Which subscription a Subscriber's rows are of, and where it stands."""

from __future__ import annotations

from dataclasses import dataclass

from tranrepl.errors import ConfigurationError, FencedError
from tranrepl.remedies import RUN_SETUP


@dataclass(frozen=True, slots=True)
class SubscriptionKey:
    """Which rows of the Subscriber's tables are this subscription's."""

    publisher: str
    """Host and port, as the Publisher was reached last: for people to read."""
    publisher_system: str
    """The Publisher's system identifier: two servers may have databases, publications and subscriptions of one name."""
    publisher_db: str
    publication: str
    subscription: str


@dataclass(frozen=True, slots=True)
class Stream:
    """One of the connections that apply each commit batch together. Stream 0 keeps the subscription's watermark."""

    number: int = 0
    streams: int = 1


ALONE = Stream()


@dataclass(frozen=True, slots=True)
class StreamRecord:
    """What a stream writes down with its part of a commit batch, in the same commit."""

    after: bytes
    """The subscription's watermark before."""
    last: bytes
    """… and after, once stream 0 has committed too."""
    streams: int
    division: str
    """How the commands were divided among the streams, as `Division` says it in JSON."""


@dataclass(frozen=True, slots=True)
class UnfinishedBatch:
    """A commit batch of which some streams have committed and stream 0 has not."""

    record: StreamRecord
    committed: frozenset[int]


@dataclass(frozen=True, slots=True, order=True)
class CommandPlace:
    """A command's place in the order of all."""

    xact_seqno: bytes
    command_id: int


@dataclass(frozen=True, slots=True)
class SubscriptionPosition:
    """Where a subscription stands: all up to `watermark` is applied, and parts of the `unfinished` batch after it."""

    watermark: bytes
    unfinished: UnfinishedBatch | None = None
    applied_before: CommandPlace | None = None
    """A schema change within the transaction after the watermark, where DDL ends a transaction: all commands before it
    are applied, and it is the next one."""

    @property
    def is_half_delivered(self) -> bool:
        """Return whether a part of a commit batch after the watermark is applied, and a part of it is not."""
        within = self.applied_before is not None and self.applied_before.xact_seqno > self.watermark
        return within or self.unfinished is not None


def fenced(where: str) -> FencedError:
    return FencedError(f"{where}: another job delivers to this subscription, and this one has ended")


def not_set_up(where: str, key: SubscriptionKey, database: str) -> ConfigurationError:
    return ConfigurationError(
        f"{where}: subscription {key.subscription} of publication {key.publication} is not set up in database "
        f"{database}",
        remedy=RUN_SETUP,
    )
