"""Published tables as the Publisher's catalogue has them now: what the log does not say of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from tranrepl.errors import ConfigurationError
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.table_file import ColumnVersion, TableFile
from tranrepl.postgres.session import Session
from tranrepl.publisher.postgres.old_rows import old_rows_problem

_QUERY = """
SELECT c.oid::bigint, c.relfilenode::bigint, c.relreplident::text,
       EXISTS (SELECT FROM pg_catalog.pg_publication p JOIN pg_catalog.pg_publication_rel r ON r.prpubid = p.oid
                WHERE p.pubname = %s AND r.prrelid = c.oid),
       ARRAY(SELECT unnest((i.indkey::int2[])[0:i.indnkeyatts - 1]) FROM pg_catalog.pg_index i
              WHERE i.indrelid = c.oid
                AND CASE c.relreplident WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident ELSE false END),
       a.attname, a.attnum, a.xmin::text, a.atthasmissing, d.oid::bigint
  FROM pg_catalog.pg_class c
  JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
  LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
 WHERE c.oid = ANY (%s::oid[])
"""


@dataclass(slots=True)
class PublishedTable:
    replica_identity: str
    """The table's replica identity as the catalogue and the log write it: d, f, i or n."""
    identified: frozenset[int]
    """Columns that an old row in the log has, where it does not have all of them; by ordinal."""
    is_published: bool
    file_number: int
    ordinals: dict[str, int] = field(default_factory=dict)
    versions: dict[int, ColumnVersion] = field(default_factory=dict)

    @property
    def file(self) -> TableFile:
        return TableFile(number=self.file_number, columns=self.versions)


def published_tables(session: Session, publication: str, object_ids: Collection[int]) -> Mapping[int, PublishedTable]:
    """Return the tables that exist, by oid."""
    tables: dict[int, PublishedTable] = {}
    rows = session.execute(_QUERY, [publication, list(object_ids)]).fetchall()
    for object_id, number, identity, is_published, identified, name, ordinal, version, missing, default in rows:
        table = tables.get(object_id)
        if table is None:
            table = PublishedTable(identity, frozenset(identified), is_published, number)
            tables[object_id] = table
        table.ordinals[name] = ordinal
        table.versions[ordinal] = ColumnVersion(version=version, missing=missing, default=default)
    return tables


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
        return "was dropped, or taken out of the publication: its rows at the Subscriber are stale"
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
    key = [article.columns[at].ordinal in table.identified for at in article.key_positions]
    return old_rows_problem(article, table.replica_identity, key)
