"""Both ends of articles, compared: checksums of whole tables first, then of buckets where those differ, then rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from tranrepl.jobs.validation_report import MOST_ROWS, ArticleValidation, Comparison, Difference, DifferingRow
from tranrepl.model.arrays import Ints
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.comparison import ComparedEnd, Rows
from tranrepl.validation.reading import Reader

_ROWS_A_BUCKET = 512
_FEWEST_BUCKETS = 256
_MOST_BUCKETS = 65_536
_ROWS_AT_ONCE = 500_000
"""Rows of which the numbers are in memory, of each end."""
_KEYS_AT_ONCE = 2_000
_FIRST_KEYS = 16
"""How large rows are is not known before."""
_BYTES_AT_ONCE = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ComparedArticle:
    article: RegisteredArticle
    publisher: ComparedEnd
    subscriber: ComparedEnd
    what: Comparison

    @property
    def ends(self) -> tuple[ComparedEnd, ComparedEnd]:
        return self.publisher, self.subscriber


@dataclass(frozen=True, slots=True)
class FoundRow:
    """A row that differs, by the number of its key."""

    number: int
    row: DifferingRow
    repeated: bool = False
    """An extra row whose key is at the Publisher too: the Subscriber's table lacks the key."""


@dataclass(slots=True)
class Found:
    """An article's differences."""

    compared: ComparedArticle
    publisher_rows: int
    subscriber_rows: int
    what: Comparison
    counts: dict[Difference, int] = field(default_factory=lambda: dict.fromkeys(Difference, 0))
    rows: list[FoundRow] = field(default_factory=list)

    def report(self) -> ArticleValidation:
        article = self.compared.article
        return ArticleValidation(
            article=str(article.source),
            destination=str(article.destination),
            publisher_rows=self.publisher_rows,
            subscriber_rows=self.subscriber_rows,
            compared=self.what,
            missing=self.counts[Difference.MISSING],
            extra=self.counts[Difference.EXTRA],
            different=self.counts[Difference.DIFFERENT],
            rows=tuple(it.row for it in self.rows),
        )


def compare(reader: Reader, articles: Sequence[ComparedArticle], *, rowcount_only: bool) -> list[Found]:
    """Compare both ends of each article. Raises ReplicationError where an end cannot be read."""
    totals = _totals(reader, articles, rowcount_only=rowcount_only)
    found = []
    for compared, (publisher, subscriber) in zip(articles, totals, strict=True):
        what = compared.what.of_rows_only() if rowcount_only else compared.what
        it = Found(compared, publisher[0], subscriber[0], what)
        if publisher != subscriber and not rowcount_only:
            _find(reader, it)
        found.append(it)
    return found


Total = tuple[int, int]
"""Rows and their checksum."""


def _totals(reader: Reader, articles: Sequence[ComparedArticle], *, rowcount_only: bool) -> list[tuple[Total, Total]]:
    """Return the totals of both ends of each article. One job for all, the ends' parts side by side."""
    ends = [end for compared in articles for end in compared.ends]
    reads = [
        (at, end.read(end.side.count(part) if rowcount_only else end.side.checksum(part)))
        for at, end in enumerate(ends)
        for part in end.parts
    ]
    totals: list[Total] = [(0, 0)] * len(ends)
    for (at, _), ((rows, checksum),) in zip(reads, reader.read([read for _, read in reads]), strict=True):
        totals[at] = (totals[at][0] + rows, totals[at][1] ^ checksum)
    return list(zip(totals[::2], totals[1::2], strict=True))


def _find(reader: Reader, found: Found) -> None:
    rows = max(found.publisher_rows, found.subscriber_rows)
    buckets = _bucket_count(rows)
    publisher, subscriber = _buckets(reader, found.compared, buckets)
    differing = np.flatnonzero((publisher != subscriber).any(axis=1))
    numbers = {it: np.zeros(0, np.int64) for it in Difference}
    for chosen in _chunks(differing, np.maximum(publisher[:, 0], subscriber[:, 0])):
        for difference, some in _different_numbers(reader, found.compared, buckets, chosen).items():
            found.counts[difference] += len(some)
            numbers[difference] = np.concatenate([numbers[difference], some])[:MOST_ROWS]
    wanted = np.unique(np.concatenate(list(numbers.values())))[:MOST_ROWS]
    found.rows = sorted(rows_of(reader, found.compared, wanted.tolist()), key=_by_key)


def _by_key(found: FoundRow) -> list[tuple[bool, int, str]]:
    """Return a sort key for the row: numbers by their size, as far as text tells it."""
    values = found.row.key.values()
    return [(value is None, len(value or "") if (value or "").isdecimal() else 0, value or "") for value in values]


def _bucket_count(rows: int) -> int:
    wanted = 1 << max(0, (rows // _ROWS_A_BUCKET).bit_length())
    return min(max(wanted, _FEWEST_BUCKETS), _MOST_BUCKETS)


def _buckets(reader: Reader, compared: ComparedArticle, buckets: int) -> tuple[Ints, Ints]:
    """Return rows and checksum of each bucket at both ends, shape (buckets, 2) each."""
    reads = [
        (at, end.read(end.side.buckets(buckets, part))) for at, end in enumerate(compared.ends) for part in end.parts
    ]
    sums = (np.zeros((buckets, 2), np.int64), np.zeros((buckets, 2), np.int64))
    for (at, _), rows in zip(reads, reader.read([read for _, read in reads]), strict=True):
        if rows:
            part = np.array(rows, dtype=np.int64)
            sums[at][part[:, 0], 0] += part[:, 1]
            sums[at][part[:, 0], 1] ^= part[:, 2]
    return sums


def _chunks(buckets: Ints, rows: Ints) -> Iterator[list[int]]:
    """Yield buckets of up to `_ROWS_AT_ONCE` rows together; a larger one by itself."""
    chunk: list[int] = []
    weight = 0
    for bucket in buckets.tolist():
        if chunk and weight + rows[bucket] > _ROWS_AT_ONCE:
            yield chunk
            chunk, weight = [], 0
        chunk.append(bucket)
        weight += int(rows[bucket])
    if chunk:
        yield chunk


def _different_numbers(
    reader: Reader, compared: ComparedArticle, buckets: int, chosen: Sequence[int]
) -> dict[Difference, Ints]:
    """Return the numbers of the keys whose rows differ."""
    answers = reader.read([end.read(end.side.numbers(buckets, chosen)) for end in compared.ends])
    publisher, subscriber = (_pairs(rows) for rows in answers)
    only_publisher = np.setdiff1d(publisher, subscriber)["key"]
    only_subscriber = np.setdiff1d(subscriber, publisher)["key"]
    different = np.intersect1d(only_publisher, only_subscriber)
    repeated = _repeated(subscriber, publisher)
    return {
        Difference.MISSING: np.setdiff1d(only_publisher, different),
        Difference.EXTRA: np.setdiff1d(np.union1d(only_subscriber, repeated), different),
        Difference.DIFFERENT: different,
    }


_PAIR = np.dtype([("key", np.int64), ("row", np.int64)])


def _pairs(rows: Rows) -> npt.NDArray[np.void]:
    return np.array(rows, dtype=_PAIR) if rows else np.zeros(0, _PAIR)


def _repeated(subscriber: npt.NDArray[np.void], publisher: npt.NDArray[np.void]) -> Ints:
    """Return the keys of rows that the Subscriber has more often: its table may lack the key."""
    keys, counts = np.unique(subscriber["key"], return_counts=True)
    return np.intersect1d(keys[counts > 1], publisher["key"])


def rows_of(reader: Reader, compared: ComparedArticle, numbers: Sequence[int]) -> list[FoundRow]:
    """Return the rows whose keys have these numbers, where they differ."""
    found: list[FoundRow] = []
    read, at_once = 0, _FIRST_KEYS
    while some := list(numbers[read : read + at_once]):
        answers = reader.read([end.read(end.side.rows(some)) for end in compared.ends])
        found += _differing(compared.article, *answers)
        read += len(some)
        at_once = _keys_at_once(len(some), answers)
    return found


def _keys_at_once(keys: int, answers: Sequence[Rows]) -> int:
    """Return how many more keys weigh no more than `_BYTES_AT_ONCE`, if they are like these."""
    values = (value for rows in answers for row in rows for value in row)
    weight = sum(len(it) for it in values if isinstance(it, str | bytes))
    return max(1, min(_KEYS_AT_ONCE, _BYTES_AT_ONCE * keys // max(1, weight)))


def _differing(article: RegisteredArticle, publisher: Rows, subscriber: Rows) -> Iterator[FoundRow]:
    here, there = _by_digest(article, publisher), _by_digest(article, subscriber)
    for digest in {**here, **there}:
        first, second = here.get(digest, []), there.get(digest, [])
        columns = _differing_columns(article, first[0], second[0]) if first and second else ()
        if columns:
            yield _row(article, Difference.DIFFERENT, first[0], columns)
        for row in first[len(second) :]:
            yield _row(article, Difference.MISSING, row)
        for row in second[len(first) :]:
            found = _row(article, Difference.EXTRA, first[0] if first else row)
            yield replace(found, repeated=bool(first))


Digest = tuple[str | None, ...]


def _by_digest(article: RegisteredArticle, rows: Rows) -> Mapping[Digest, Rows]:
    """Group rows by the digests of their keys' values."""
    start = 1 + len(article.key_positions)
    by_digest: dict[Digest, Rows] = {}
    for row in rows:
        by_digest.setdefault(tuple(row[start + at] for at in article.key_positions), []).append(row)
    return by_digest


def _differing_columns(
    article: RegisteredArticle, publisher: tuple[object, ...], subscriber: tuple[object, ...]
) -> tuple[str, ...]:
    start = 1 + len(article.key_positions)
    return tuple(
        column.name for at, column in enumerate(article.columns) if publisher[start + at] != subscriber[start + at]
    )


def _row(
    article: RegisteredArticle, difference: Difference, row: tuple[object, ...], columns: tuple[str, ...] = ()
) -> FoundRow:
    names = (article.columns[at].name for at in article.key_positions)
    values = row[1 : 1 + len(article.key_positions)]
    key = {name: None if value is None else str(value) for name, value in zip(names, values, strict=True)}
    return FoundRow(int(str(row[0])), DifferingRow(difference=difference, key=key, columns=columns))
