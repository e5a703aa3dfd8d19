"""How long commands took, leg by leg: counted by how long, so that what several runs counted can be added up.

A quantile of two runs cannot be had from theirs. From a millisecond on, eight buckets of one width each go up to twice
of where they begin, so that a quantile is known within some percent, and a run takes a few dozen numbers, however many
commands it delivers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import StrEnum

from pydantic import BaseModel, ConfigDict

BUCKETS_PER_DOUBLING = 8
LAST_BUCKET = 1 + 32 * BUCKETS_PER_DOUBLING
"""The bucket of all that took longer than some weeks. Bucket 0 is below a millisecond."""
_HALF_A_MILLISECOND = 0.0005

Buckets = dict[int, int]
"""How many commands each bucket has; those without any are left out."""


class Leg(StrEnum):
    """A part of a change's way."""

    REGISTERED = "registered"
    """From the commit at the Publisher until it is registered in the distribution database."""
    DELIVERED = "delivered"
    """From there until the commit at the Subscriber."""
    OVERALL = "overall"
    """From commit to commit."""

    @property
    def in_words(self) -> str:
        """Its name in the terminal and in Replication Monitor."""
        return _IN_WORDS[self]


_IN_WORDS = {
    Leg.REGISTERED: "Publisher → Distributor",
    Leg.DELIVERED: "Distributor → Subscriber",
    Leg.OVERALL: "total",
}


class Quantiles(BaseModel):
    """Seconds within which half of the commands, 95 % and 99 % of them were there."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    p50: float
    p95: float
    p99: float


class LatencyByLeg(BaseModel):
    """The commands of each bucket, by leg."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    registered: Buckets = {}
    delivered: Buckets = {}
    overall: Buckets = {}
    clock_difference: int | None = None
    """µs by which the Publisher's clock was ahead of the distribution database's, as last measured. Latencies are
    without it."""

    @property
    def commands(self) -> int:
        return sum(self.overall.values())

    def of(self, leg: Leg) -> Buckets:
        """Return the commands of a leg's buckets."""
        return {Leg.REGISTERED: self.registered, Leg.DELIVERED: self.delivered, Leg.OVERALL: self.overall}[leg]

    def quantiles(self, leg: Leg) -> Quantiles | None:
        """Return a leg's quantiles; None where nothing was counted."""
        counts = self.of(leg)
        if not counts:
            return None
        return Quantiles(p50=quantile(counts, 0.5), p95=quantile(counts, 0.95), p99=quantile(counts, 0.99))

    def all_quantiles(self) -> dict[Leg, Quantiles]:
        """Return the quantiles of each leg; nothing where nothing was counted."""
        found = ((leg, self.quantiles(leg)) for leg in Leg)
        return {leg: it for leg, it in found if it is not None}

    def plus(self, later: LatencyByLeg) -> LatencyByLeg:
        """Add up what both counted, `later` with the later measurement of the clocks."""
        return together((self, later))


NOTHING_MEASURED = LatencyByLeg()


class DeliveredMinute(BaseModel):
    """What was committed at a Subscriber within a minute, by the distribution database's clock."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    minute: int
    """Minutes since 1970 UTC."""
    transactions: int = 0
    commands: int = 0
    latency: LatencyByLeg = NOTHING_MEASURED

    def plus(self, later: DeliveredMinute) -> DeliveredMinute:
        """Add up what both counted within the same minute."""
        return DeliveredMinute(
            minute=self.minute,
            transactions=self.transactions + later.transactions,
            commands=self.commands + later.commands,
            latency=self.latency.plus(later.latency),
        )


def by_minute(delivered: Iterable[DeliveredMinute]) -> tuple[DeliveredMinute, ...]:
    """Add up what was counted within the same minutes; in order."""
    found: dict[int, DeliveredMinute] = {}
    for it in delivered:
        found[it.minute] = found[it.minute].plus(it) if it.minute in found else it
    return tuple(found[minute] for minute in sorted(found))


def together(parts: Iterable[LatencyByLeg]) -> LatencyByLeg:
    """Add up what all of them counted, the latest last."""
    legs: dict[Leg, Counter[int]] = {leg: Counter() for leg in Leg}
    clock_difference = None
    for part in parts:
        for leg, counts in legs.items():
            counts.update(part.of(leg))
        if part.clock_difference is not None:
            clock_difference = part.clock_difference
    sorted_legs = {leg.value: dict(sorted(counts.items())) for leg, counts in legs.items()}
    return LatencyByLeg(**sorted_legs, clock_difference=clock_difference)


def quantile(counts: Mapping[int, int], share: float) -> float:
    """Return the seconds within which this share of the commands (0 to 1) was there: the middle of their bucket."""
    wanted, found = share * sum(counts.values()), 0
    for bucket in sorted(counts):
        found += counts[bucket]
        if found >= wanted:
            return _middle(bucket)
    raise ValueError("nothing was counted")


def _middle(bucket: int) -> float:
    if bucket == 0:
        return _HALF_A_MILLISECOND
    doublings, part = divmod(bucket - 1, BUCKETS_PER_DOUBLING)
    return float(2**doublings * (1 + (part + 0.5) / BUCKETS_PER_DOUBLING) / 1000)
