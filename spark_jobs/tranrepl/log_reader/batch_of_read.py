"""What one read of the log adds: the batch to register, and what the job has done then."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from tranrepl.distributor.database import Batch
from tranrepl.distributor.database.batches import MOST_DEFINITIONS
from tranrepl.jobs.results import MOST_NOTICES, JobResult, TableChange, latency_ms
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.clock_difference import ClockDifference, moment_of
from tranrepl.model.commands import NO_ARTICLE_ID
from tranrepl.publisher.log_read import LogRead
from tranrepl.schema.words import effects_in_words


def batch_of(folder: str, read: LogRead, clock: ClockDifference) -> Batch | None:
    """Return the batch to register; None where nothing was stored. `clock`: how far the Publisher's is ahead of the
    distribution database's."""
    if read.first_xact_seqno is None or read.last_xact_seqno is None:
        return None
    ids = sorted(read.commands_by_article.keys() - {NO_ARTICLE_ID})
    return Batch(
        folder,
        bytes.fromhex(read.first_xact_seqno),
        bytes.fromhex(read.last_xact_seqno),
        moment_of(read.first_commit_time or 0),
        moment_of(read.last_commit_time or 0),
        read.changed_transactions,
        sum(read.commands_by_article.values()),
        read.message_bytes,
        clock.microseconds,
        article_ids=tuple(ids) if len(ids) <= MOST_DEFINITIONS else None,
    )


def result_of(batch: Batch, read: LogRead, articles: Sequence[RegisteredArticle]) -> JobResult:
    """Return what was done with the batch; `articles` are those of its commands."""
    counts = read.commands_by_article
    names = {article.article_id: str(article.source) for article in articles if article.article_id in counts}
    return JobResult(
        transactions=batch.transactions,
        commands=batch.commands,
        batches=1,
        last_xact_seqno=batch.last_xact_seqno.hex(),
        commands_by_article=_by_name(counts, names),
        schema_changes=len(read.schema_changes),
        table_changes=tuple(
            TableChange(article=str(it.change.source), what=what)
            for it in read.schema_changes
            for what in effects_in_words(it.change)
        )[:MOST_NOTICES],
        latency_ms=latency_ms(batch.last_commit_time),
    )


def _by_name(counts: Mapping[int, int], names: Mapping[int, str]) -> dict[str, int]:
    """Add up numbers of commands by the names of their articles, of which several definitions may have commands."""
    by_name: Counter[str] = Counter()
    for number, count in counts.items():
        if number != NO_ARTICLE_ID:
            by_name[names[number]] += count
    return dict(by_name)
