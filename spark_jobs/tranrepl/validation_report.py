"""What a validation found: counts, and the rows that differ by their keys. No other value of a row is in it."""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel, ConfigDict

MOST_ROWS = 10_000
"""Differing rows that are named of an article, and that can be repaired. All of them are counted."""


class Difference(StrEnum):
    MISSING = "missing"
    """At the Publisher only."""
    EXTRA = "extra"
    """At the Subscriber only."""
    DIFFERENT = "different"


class DifferingRow(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    difference: Difference
    key: dict[str, str | None]
    """By column, in text form."""
    columns: tuple[str, ...] = ()
    """Those that differ, of a row that is at both ends."""


class ArticleValidation(BaseModel):
    """One article at both ends. Without checksums (`rowcount_only`), rows are counted and not compared."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    article: str
    destination: str
    publisher_rows: int
    subscriber_rows: int
    missing: int = 0
    extra: int = 0
    different: int = 0
    rows: tuple[DifferingRow, ...] = ()
    """The first ones by key, at most `MOST_ROWS`."""
    not_repaired: str | None = None
    """Why a repair leaves this article alone."""
    repaired: int | None = None
    """Rows that a repair has corrected; None where there was none. Others were right by then: deliveries went on."""
    scripted: int = 0
    """Rows that statements were written for."""

    @property
    def differences(self) -> int:
        return self.missing + self.extra + self.different

    @property
    def settled(self) -> bool:
        """Whether nothing is left to do."""
        return self.equal or self.repaired is not None

    @property
    def equal(self) -> bool:
        return self.publisher_rows == self.subscriber_rows and not self.differences

    def summary(self) -> str:
        """As in "article dbo.a: 2 missing, 1 different"."""
        if not self.differences:
            return f"article {self.article}: {self.publisher_rows} rows, {self.subscriber_rows} at the Subscriber"
        counts = {"missing": self.missing, "extra": self.extra, "different": self.different}
        return f"article {self.article}: " + ", ".join(f"{count} {what}" for what, count in counts.items() if count)


class SubscriptionValidation(BaseModel):
    """Both ends of a subscription, compared at one transaction."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    xact_seqno: str
    """Up to which transaction of the Publisher, in hexadecimal."""
    rowcount_only: bool = False
    articles: tuple[ArticleValidation, ...] = ()

    @property
    def unequal(self) -> tuple[ArticleValidation, ...]:
        return tuple(it for it in self.articles if not it.equal)

    def shortened(self, rows: int) -> SubscriptionValidation:
        """With at most so many rows of an article named."""
        articles = tuple(it.model_copy(update={"rows": it.rows[:rows]}) for it in self.articles)
        return self.model_copy(update={"articles": articles})
