"""The articles of a publication, with the definitions that stored commands were made by."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import sqlalchemy as sa
from psycopg import sql
from pydantic import TypeAdapter
from sqlalchemy.dialects.postgresql import aggregate_order_by

from tranrepl import garbage_collection
from tranrepl.distributor.database.connection import DatabaseConnection
from tranrepl.distributor.database.pending_definitions import join_pending, read_pending
from tranrepl.distributor.database.publications import PublicationRecord, count_articles_changed
from tranrepl.distributor.schema import schema_of
from tranrepl.distributor.tables import ArticleStatus, msarticles
from tranrepl.errors import NOT_REGISTERED, ConfigurationError
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.names import Table, TableName
from tranrepl.model.position import FIRST_POSITION, Position
from tranrepl.model.propagation import DeleteCommand, InsertCommand, Truncation, UpdateCommand, UpdatePolicy
from tranrepl.remedies import RUN_SETUP
from tranrepl.settings.publication import Publication
from tranrepl.settings.registered_names import agrees, by_file_source, with_registered

_DESTINATIONS = TypeAdapter(dict[str, Table])
_insert, _update_command, _delete = (
    cache(TypeAdapter(it).validate_python) for it in (InsertCommand, UpdateCommand, DeleteCommand)
)


class Articles:
    """What `msarticles` holds: the definitions in force, and those that stored commands may still refer to."""

    def __init__(self, database: DatabaseConnection) -> None:
        self._database = database

    def set_up(self, record: PublicationRecord, wanted: Sequence[RegisteredArticle]) -> None:
        """Register articles, whose `article_id` is 0, unless the very same is active. Others become inactive, but those
        of the tables of `wanted` ones with an `article_id`: they stay as they are by now, with what their file names,
        for a log reader may have registered another definition meanwhile."""
        with self._database.transaction() as connection:
            active = self._of_status(connection, record, ArticleStatus.ACTIVE)
            staying = {it.source_object_id: it for it in wanted if it.article_id}
            by_source = {it.source: it for it in wanted if not it.article_id}
            kept = {
                it.source: it for it in active if it.source in by_source and it.same_definition(by_source[it.source])
            }
            left = [it for it in active if it.source_object_id in staying]
            connection.execute(
                msarticles.update()
                .where(
                    msarticles.c.publication_id == record.publication_id,
                    msarticles.c.article_id.not_in([article.article_id for article in (*kept.values(), *left)]),
                )
                .values(status=ArticleStatus.INACTIVE)
            )
            for them, values_of in (
                ([(it, staying[it.source_object_id]) for it in left], _file_names),
                ([(it, by_source[it.source]) for it in kept.values()], _renewed_values),
            ):
                now = [(it.article_id, values_of(it), values_of(wanted_one)) for it, wanted_one in them]
                _update(connection, [(number, values) for number, there, values in now if there != values])
            new = [_article_values(record, it) for it in by_source.values() if it.source not in kept]
            if new:
                connection.execute(msarticles.insert(), new)
            count_articles_changed(connection, record.publication_id)

    def join(
        self,
        record: PublicationRecord,
        joining: Collection[str],
        destinations: Mapping[int, Mapping[str, TableName]],
    ) -> None:
        """Register, by source tables, the destinations at subscriptions that are new (`joining`), in every definition:
        none was applied there."""
        with self._database.transaction() as connection:
            join_pending(connection, record.publication_id, joining, destinations)
            for it in self._of_status(connection, record, *ArticleStatus):
                joined = it.joined_by(joining, destinations.get(it.source_object_id, {}))
                if joined != it:
                    mine = msarticles.c.article_id == it.article_id
                    connection.execute(msarticles.update().where(mine).values(destinations=_places(joined)))
            count_articles_changed(connection, record.publication_id)

    def reserve_ids(self, count: int) -> tuple[int, ...]:
        """Take so many values of `article_id`, for definitions that are registered with a batch. One that is never used
        does no harm."""
        numbers = sa.func.generate_series(1, count).table_valued("number")
        with self._database.transaction() as connection:
            table = sql.Identifier(schema_of(connection), msarticles.name).as_string(None)
            sequence = sa.func.pg_get_serial_sequence(table, msarticles.c.article_id.name)
            return tuple(connection.scalars(sa.select(sa.func.nextval(sequence)).select_from(numbers)))

    def renew(self, record: PublicationRecord, articles: Iterable[RegisteredArticle]) -> None:
        """Register what changes without the definition: the table's file, and where the article was reinitialized."""
        with self._database.transaction() as connection:
            _update(connection, [(it.article_id, _renewed_values(it)) for it in articles])
            count_articles_changed(connection, record.publication_id)

    def registered(self, record: PublicationRecord, subscription: str | None = None) -> list[RegisteredArticle]:
        """Return the definitions in force, with the destinations of a subscription where one is named."""
        with self._database.reading() as connection:
            return _at(self._of_status(connection, record, ArticleStatus.ACTIVE), subscription)

    @garbage_collection.paused()
    def active(
        self, publication: Publication, record: PublicationRecord, subscription: str | None = None
    ) -> list[RegisteredArticle]:
        """Return the articles to read, with the destinations of a subscription where one is named. Raises
        ConfigurationError where the file was changed and not set up since; that it names things as they were before a
        schema change is no change, nor is what the log reader will come to."""
        with self._database.reading() as connection:
            articles = self._of_status(connection, record, ArticleStatus.ACTIVE)
            pending = read_pending(connection, record.publication_id)
        ended = cache(lambda: self._ended_names(record))
        to_come = {of.source_object_id: of for it in pending if it.in_log for of in it.articles}
        left = {article.source: article for article in articles}
        known_to_file = by_file_source(articles)
        for article in with_registered(publication, articles).articles:
            known = known_to_file.get(article.source)
            if known is not None:
                known = left.pop(known.source, None)
            if known is not None:
                known = to_come.get(known.source_object_id, known)
            if not agrees(article, known) and not (known is None and article.source in ended()):
                raise _changed(publication, article.source)
        for source in left:
            raise _changed(publication, source)
        return _at(articles, subscription)

    def ended(self, publication: Publication, record: PublicationRecord) -> list[TableName]:
        """Return the tables that the file names and that have not been replicated since they were dropped, or taken out
        of the Publisher's publication."""
        with self._database.reading() as connection:
            ended = self._ended(connection, record)
            if not ended:
                return []
            articles = by_file_source(self._of_status(connection, record, ArticleStatus.ACTIVE))
        return [
            it.source for it in publication.articles if it.source in ended and not agrees(it, articles.get(it.source))
        ]

    def former(self, record: PublicationRecord) -> dict[TableName, RegisteredArticle]:
        """Return the articles that have ended as they were last."""
        with self._database.reading() as connection:
            return {it.source: it for it in self._of_status(connection, record, ArticleStatus.ENDED)}

    def by_id(
        self,
        record: PublicationRecord,
        subscription: str | None = None,
        article_ids: Collection[int] | None = None,
    ) -> dict[int, RegisteredArticle]:
        """Return every definition that stored commands may refer to, by `article_id`, with the destinations of a
        subscription where one is named. `article_ids`: these alone, and the other definitions of their tables."""
        chosen = None if article_ids is None else _of_tables_of(article_ids)
        with self._database.reading() as connection:
            articles = read_articles(connection, record.publication_id, *ArticleStatus, chosen=chosen)
        return {article.article_id: article for article in _at(articles, subscription)}

    def state(self, record: PublicationRecord) -> str:
        """Return a digest of all definitions: each write of one makes it another."""
        digest = digest_of_versions(msarticles, "article_id", msarticles.c.publication_id == record.publication_id)
        with self._database.reading() as connection:
            return str(connection.scalar(sa.select(digest)))

    def ids_in_force(self, record: PublicationRecord) -> list[int]:
        """Return the `article_id` of each definition in force, in order."""
        query = sa.select(msarticles.c.article_id).where(
            msarticles.c.publication_id == record.publication_id, msarticles.c.status == ArticleStatus.ACTIVE
        )
        with self._database.reading() as connection:
            return list(connection.scalars(query.order_by(msarticles.c.article_id)))

    def tables(self, record: PublicationRecord) -> frozenset[int]:
        """Return the tables of the articles in force, by their numbers at the Publisher."""
        query = sa.select(msarticles.c.source_object_id).where(
            msarticles.c.publication_id == record.publication_id, msarticles.c.status == ArticleStatus.ACTIVE
        )
        with self._database.reading() as connection:
            return frozenset(connection.scalars(query))

    def names(self, record: PublicationRecord) -> dict[str, list[str]]:
        """Return the articles in force by their sources, each with the names that its table had where stored commands
        may not have reached every Subscriber yet."""
        with self._database.reading() as connection:
            rows = connection.execute(
                sa.select(
                    msarticles.c.source_object_id,
                    msarticles.c.source_owner,
                    msarticles.c.source_object,
                    msarticles.c.status == ArticleStatus.ACTIVE,
                )
                .where(msarticles.c.publication_id == record.publication_id)
                .order_by(msarticles.c.article_id)
            )
            known = [(table, TableName(*name), in_force) for table, *name, in_force in rows]
        by_table: dict[int, list[TableName]] = {}
        for table, name, _ in known:
            by_table.setdefault(table, []).append(name)
        return {
            str(source): [str(it) for it in by_table[table] if it != source]
            for table, source, in_force in known
            if in_force
        }

    def _ended_names(self, record: PublicationRecord) -> set[TableName]:
        with self._database.reading() as connection:
            return self._ended(connection, record)

    def _ended(self, connection: sa.Connection, record: PublicationRecord) -> set[TableName]:
        """Return by which names the file may have the articles that have ended."""
        ended = self._of_status(connection, record, ArticleStatus.ENDED)
        return {it.source for it in ended} | {it.file_names.source for it in ended}

    def _of_status(
        self, connection: sa.Connection, record: PublicationRecord, *statuses: ArticleStatus
    ) -> list[RegisteredArticle]:
        return read_articles(connection, record.publication_id, *statuses)


def _at(articles: list[RegisteredArticle], subscription: str | None) -> list[RegisteredArticle]:
    return articles if subscription is None else [it.at(subscription) for it in articles]


def digest_of_versions(table: sa.Table, key: str, chosen: sa.ColumnElement[bool]) -> sa.ScalarSelect[str]:
    """Return a digest of the versions of some rows: each write of a row makes a new one."""
    name = sa.cast(table.c[key], sa.Text)
    version = sa.cast(sa.literal_column(f"{table.name}.xmin"), sa.Text)
    place = sa.cast(sa.literal_column(f"{table.name}.ctid"), sa.Text)
    each = sa.func.concat_ws(":", name, version, place)
    rows = sa.func.string_agg(each, aggregate_order_by(sa.literal(","), table.c[key]))
    return sa.select(sa.func.md5(rows)).where(chosen).scalar_subquery()


def _of_tables_of(article_ids: Collection[int]) -> sa.ColumnElement[bool]:
    """Return the condition that a row is of a table that one of these definitions is of."""
    known = msarticles.alias()
    tables = sa.select(known.c.source_object_id).where(
        known.c.publication_id == msarticles.c.publication_id, known.c.article_id.in_(article_ids)
    )
    return msarticles.c.source_object_id.in_(tables)


def read_articles(
    connection: sa.Connection,
    publication_id: int,
    *statuses: ArticleStatus,
    chosen: sa.ColumnElement[bool] | None = None,
) -> list[RegisteredArticle]:
    """Return a publication's articles of these statuses; those of them that are chosen."""
    rows = connection.execute(
        sa.select(*map(_as_text, msarticles.c))
        .where(
            msarticles.c.publication_id == publication_id,
            msarticles.c.status.in_(statuses),
            sa.true() if chosen is None else chosen,
        )
        .order_by(msarticles.c.article_id)
    )
    with garbage_collection.paused():
        return [_article(row) for row in rows]


def _as_text(column: sa.Column[Any]) -> sa.ColumnElement[Any]:
    """Select JSON as text: pydantic reads thousands of articles in half the time."""
    return sa.cast(column, sa.Text).label(column.name) if isinstance(column.type, sa.JSON) else column


def _article(row: sa.Row[tuple[object, ...]]) -> RegisteredArticle:
    fields = row._mapping
    return RegisteredArticle.stored(
        {
            "columns": fields["columns"],
            "source_file": fields["source_file"] or "null",
            "source_definition": fields["source_definition"],
            "file_names": fields["file_names"],
        },
        {
            "article_id": fields["article_id"],
            "source": TableName(fields["source_owner"], fields["source_object"]),
            "destination": TableName(fields["destination_owner"], fields["destination_object"]),
            "source_object_id": fields["source_object_id"],
            "ins_cmd": _insert(fields["ins_cmd"]),
            "upd_cmd": _update_command(fields["upd_cmd"]),
            "del_cmd": _delete(fields["del_cmd"]),
            "filter": fields["filter_clause"],
            "update_policy": UpdatePolicy(fields["update_policy"]),
            "truncate": Truncation(fields["truncate"]),
            "begins_after": Position(bytes(fields["begins_after"])) if fields["begins_after"] else FIRST_POSITION,
            "destinations": tuple(sorted(_DESTINATIONS.validate_json(fields["destinations"]).items())),
        },
    )


def _article_values(record: PublicationRecord, article: RegisteredArticle) -> dict[str, object]:
    return {
        "publication_id": record.publication_id,
        "source_owner": article.source.schema,
        "source_object": article.source.table,
        "destination_owner": article.destination.schema,
        "destination_object": article.destination.table,
        "destinations": _places(article),
        "source_object_id": article.source_object_id,
        "columns": [column.model_dump() for column in article.columns],
        "ins_cmd": str(article.ins_cmd),
        "upd_cmd": str(article.upd_cmd),
        "del_cmd": str(article.del_cmd),
        "filter_clause": article.filter,
        "update_policy": article.update_policy,
        "truncate": article.truncate,
        "status": ArticleStatus.ACTIVE,
        **_renewed_values(article),
    }


def _places(article: RegisteredArticle) -> dict[str, str]:
    return {name: str(table) for name, table in article.destinations}


def _renewed_values(article: RegisteredArticle) -> dict[str, object]:
    return {
        "source_file": article.source_file.model_dump(mode="json") if article.source_file is not None else None,
        "begins_after": article.begins_after.value,
        "source_definition": article.source_definition.model_dump(mode="json"),
        **_file_names(article),
    }


def _file_names(article: RegisteredArticle) -> dict[str, object]:
    return {"file_names": article.file_names.model_dump(mode="json")}


def _update(connection: sa.Connection, values: Sequence[tuple[int, Mapping[str, object]]]) -> None:
    """Write the same columns of each of these articles, by `article_id`, all in one round trip."""
    if values:
        mine = msarticles.c.article_id == sa.bindparam("of_article")
        connection.execute(msarticles.update().where(mine), [{"of_article": number, **it} for number, it in values])


def register_definitions(
    connection: sa.Connection, record: PublicationRecord, definitions: Iterable[RegisteredArticle]
) -> None:
    """Write down definitions that schema changes made, and what more is known of those that are there."""
    for article in definitions:
        values = _renewed_values(article)
        known = msarticles.update().where(msarticles.c.article_id == article.article_id).values(**values)
        if connection.execute(known).rowcount == 0:
            new = {**_article_values(record, article), "article_id": article.article_id}
            connection.execute(msarticles.insert().values(**new))


def retire_articles(connection: sa.Connection, article_ids: Collection[int]) -> None:
    """Let definitions be no longer in force: stored commands may still refer to them."""
    _set_status(connection, article_ids, ArticleStatus.INACTIVE)


def end_articles(connection: sa.Connection, article_ids: Collection[int]) -> None:
    """Let articles end, whose tables are not published any more."""
    _set_status(connection, article_ids, ArticleStatus.ENDED)


def _set_status(connection: sa.Connection, article_ids: Collection[int], status: ArticleStatus) -> None:
    connection.execute(msarticles.update().where(msarticles.c.article_id.in_(article_ids)).values(status=status))


def _changed(publication: Publication, source: TableName) -> ConfigurationError:
    return ConfigurationError(
        f"publication {publication.publication}: article {source} is not registered as its file describes it",
        remedy=RUN_SETUP,
        number=NOT_REGISTERED,
        article=str(source),
    )
