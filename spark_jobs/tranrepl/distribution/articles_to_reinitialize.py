"""Articles whose rows at one Subscriber the log does not tell after a schema change, though it tells them at others:
before the change is delivered, they wait for a snapshot, or stop."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tranrepl.distribution.opening import OpenDistribution
from tranrepl.distributor.database import StoredSchemaChange, UnknownRows
from tranrepl.distributor.stale_articles import reinitialize_or_stop_at
from tranrepl.model.article import RegisteredArticle, newest_definitions
from tranrepl.model.names import TableName
from tranrepl.settings.following import follow
from tranrepl.settings.publication import Publication


def reinitialize_or_stop_articles(
    publication: Publication,
    opened: OpenDistribution,
    changes: Iterable[StoredSchemaChange],
    articles: Mapping[int, RegisteredArticle],
    left_out: Mapping[str, bytes | None],
) -> list[str]:
    """Let articles wait for a snapshot where a change that is to be delivered leaves their rows open at this
    Subscriber, as `on_unknown_rows` and `sync_type` say. Return what was done, in words. `left_out` is what the
    articles' snapshots have in them: those changes are among it."""
    done = dict[TableName, str]()
    newest = newest_definitions(articles.values())
    # Under the names of now: the table may have been renamed before the change or after it.
    followed = follow(publication, newest.values())
    for stored in changes:
        change, article = stored.change, articles[stored.change.article_id]
        source = newest[article.source_object_id].source
        up_to = left_out.get(str(source), b"")
        if source in done or up_to is None or stored.xact_seqno <= up_to:
            continue
        reason = opened.subscriber.reload_reason(change, article)
        if reason is not None:
            unknown = UnknownRows(reason, None)
            done[source] = reinitialize_or_stop_at(opened.database, opened.subscription, followed, source, unknown)
    return list(done.values())
