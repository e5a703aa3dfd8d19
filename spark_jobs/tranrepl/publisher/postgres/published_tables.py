"""Published tables as the Publisher's catalogue has them now: their files, and how they differ from their articles."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from tranrepl.errors import ConfigurationError
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.names import TableName
from tranrepl.model.table_file import ColumnVersion, PartitionFile, TableFile
from tranrepl.postgres.session import Session
from tranrepl.publisher.postgres.old_rows import may_lack_values, old_rows_problem
from tranrepl.publisher.postgres.partitions import Partition, partitions

# PostgreSQL 14 knows neither row filters nor column lists of a publication.
_QUERY = """
SELECT c.oid::bigint, c.relkind = 'p', c.relfilenode::bigint, c.relreplident::text,
       EXISTS (SELECT FROM pg_catalog.pg_publication p JOIN pg_catalog.pg_publication_rel r ON r.prpubid = p.oid
                WHERE p.pubname = %s AND r.prrelid = c.oid
                  AND pg_catalog.to_jsonb(r) ->> 'prqual' IS NULL AND pg_catalog.to_jsonb(r) ->> 'prattrs' IS NULL
                  AND p.pubinsert AND p.pubupdate AND p.pubdelete AND p.pubtruncate),
       ARRAY(SELECT unnest((i.indkey::int2[])[0:i.indnkeyatts - 1]) FROM pg_catalog.pg_index i
              WHERE i.indrelid = c.oid
                AND CASE c.relreplident WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident ELSE false END),
       a.attname, a.attnum, a.xmin::text, a.atthasmissing, d.oid::bigint
  FROM pg_catalog.pg_class c
  JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
  LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
 WHERE c.oid = ANY (%s::oid[])
"""
# Each version of a row of the catalogue has a transaction and a place of its own.
_STATE = """
WITH published AS (
SELECT r.prrelid AS oid FROM pg_catalog.pg_publication p JOIN pg_catalog.pg_publication_rel r ON r.prpubid = p.oid
 WHERE p.pubname = %s
), trees AS (
SELECT oid FROM published
 UNION SELECT t.relid::oid FROM published JOIN pg_catalog.pg_partitioned_table d ON d.partrelid = oid
 CROSS JOIN LATERAL pg_catalog.pg_partition_tree(oid) t
), tables AS (
SELECT c.tableoid, c.xmin, c.ctid, c.oid, c.relnamespace FROM pg_catalog.pg_class c JOIN trees t ON t.oid = c.oid
), versions AS (
SELECT tableoid, xmin, ctid FROM tables
 UNION ALL SELECT a.tableoid, a.xmin, a.ctid FROM pg_catalog.pg_attribute a JOIN tables t ON t.oid = a.attrelid
            WHERE a.attnum > 0
 UNION ALL SELECT d.tableoid, d.xmin, d.ctid FROM pg_catalog.pg_attrdef d JOIN tables t ON t.oid = d.adrelid
 UNION ALL SELECT i.tableoid, i.xmin, i.ctid FROM pg_catalog.pg_index i JOIN tables t ON t.oid = i.indrelid
 UNION ALL SELECT h.tableoid, h.xmin, h.ctid FROM pg_catalog.pg_inherits h JOIN tables t ON t.oid = h.inhrelid
 UNION ALL SELECT p.tableoid, p.xmin, p.ctid FROM pg_catalog.pg_publication p
 UNION ALL SELECT r.tableoid, r.xmin, r.ctid FROM pg_catalog.pg_publication_rel r
 UNION ALL SELECT n.tableoid, n.xmin, n.ctid FROM pg_catalog.pg_namespace n
            WHERE n.oid IN (SELECT DISTINCT relnamespace FROM tables)
 UNION ALL SELECT e.tableoid, e.xmin, e.ctid FROM pg_catalog.pg_event_trigger e
)
SELECT pg_catalog.concat_ws(' ', count(*), pg_catalog.bit_xor(pg_catalog.hash_record_extended(
           ROW(tableoid, xmin, ctid), 0))) FROM versions
"""


@dataclass(slots=True)
class PublishedTable:
    is_partitioned: bool
    replica_identity: str
    """The table's replica identity as the catalogue and the log write it: d, f, i or n."""
    identified: frozenset[int]
    """Columns that an old row in the log has, where it does not have all of them; by ordinal."""
    is_published: bool
    """All its changes are: no one has narrowed the publication."""
    file_number: int
    ordinals: dict[str, int] = field(default_factory=dict)
    versions: dict[int, ColumnVersion] = field(default_factory=dict)
    partitions: dict[int, PublishedPartition] = field(default_factory=dict)
    """Those that hold the rows of a partitioned table, by oid."""

    @property
    def file(self) -> TableFile:
        files = {number: it.file for number, it in self.partitions.items()}
        return TableFile(
            number=self.file_number, columns=self.versions, partitions=files if self.is_partitioned else None
        )

    def in_columns_of(self, table: PublishedTable) -> PublishedTable:
        """Return a partition with the ordinals that its columns have in its partitioned table."""
        names = {ordinal: name for name, ordinal in self.ordinals.items()}
        ordinal_of = {own: table.ordinals[name] for own, name in names.items() if name in table.ordinals}
        return replace(
            self,
            identified=frozenset(ordinal_of[it] for it in self.identified if it in ordinal_of),
            ordinals=table.ordinals,
            versions={ordinal_of[own]: it for own, it in self.versions.items() if own in ordinal_of},
        )


@dataclass(frozen=True, slots=True)
class PublishedPartition:
    partition: Partition
    table: PublishedTable
    """With the ordinals of the partitioned table's columns."""

    @property
    def file(self) -> PartitionFile:
        return PartitionFile(
            number=self.table.file_number,
            columns=self.table.versions,
            table=self.partition.table,
            attachment=self.partition.attachment,
            made_empty=self.partition.made_empty,
        )


def published_tables(session: Session, publication: str, object_ids: Collection[int]) -> Mapping[int, PublishedTable]:
    """Return the tables that exist, by oid."""
    found = partitions(session, object_ids)
    wanted = [*object_ids, *(it.object_id for it in found)]
    tables: dict[int, PublishedTable] = {}
    rows = session.execute(_QUERY, [publication, wanted]).fetchall()
    for object_id, partitioned, number, identity, published, identified, name, ordinal, *version in rows:
        table = tables.get(object_id)
        if table is None:
            table = PublishedTable(partitioned, identity, frozenset(identified), published, number)
            tables[object_id] = table
        table.ordinals[name] = ordinal
        table.versions[ordinal] = _version(*version)
    for it in found:
        # One that went between the two queries is seen the next time.
        if it.object_id in tables and it.root in tables:
            root = tables[it.root]
            root.partitions[it.object_id] = PublishedPartition(it, tables[it.object_id].in_columns_of(root))
    return tables


def catalogue_state(session: Session, publication: str) -> str:
    """Return a digest of the catalogue's rows that say what is published, and how its tables are."""
    ((state,),) = session.execute(_STATE, [publication]).fetchall()
    return str(state)


def _version(version: str, missing: bool, default: int | None) -> ColumnVersion:
    return ColumnVersion(version=version, missing=missing, default=default)


def judged_files(
    session: Session, tables: Mapping[int, PublishedTable], articles: Iterable[RegisteredArticle]
) -> dict[int, TableFile]:
    """Return the tables' files, where partitions that their articles do not know yet are looked into: one that was
    attached without a row is as good as one that was made empty."""
    files: dict[int, TableFile] = {}
    for article in articles:
        table = tables[article.source_object_id]
        file = table.file
        known = article.source_file.attached if article.source_file is not None else {}
        empty = {
            number: file.partitions[number].model_copy(update={"made_empty": not it.partition.had_rows(session)})
            for number, it in table.partitions.items()
            if number not in known and file.partitions is not None
        }
        if empty:
            file = file.model_copy(update={"partitions": {**file.attached, **empty}})
        files[article.source_object_id] = file
    return files


def refuse_unfit(where: str, tables: Mapping[int, PublishedTable], articles: Iterable[RegisteredArticle]) -> None:
    """Raise ConfigurationError where a table is no longer published, a column is gone or another one of the same name,
    or old rows do not come with the log any more."""
    for article in articles:
        table = tables.get(article.source_object_id)
        problem = _problem(article, table)
        if problem is not None:
            raise ConfigurationError(
                f"{where}: table {article.source} {problem}",
                remedy="make the Subscriber's table fit where need be, and run `tranrepl setup FILE`",
                article=str(article.source),
            )


def _problem(article: RegisteredArticle, table: PublishedTable | None) -> str | None:
    if table is None or not table.is_published:
        return "was dropped, or its changes are not all published any more: its rows at the Subscriber are stale"
    for column in article.columns:
        found = table.ordinals.get(column.name)
        if found is not None and found != column.ordinal:
            return (
                f"was altered: column {column.name} was dropped and added again: its rows at the Subscriber are stale"
            )
        if found is None:
            return f"was altered: column {column.name} was dropped or renamed"
    lacking = identity_problem(article, table)
    return None if lacking is None else f"was altered: {lacking}"


def identity_problem(article: RegisteredArticle, table: PublishedTable) -> str | None:
    """Say why changes that are made now come without the old rows that the article needs; None where they do not."""
    for it in table.partitions.values():
        problem = _identity_problem(article, it.table)
        if problem is not None:
            return f"partition {it.partition.table}: {problem}"
    return None if table.is_partitioned else _identity_problem(article, table)


def _identity_problem(article: RegisteredArticle, table: PublishedTable) -> str | None:
    key = [article.columns[at].ordinal in table.identified for at in article.key_positions]
    return old_rows_problem(article, table.replica_identity, key)


def logs_what_is_needed(article: RegisteredArticle, table: PublishedTable) -> bool:
    """Say whether changes that are made now come with the old rows that the article needs."""
    if identity_problem(article, table) is not None:
        return False
    holding_rows = [it.table for it in table.partitions.values()] if table.is_partitioned else [table]
    return not any(may_lack_values(article, it.replica_identity) for it in holding_rows)


# Of what the log shows after the slot's position, the slot keeps the catalogue's rows: a transaction that committed
# after it has a number from there on.
_NAMES = """
SELECT c.oid::bigint, n.nspname, c.relname
  FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = ANY (%s::oid[])
"""


_OF_SCHEMAS = """
SELECT n.nspname, c.relname, c.oid::bigint
  FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = ANY (%s) AND c.relkind IN ('r', 'p') AND NOT c.relispartition
"""


def tables_in(session: Session, schemas: Collection[str]) -> dict[TableName, int]:
    """Return the tables of these schemas and their object ids, without partitions."""
    return {TableName(*name): number for *name, number in session.execute(_OF_SCHEMAS, [list(schemas)])}


def table_names(session: Session, object_ids: Collection[int]) -> dict[int, TableName]:
    """Return the names of now of those tables that exist."""
    return {number: TableName(*name) for number, *name in session.execute(_NAMES, [list(object_ids)])}
