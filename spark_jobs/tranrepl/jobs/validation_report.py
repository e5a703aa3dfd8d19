"""What a validation found: counts, and the rows that differ by their keys. No other value of a row is in it."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from pydantic import BaseModel, ConfigDict

from tranrepl.printable import counted

MOST_ROWS = 10_000
"""Differing rows that are named of an article, and that can be repaired. All of them are counted."""
COUNTS_EQUAL = "counts equal; contents not compared"
"""All that `rowcount_only` can say of two tables that have as many rows."""


class Difference(StrEnum):
    MISSING = "missing"
    """The row is at the Publisher only."""
    EXTRA = "extra"
    """The row is at the Subscriber only."""
    DIFFERENT = "different"


class DifferingRow(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    difference: Difference
    key: dict[str, str | None]
    """The key's values in text form, by column."""
    columns: tuple[str, ...] = ()
    """Those that differ, of a row that is at both ends."""

    def in_words(self) -> str:
        """Return as in "id = 5  different: name, price"."""
        columns = f": {', '.join(self.columns)}" if self.columns else ""
        return f"{self.key_in_words()}  {self.difference}{columns}"

    def key_in_words(self) -> str:
        """Return as in "id = 5, line = NULL"."""
        return ", ".join(f"{name} = {'NULL' if value is None else value}" for name, value in self.key.items())


class Comparison(BaseModel):
    """What of an article was compared, and what was not."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    columns: tuple[str, ...] = ()
    """None where rows were counted, and their contents not compared."""
    converted: dict[str, str] = {}
    """Columns of another type at the Subscriber, which the Publisher's values were compared as."""
    unpublished: tuple[str, ...] = ()
    """The Publisher's columns that do not travel, generated ones among them."""
    own: tuple[str, ...] = ()
    """The Subscriber's columns that are nobody else's."""
    row_filter: str | None = None
    """The Publisher's rows are those that it is true for."""

    def of_rows_only(self) -> Comparison:
        """Return the same comparison where rows are only counted."""
        return Comparison(row_filter=self.row_filter)

    @property
    def is_partial(self) -> bool:
        """Whether something of the article was not compared, or not as it is."""
        return bool(self.converted or self.unpublished or self.own or self.row_filter or not self.columns)

    def summary(self) -> str:
        """Summarize, as in "5 columns (price as numeric(12,2)); not compared: secret; row filter applied"."""
        parts = [self._compared()]
        left_out = (*self.unpublished, *(f"{name} (the Subscriber's own)" for name in self.own))
        if left_out:
            parts.append(f"not compared: {_listed(left_out)}")
        if self.row_filter is not None:
            parts.append("row filter applied")
        return "; ".join(parts)

    def _compared(self) -> str:
        if not self.columns:
            return "rows counted; contents not compared"
        columns = f"{len(self.columns)} column{'s' if len(self.columns) > 1 else ''}"
        converted = _listed([f"{name} as {type_name}" for name, type_name in self.converted.items()])
        return f"{columns} ({converted})" if converted else columns


_MOST_LISTED = 3


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_LISTED} more" if len(names) > _MOST_LISTED else ""
    return ", ".join(names[:_MOST_LISTED]) + more


def _few(articles: Sequence[str]) -> str:
    return ", ".join(articles) if len(articles) <= _MOST_LISTED else counted(len(articles), "article")


class ArticleValidation(BaseModel):
    """One article at both ends. Without checksums (`rowcount_only`), rows are counted and not compared."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    article: str
    destination: str
    publisher_rows: int
    subscriber_rows: int
    compared: Comparison = Comparison()
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
        """Summarize, as in "article dbo.a: 2 missing, 1 different"."""
        if not self.differences:
            rows = counted(self.publisher_rows, "row")
            return f"article {self.article}: {rows}, {self.subscriber_rows:,} at the Subscriber"
        counts = {"missing": self.missing, "extra": self.extra, "different": self.different}
        return f"article {self.article}: " + ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)


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

    def in_few_lines(self, whole: str) -> list[str]:
        """Return what was compared: a line for all articles, and one for those that differ of each kind. `whole` says
        where the rest is."""
        groups: dict[str, list[str]] = {}
        for it in self.articles:
            groups.setdefault(it.compared.summary(), []).append(it.article)
        if len(groups) == 1:
            return [f"{what}: {_few(articles)}" for what, articles in groups.items()]
        # Where all columns were compared as they are, there is nothing to say of an article.
        unequal = {it.article for it in self.unequal if it.compared.is_partial}
        details = {what: [it for it in articles if it in unequal] for what, articles in groups.items()}
        lines = (f"{what}: {_few(articles)}" for what, articles in details.items() if articles)
        return [f"{self._in_one_line()} ({whole})", *lines]

    def _in_one_line(self) -> str:
        compared = [it.compared for it in self.articles]
        found = {
            "columns compared": sum(len(it.columns) for it in compared),
            "as another type": sum(len(it.converted) for it in compared),
            "not compared": sum(len(it.unpublished) + len(it.own) for it in compared),
        }
        counts = ", ".join(f"{count:,} {what}" for what, count in found.items() if count)
        filtered = sum(it.row_filter is not None for it in compared)
        parts = [
            counts or "rows counted; contents not compared",
            *([f"row filters applied to {counted(filtered, 'article')}"] if filtered else []),
        ]
        return f"{counted(len(compared), 'article')}: {'; '.join(parts)}"

    def shortened(self, rows: int) -> SubscriptionValidation:
        """Return the validation with at most so many rows of an article named."""
        articles = tuple(it.model_copy(update={"rows": it.rows[:rows]}) for it in self.articles)
        return self.model_copy(update={"articles": articles})


PASSED = "Validation passed"
"""Beginning of the history's comment on a validation that compared contents. The words are those of error 20575."""

COMPARED_ARTICLES = ": {} article"
"""What such a comment says of how many articles it is begins so, for one and for many."""


def passed_comments(validation: SubscriptionValidation) -> str:
    """Return what the history says of a validation that left nothing to do."""
    rows = sum(it.subscriber_rows for it in validation.articles)
    compared = f"at 0x{validation.xact_seqno}{_compared_articles(len(validation.articles))}, {counted(rows, 'row')}"
    if validation.rowcount_only:
        return f"{COUNTS_EQUAL.capitalize()} {compared}."
    repaired = sum(it.repaired or 0 for it in validation.articles)
    mended = f"; repaired {counted(repaired, 'row')}" if repaired else ""
    return f"{PASSED} {compared}{mended}."


def _compared_articles(number: int) -> str:
    return COMPARED_ARTICLES.format(number) + ("" if number == 1 else "s")
