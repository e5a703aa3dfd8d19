"""Published tables whose rows the log does not describe: rewritten tables, and changes without their old rows."""

from __future__ import annotations

from collections.abc import Sequence

from tranrepl.distributor.database import UnknownRows
from tranrepl.distributor.stale_articles import reinitialize_or_stop, unseen_change
from tranrepl.errors import ConfigurationError
from tranrepl.log_reader.opening import OpenLogReader
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.position import Position
from tranrepl.settings.publication import Partitions, Publication


def differing(opened: OpenLogReader, articles: Sequence[RegisteredArticle]) -> bool:
    """Return whether a table is another one now than its article, or was rewritten."""
    try:
        files = opened.publisher.files(articles)
    except ConfigurationError:
        return True
    return any(
        unseen_change(it.model_copy(update={"file": files[it.source_object_id].of(_ordinals(it))}), it) is not None
        for it in articles
    )


def _ordinals(article: RegisteredArticle) -> list[int]:
    return [column.ordinal for column in article.columns]


def reinitialize_rewritten(
    opened: OpenLogReader, publication: Publication, articles: Sequence[RegisteredArticle], read_to: Position
) -> list[str]:
    """Reinitialize or stop each article whose table was rewritten, or has other partitions with rows. The log is read
    up to `read_to`. Returns what was done, in words.

    Raises ConfigurationError where a table does not fit its article any more.
    """
    files = opened.publisher.files(articles)
    # After the look: what is gone by now has no row in the log from there on.
    end_of_log = opened.publisher.end_of_log()
    done: list[str] = []
    looked_at = []
    for article in articles:
        file = files[article.source_object_id].of(_ordinals(article))
        now = article.model_copy(update={"file": file.with_gone(article.file).without_read(read_to, end_of_log)})
        unseen = unseen_change(now, article)
        if unseen is not None:
            done += reinitialize_or_stop(
                opened.database, opened.record, publication, article.source, UnknownRows(unseen)
            )
            now = now.model_copy(update={"begins_after": opened.publisher.end_of_log()})
        done += _new_partitions(opened, publication, article, now)
        if now != article:
            looked_at.append(now)
    # After what became of their rows: whoever dies in between finds the same again.
    if looked_at:
        opened.database.articles.renew(looked_at)
    return done


def _new_partitions(
    opened: OpenLogReader, publication: Publication, known: RegisteredArticle, now: RegisteredArticle
) -> list[str]:
    """Return what to do for partitions that Subscribers are to have too, where the log does not announce them."""
    settings = next(it for it in publication.articles if it.source == now.source)
    if settings.partitions is Partitions.NONE or known.file is None or now.file is None:
        return []
    new = [str(it.table) for number, it in now.file.attached.items() if number not in known.file.attached]
    if not new or (publication.replicate_ddl and opened.publisher.schema_changes.why_unannounced() is None):
        return []
    return [f"article {now.source}: partition {', '.join(new)} is new: `tranrepl setup FILE` makes it at Subscribers"]


def reinitialize_without_old_rows(
    opened: OpenLogReader, publication: Publication, article: RegisteredArticle, reason: str
) -> list[str] | None:
    """Reinitialize or stop an article where the log lacks old rows of its table: its changes before now that cannot be
    read are skipped. Returns what was done, in words; None where changes that are made now lack old rows too."""
    if not opened.publisher.logs_what_is_needed(article):
        return None
    done = reinitialize_or_stop(opened.database, opened.record, publication, article.source, UnknownRows(reason))
    opened.database.articles.renew([article.model_copy(update={"begins_after": opened.publisher.end_of_log()})])
    return done
