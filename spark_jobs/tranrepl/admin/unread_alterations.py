"""Tables that were altered after what the log reader has read: the log has still to bring that to the Subscribers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from tranrepl.distributor.database import DistributionDatabase, PublicationRecord
from tranrepl.errors import ConfigurationError
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.catalogue import TableDescription
from tranrepl.model.names import TableName
from tranrepl.publisher.publisher import Publisher
from tranrepl.schema.redefinition import is_altered
from tranrepl.settings.publication import Article, PreCreation, Publication, SyncType
from tranrepl.settings.registered_names import agrees, put_back

_UNREAD = "which the log reader has not read yet"


@dataclass(frozen=True, slots=True)
class UnreadAlteration:
    """An alteration of an article's table that the log reader has still to read."""

    article: Article
    known: RegisteredArticle
    """As its table is registered, maybe by another name."""
    name: TableName
    """The table's name now."""
    gone: tuple[str, ...] = ()
    """What became of columns that are registered by a name that the table does not have any more."""

    @property
    def is_renamed(self) -> bool:
        return self.name != self.known.source

    @property
    def refusal(self) -> ConfigurationError:
        """The error where the file names what the table does not have any more."""
        file = put_back(self.article, self.known) or "leave the file as it is"
        if self.is_renamed:
            return ConfigurationError(
                f"article {self.article.source}: table {self.known.source} was renamed to {self.name}, {_UNREAD}",
                remedy=f"{file}; `tranrepl log-reader FILE` reads it; then write the `source` and `destination` that "
                "it names",
            )
        return ConfigurationError(
            f"article {self.article.source}: its table was altered, {_UNREAD}: {', '.join(self.gone)}",
            remedy=f"{file}; `tranrepl run FILE` reads it, brings it to the Subscribers, and names what to write "
            "in the file; then `tranrepl setup FILE`",
        )

    @property
    def warning(self) -> str:
        return (
            f"article {self.article.source}: its table was altered, {_UNREAD}: until then, the Subscribers' tables "
            "are not compared with it"
        )


def unread_alterations(
    publication: Publication,
    publisher: Publisher,
    database: DistributionDatabase,
    record: PublicationRecord,
    tables: Mapping[TableName, TableDescription],
    registered: Iterable[RegisteredArticle],
) -> dict[TableName, UnreadAlteration]:
    """Return the articles whose tables are not as they are registered, where the log may still have the alteration.

    `tables` are those that the file names. Where the log reader has failed, setup may be what it needs: nothing is
    returned then.
    """
    if not publication.replicate_ddl or record.registered_to is None:
        return {}
    altered = list(_altered(publication, publisher, tables, list(registered)))
    if not altered or publisher.schema_changes.why_not_captured() is not None:
        return {}
    if database.history.log_reader_has_failed(record):
        return {}
    return {it.article.source: it for it in altered}


def missing_table(
    publication: Publication, publisher: Publisher, article: Article, registered: Iterable[RegisteredArticle]
) -> ConfigurationError:
    """Return the error of an article whose table is not there by its name, and whose new name the log reader does not
    bring."""
    known = {it.source: it for it in registered}.get(article.source)
    name = None if known is None else _name_now(publisher, known)
    if known is None or name is None:
        return publisher.no_such_table(article.source)
    names = f"`source: {name}` and `destination: {known.destination}`"
    takes_snapshots = any(it.sync_type is SyncType.AUTOMATIC for it in publication.subscriptions)
    if takes_snapshots and article.pre_creation_cmd is PreCreation.NONE:
        names = f"{names}, with `pre_creation_cmd: delete`,"
    return ConfigurationError(
        f"article {article.source}: its table was renamed to {name}, and no schema change in the log says so",
        remedy=f"write {names} in the file; then `tranrepl setup FILE`: this article ends, and one of the new name "
        f"begins{', which the next run copies' if takes_snapshots else ''}",
    )


def _altered(
    publication: Publication,
    publisher: Publisher,
    tables: Mapping[TableName, TableDescription],
    registered: list[RegisteredArticle],
) -> Iterator[UnreadAlteration]:
    by_source = {it.source: it for it in registered}
    by_table = {it.source_object_id: it for it in registered}
    for article in publication.articles:
        table, known = tables.get(article.source), by_source.get(article.source)
        # Where tables took each other's name, a file that nobody edited means what is registered.
        if table is not None and (table.object_id not in by_table or not agrees(article, known)):
            known = by_table.get(table.object_id)
        if known is None:
            continue
        is_there = table is not None and table.object_id == known.source_object_id
        name = article.source if is_there else _name_now(publisher, known)
        defined = None if table is None else table.definition
        altered = defined is not None and is_altered(known.source_definition, defined)
        if name is not None and (name != known.source or altered):
            yield UnreadAlteration(article, known, name, tuple(_gone(table, known)))


def _name_now(publisher: Publisher, known: RegisteredArticle) -> TableName | None:
    return publisher.table_names([known.source_object_id]).get(known.source_object_id)


def _gone(table: TableDescription | None, known: RegisteredArticle) -> Iterator[str]:
    if table is None or table.definition is None or known.source_definition is None:
        return
    for it in known.source_definition.columns:
        now = table.definition.by_ordinal.get(it.ordinal)
        if now is None:
            yield f"column {it.name} was dropped"
        elif now.name != it.name:
            yield f"column {it.name} was renamed to {now.name}"
