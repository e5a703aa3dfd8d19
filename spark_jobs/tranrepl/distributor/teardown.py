"""What the distribution database holds of one publication, and its removal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import sqlalchemy as sa
from psycopg import sql

from tranrepl.distributor.database import DistributionDatabase, PublicationRecord
from tranrepl.distributor.database.articles import read_articles
from tranrepl.distributor.replica_identities import of_publisher, remembered_identities
from tranrepl.distributor.schema import schema_of
from tranrepl.distributor.tables import (
    VERSION_TABLE,
    ArticleStatus,
    RunStatus,
    metadata,
    msarticle_subscriptions,
    msarticles,
    msdistribution_history,
    mslogreader_history,
    mspublications,
    msrepl_batches,
    msrepl_deliveries,
    msrepl_errors,
    msrepl_replaced_folders,
    msrepl_warnings,
    msreplica_identities,
    msschema_changes,
    mssubscriptions,
    mstracer_history,
    mstracer_tokens,
)
from tranrepl.errors import ConfigurationError
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.catalogue import OldRowSetting
from tranrepl.model.names import TableName

_OWN = (
    msrepl_warnings,
    msrepl_deliveries,
    mstracer_tokens,
    msdistribution_history,
    mslogreader_history,
    msrepl_errors,
    mssubscriptions,
    msrepl_batches,
    msrepl_replaced_folders,
    msschema_changes,
    msarticles,
)
"""Tables with rows of one publication each, those that refer to others first."""
_OWNED = sa.text(
    "SELECT pg_catalog.pg_has_role(c.relowner, 'USAGE') FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n "
    "ON n.oid = c.relnamespace WHERE n.nspname = :schema AND c.relname = 'mspublications'"
)
_RUNNING = (RunStatus.START, RunStatus.IN_PROGRESS)


@dataclass(frozen=True, slots=True)
class Registered:
    """A publication as it is registered, as far as teardown asks."""

    record: PublicationRecord
    object_ids: frozenset[int]
    """Tables that are or were articles, at the Publisher."""
    articles: tuple[RegisteredArticle, ...]
    """All definitions."""
    partitions: dict[int, bool]
    """Partitions that they have or had, and whether a message in the log says that one came."""
    identities: dict[int, OldRowSetting]
    """Replica identities that tables of the Publisher's database had before setup, by object id."""
    publisher_db: str
    tables: dict[TableName, OldRowSetting]
    """Articles' tables at the Publisher, and the replica identity that each had before setup."""
    subscriber_dbs: dict[str, str]
    """The Subscriber's database of each subscription, by its name, as setup found it in the connection."""
    folders: tuple[str, ...]
    """The folders of stored batches."""
    shares_store: bool
    """Another publication has its batches in the same store."""
    may_be_reading: bool
    """The last that the log reader said is that it is running; perhaps it was killed."""

    def destinations(self, subscriptions: Iterable[str]) -> dict[str, list[TableName]]:
        """Return articles' tables at subscriptions, by all names that the articles had."""
        names = list(subscriptions)
        # A later definition has the later name.
        newest = {it.source_object_id: {it.at(name).destination for name in names} for it in self.articles}
        return {str(it.source): sorted(newest[it.source_object_id]) for it in self.articles}


@dataclass(frozen=True, slots=True)
class Inventory:
    """What a distribution database holds."""

    has_tables: bool = False
    registered: Registered | None = None
    is_last: bool = False
    """No other publication is registered."""
    owned: bool = False
    """Our role may drop the tables."""
    publications: tuple[str, ...] = ()
    """All that are registered."""
    others: dict[tuple[str, str, str], frozenset[TableName]] = field(default_factory=dict)
    """Destinations of the other publications' articles, by the Publisher's system and database, and publication."""

    @property
    def subscriptions(self) -> tuple[str, ...]:
        return tuple(sorted(self.registered.subscriber_dbs)) if self.registered else ()


def take_inventory(database: DistributionDatabase, publication: str) -> Inventory:
    """Return what is there. Raises ConfigurationError where the schema is not of this version."""
    with database.transaction() as connection:
        found = set(sa.inspect(connection).get_table_names(schema_of(connection)))
        ours = set(metadata.tables)
        if not found & ours:
            return Inventory()
        if not ours <= found:
            raise ConfigurationError(
                f"{database.where} has the schema of an earlier version",
                remedy="run `tranrepl setup FILE`, which brings it to this one, then tear down",
            )
        others = _destinations_of_others(connection, publication)
        names = set(connection.scalars(sa.select(mspublications.c.publication)))
        owned = bool(connection.scalar(_OWNED, {"schema": schema_of(connection)}))
    found_all = Inventory(True, None, not names - {publication}, owned, tuple(sorted(names)), others)
    record = database.publications.find(publication)
    if record is None:
        return found_all
    with database.transaction() as connection:
        return replace(found_all, registered=_registered(connection, record))


def _registered(connection: sa.Connection, record: PublicationRecord) -> Registered:
    def values(column: sa.Column[object]) -> list[object]:
        query = sa.select(column).where(column.table.c.publication_id == record.publication_id)
        return list(connection.scalars(query))

    last = connection.scalar(
        sa.select(mslogreader_history.c.runstatus)
        .where(mslogreader_history.c.publication_id == record.publication_id)
        .order_by(mslogreader_history.c.id.desc())
        .limit(1)
    )
    databases = sa.select(mssubscriptions.c.subscription, mssubscriptions.c.subscriber_db).where(
        mssubscriptions.c.publication_id == record.publication_id
    )
    publisher_db = connection.scalar(
        sa.select(mspublications.c.publisher_db).where(mspublications.c.publication_id == record.publication_id)
    )
    identities = remembered_identities(connection, record)
    articles = read_articles(connection, record.publication_id, *ArticleStatus)
    return Registered(
        record,
        frozenset(int(str(it)) for it in values(msarticles.c.source_object_id)),
        tuple(articles),
        _partitions(articles),
        identities,
        str(publisher_db),
        _tables(connection, record, identities),
        {row.subscription: row.subscriber_db for row in connection.execute(databases)},
        tuple(map(str, [*values(msrepl_batches.c.folder), *values(msrepl_replaced_folders.c.folder)])),
        _shares_store(connection, record),
        last in _RUNNING,
    )


def _shares_store(connection: sa.Connection, record: PublicationRecord) -> bool:
    others = sa.and_(
        sa.func.rtrim(mspublications.c.store, "/") == record.store.url.rstrip("/"),
        mspublications.c.publication_id != record.publication_id,
    )
    return bool(connection.scalar(sa.select(sa.exists().where(others))))


def _partitions(articles: Iterable[RegisteredArticle]) -> dict[int, bool]:
    found: dict[int, bool] = {}
    for article in articles:
        file, division = article.source_file, article.source_definition.division
        if file is not None:
            found |= dict.fromkeys((file.partitions or {}).keys() - found.keys(), False)
        if division is not None:
            found |= dict.fromkeys({it.object_id for it in division.gone} - found.keys(), False)
            found |= {it.object_id: True for it in division.partitions if it.attached_by is not None}
    return found


def _tables(
    connection: sa.Connection, record: PublicationRecord, identities: Mapping[int, OldRowSetting]
) -> dict[TableName, OldRowSetting]:
    rows = connection.execute(
        sa.select(msarticles.c.source_object_id, msarticles.c.source_owner, msarticles.c.source_object)
        .where(msarticles.c.publication_id == record.publication_id)
        .order_by(msarticles.c.article_id)
    )
    # A later definition has the later name.
    named = {number: TableName(schema, table) for number, schema, table in rows}
    return {table: identities[number] for number, table in named.items() if number in identities}


def _destinations_of_others(
    connection: sa.Connection, publication: str
) -> dict[tuple[str, str, str], frozenset[TableName]]:
    rows = connection.execute(
        sa.select(
            mspublications.c.publisher_system,
            mspublications.c.publisher_db,
            mspublications.c.publication,
            msarticles.c.destination_owner,
            msarticles.c.destination_object,
            msarticles.c.destinations,
        )
        .join(msarticles, msarticles.c.publication_id == mspublications.c.publication_id)
        .where(mspublications.c.publication != publication)
    )
    found: dict[tuple[str, str, str], set[TableName]] = {}
    for system, database, name, schema, table, elsewhere in rows:
        tables = {TableName(schema, table), *map(TableName.parse, elsewhere.values())}
        found.setdefault((system or "", database, name), set()).update(tables)
    return {key: frozenset(tables) for key, tables in found.items()}


def remove_publication(database: DistributionDatabase, record: PublicationRecord) -> None:
    """Remove the publication's rows, in one transaction."""
    number = record.publication_id
    with database.transaction() as connection:
        mine = sa.select(mssubscriptions.c.subscription_id).where(mssubscriptions.c.publication_id == number)
        connection.execute(
            sa.delete(msarticle_subscriptions).where(msarticle_subscriptions.c.subscription_id.in_(mine))
        )
        _forget_identities(connection, record)
        for table in _OWN:
            connection.execute(sa.delete(table).where(table.c.publication_id == number))
        connection.execute(sa.delete(mspublications).where(mspublications.c.publication_id == number))


def remove_subscription(database: DistributionDatabase, record: PublicationRecord, subscription: str) -> None:
    """Remove the subscription's rows, in one transaction. Idempotent."""
    with database.transaction() as connection:
        mine = sa.select(mssubscriptions.c.subscription_id).where(
            mssubscriptions.c.publication_id == record.publication_id, mssubscriptions.c.subscription == subscription
        )
        owned = (mstracer_history, msrepl_deliveries, msarticle_subscriptions, msdistribution_history, mssubscriptions)
        for table in owned:
            connection.execute(sa.delete(table).where(table.c.subscription_id.in_(mine)))
        connection.execute(
            sa.delete(msrepl_warnings).where(
                msrepl_warnings.c.publication_id == record.publication_id,
                msrepl_warnings.c.subscription == subscription,
            )
        )


def _forget_identities(connection: sa.Connection, record: PublicationRecord) -> None:
    """Forget the replica identities of tables that no other publication has."""
    others = (
        sa.select(msarticles.c.source_object_id)
        .join(mspublications, mspublications.c.publication_id == msarticles.c.publication_id)
        .where(
            mspublications.c.publisher_system == msreplica_identities.c.publisher_system,
            mspublications.c.publisher_db == msreplica_identities.c.publisher_db,
            msarticles.c.publication_id != record.publication_id,
        )
    )
    connection.execute(
        sa.delete(msreplica_identities).where(
            of_publisher(record), msreplica_identities.c.source_object_id.not_in(others)
        )
    )


def remove_empty_tables(database: DistributionDatabase) -> bool:
    """Drop the tables where no publication is registered; whether there was none. Raises ConfigurationError where our
    role may not."""
    with database.transaction() as connection:
        # A publication that is registered meanwhile comes first, or creates the tables again.
        locked = sql.Identifier(schema_of(connection), mspublications.name).as_string(None)
        connection.exec_driver_sql(f"LOCK TABLE {locked} IN ACCESS EXCLUSIVE MODE")
        if connection.scalar(sa.select(sa.func.count()).select_from(mspublications)):
            return False
        metadata.drop_all(connection)
        sa.Table(VERSION_TABLE, sa.MetaData()).drop(connection, checkfirst=True)
    return True
