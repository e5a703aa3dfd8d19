"""Tables that were altered after what the log reader has read: the log has still to bring that to the Subscribers.

Setup that took such a table as it is now would leave nothing to announce: the Subscribers' tables would stay as they
are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tranrepl.distributor.database import DistributionDatabase, PublicationRecord
from tranrepl.errors import ConfigurationError
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.names import TableName
from tranrepl.model.table_definition import TableDefinition
from tranrepl.publisher.publisher import Publisher
from tranrepl.settings.publication import Publication


def unread_alterations(
    publication: Publication,
    publisher: Publisher,
    database: DistributionDatabase,
    record: PublicationRecord,
    articles: Iterable[RegisteredArticle],
    known: Mapping[TableName, RegisteredArticle],
) -> list[TableName]:
    """Return the tables that are not as they are registered, where the log may have still to announce why.

    `articles` are as setup would register them, `known` as they are registered. Where the log reader has failed, setup
    may be what it needs: nothing is returned then.
    """
    if not publication.replicate_ddl or record.registered_to is None:
        return []
    differing = {it.source_object_id: it.source for it in articles if _differs(it, known.get(it.source))}
    if not differing or publisher.schema_changes.why_unannounced() is not None:
        return []
    if database.history.log_reader_has_failed(record):
        return []
    return sorted(differing[it] for it in publisher.lately_altered(differing))


def refuse_unread_alterations(tables: Iterable[TableName]) -> None:
    """Raise ConfigurationError for the first of these tables."""
    for table in tables:
        raise ConfigurationError(
            f"article {table}: its table was altered, and the log reader has not read that yet: setup would keep the "
            "change from the Subscribers",
            remedy="`tranrepl log-reader FILE`, with the file as it was where it has been edited since, reads it; "
            "then `tranrepl setup FILE`",
        )


def unread_warnings(tables: Iterable[TableName]) -> dict[TableName, str]:
    """Return what `check` says of these tables, by article."""
    return {
        it: f"article {it}: its table was altered, and the log reader has not read that yet: until then it is not "
        "compared with the Subscribers', and `tranrepl setup FILE` waits for `tranrepl log-reader FILE`"
        for it in tables
    }


def _differs(article: RegisteredArticle, known: RegisteredArticle | None) -> bool:
    if known is None or known.source_object_id != article.source_object_id:
        return False
    if known.definition is None or article.definition is None:
        return False
    return _columns(known.definition) != _columns(article.definition)


def _columns(table: TableDefinition) -> set[tuple[int, str, int, int, bool]]:
    return {(it.ordinal, it.name, it.type_oid, it.type_modifier, it.not_null) for it in table.columns}
