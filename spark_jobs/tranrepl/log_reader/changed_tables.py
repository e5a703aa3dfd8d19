"""What was done to published tables that the log does not tell, or tells too late."""

from __future__ import annotations

from collections.abc import Sequence

from tranrepl.distributor.database import UnknownRows
from tranrepl.distributor.stale_articles import REWRITTEN, begin_anew, was_rewritten
from tranrepl.log_reader.opening import OpenLogReader
from tranrepl.model.article import RegisteredArticle
from tranrepl.settings.publication import Publication


def see_to_tables(opened: OpenLogReader, publication: Publication, articles: Sequence[RegisteredArticle]) -> list[str]:
    """Let articles begin anew whose table was rewritten. Returns what was done, in words.

    Raises ConfigurationError where a table does not fit its article any more.
    """
    files = opened.publisher.files(articles)
    done: list[str] = []
    looked_at = []
    for article in articles:
        file = files[article.source_object_id].of([column.ordinal for column in article.columns])
        now = article.model_copy(update={"file": file})
        if was_rewritten(now, article):
            done += begin_anew(opened.database, opened.record, publication, article.source, UnknownRows(REWRITTEN))
            now = now.model_copy(update={"begins_after": opened.publisher.end_of_log()})
        if now != article:
            looked_at.append(now)
    # After what became of their rows: whoever dies in between finds the same again.
    if looked_at:
        opened.database.articles.renew(looked_at)
    return done


def begin_after_lacking(
    opened: OpenLogReader, publication: Publication, article: RegisteredArticle, reason: str
) -> list[str] | None:
    """Let an article begin anew of which the log lacks old rows: changes up to now that cannot be read are passed over.
    Returns what was done, in words; None where changes that are made now lack them too."""
    if not opened.publisher.logs_what_is_needed(article):
        return None
    done = begin_anew(opened.database, opened.record, publication, article.source, UnknownRows(reason))
    opened.database.articles.renew([article.model_copy(update={"begins_after": opened.publisher.end_of_log()})])
    return done
