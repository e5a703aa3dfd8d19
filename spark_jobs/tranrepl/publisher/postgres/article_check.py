"""Reasons why a table, its columns, or what the log carries of them cannot be published as its article asks;
and the table that was meant, where there is none of the name in the file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from psycopg import sql

from tranrepl.errors import ConfigurationError
from tranrepl.model.catalogue import TableDescription
from tranrepl.model.commands import CallSyntax
from tranrepl.model.names import TableName
from tranrepl.model.propagation import UpdatePolicy
from tranrepl.model.source_sql import is_type
from tranrepl.model.table_definition import Generation
from tranrepl.postgres.session import Session, translated_errors
from tranrepl.publisher.postgres.old_rows import FULL, needs_whole_rows
from tranrepl.publisher.postgres.partitions import Partition, partitions
from tranrepl.publisher.postgres.row_filter_check import filter_problems
from tranrepl.settings.publication import Article, ReplicaIdentity
from tranrepl.spelling import did_you_mean, likeliest

PARTITIONED = "partitioned table"
_TABLES = """
SELECT n.nspname, c.relname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 WHERE c.relkind IN ('r', 'p') AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
   AND pg_catalog.has_schema_privilege(n.oid, 'USAGE')
"""


_OTHERS = """
SELECT EXISTS (SELECT FROM pg_catalog.pg_publication_rel r JOIN pg_catalog.pg_publication p ON p.oid = r.prpubid
                WHERE p.pubname <> %(ours)s AND pg_catalog.to_jsonb(r) ->> 'prattrs' IS NOT NULL),
       EXISTS (SELECT FROM pg_catalog.pg_publication p
                WHERE p.pubname <> %(ours)s AND pg_catalog.to_jsonb(p) ->> 'pubgencols' <> 's')
"""


@dataclass(frozen=True, slots=True)
class OtherPublications:
    """What of a database's other publications may forbid REPLICA IDENTITY FULL."""

    have_column_lists: bool
    leave_out_generated: bool

    @classmethod
    def of(cls, session: Session, ours: str) -> OtherPublications:
        """Read it. `ours`: the name of our publication."""
        ((lists, silent),) = session.execute(_OTHERS, {"ours": ours}).fetchall()
        return cls(lists, silent)


def article_problems(
    session: Session, name: str, article: Article, table: TableDescription, others: OtherPublications
) -> Iterator[ConfigurationError]:
    """Yield why this table cannot be published as the article asks, each with its remedy. `name`: the publication's."""
    at, where = f"article {article.source}", f"Publisher {session.info.dbname}"
    if table.kind not in ("table", PARTITIONED) or table.persistence != "permanent":
        what = f"{table.persistence} table" if table.kind in ("table", PARTITIONED) else table.kind
        yield ConfigurationError(
            f"{at}: {where}: not an ordinary table ({what})", remedy="allowed: an ordinary or a partitioned table"
        )
        return
    if not table.key:
        yield ConfigurationError(
            f"{at}: the table has no primary key (error 14088), and no unique index without NULLs in its place",
            remedy=f"ALTER TABLE {article.source} ADD PRIMARY KEY (…)",
        )
        return
    yield from _key_problems(session, at, article, table)
    if table.deferrable:
        yield ConfigurationError(
            f"{at}: its primary key or a unique constraint is DEFERRABLE: within a transaction, two rows may hold one "
            "value",
            remedy="; ".join(_immediate(article, table)) or "replace the constraint by one that is NOT DEFERRABLE",
        )
        return
    below = partitions(session, [table.object_id]) if table.kind == PARTITIONED else []
    for it in below:
        yield from _partition_problems(f"{at}: {where}: partition {it.table}", it, article, table)
    yield from type_problems(at, article, table)
    yield from column_problems(at, article, table)
    yield from filter_problems(session, article, table)
    if article.replica_identity is ReplicaIdentity.DEFAULT and not _logs_key(table):
        yield ConfigurationError(
            f"{at}: replica_identity: default, but the table's replica identity is {table.replica_identity}",
            remedy=f"ALTER TABLE {article.source} REPLICA IDENTITY {_identity_of_key(table)}, "
            "or leave replica_identity out",
        )
    if wants_full_identity(article, table):
        yield from _full_identity_problems(session, name, article, table, below, others)
    elif table.replica_identity != "full":
        yield from before_image_problems(at, article, table)


_NOT_VALID = """
SELECT k.conname FROM pg_catalog.pg_constraint k
 WHERE k.conrelid = %s AND k.contype = 'n' AND NOT k.convalidated AND k.conkey && %s::int2[]
"""


def _key_problems(session: Session, at: str, article: Article, table: TableDescription) -> Iterator[ConfigurationError]:
    """Yield a problem where rows may have NULL in the key: from PostgreSQL 18, NOT NULL need not be valid."""
    if table.definition is None or any(it.primary for it in table.definition.unique):
        return
    found = session.execute(_NOT_VALID, [table.object_id, [it.ordinal for it in table.key]])
    for (name,) in found.fetchall():
        constraint = sql.Identifier(name).as_string(None)
        yield ConfigurationError(
            f"{at}: constraint {name} of a column of its key is NOT VALID: rows may have NULL there",
            remedy=f"ALTER TABLE {article.source} VALIDATE CONSTRAINT {constraint}",
        )


def _immediate(article: Article, table: TableDescription) -> Iterator[str]:
    """Yield a statement for each DEFERRABLE constraint that replaces it by one that is not."""
    for it in () if table.definition is None else table.definition.unique:
        if not it.immediate and table.definition is not None:
            columns = [sql.Identifier(table.definition.by_ordinal[at].name).as_string(None) for at in it.columns]
            name, kind = sql.Identifier(it.name).as_string(None), "PRIMARY KEY" if it.primary else "UNIQUE"
            replaced = f"DROP CONSTRAINT {name}, ADD CONSTRAINT {name} {kind} ({', '.join(columns)})"
            yield f"ALTER TABLE {article.source} {replaced}"


def _partition_problems(
    at: str, partition: Partition, article: Article, table: TableDescription
) -> Iterator[ConfigurationError]:
    """Yield why the rows of a partition cannot be published with its table's."""
    detach = f"ALTER TABLE {article.source} DETACH PARTITION {partition.table}"
    if partition.kind != "r":
        yield ConfigurationError(f"{at} is no ordinary table: its changes are not in the log", remedy=detach)
    elif partition.persistence != "p":
        yield ConfigurationError(
            f"{at} is not logged: its changes are not in the log",
            remedy=f"ALTER TABLE {partition.table} SET LOGGED, or {detach}",
        )
    elif not partition.has_key:
        key = ", ".join(sql.Identifier(column.name).as_string(None) for column in table.key)
        yield ConfigurationError(
            f"{at} lacks the primary key of its table",
            remedy=f"ALTER TABLE {partition.table} ADD PRIMARY KEY ({key}), and ALTER INDEX … ATTACH PARTITION it to "
            "the table's",
        )


def _logs_key(table: TableDescription) -> bool:
    """Return whether the log has the key of an old row as the table is."""
    if table.replica_identity != "index":
        return table.replica_identity == "full" or table.replica_identity == _identity_of_key(table).lower()
    definition = table.definition
    of_key = [it for it in definition.unique if it.columns == definition.key] if definition is not None else []
    return any(it.identity for it in of_key) and not any(it.primary for it in of_key)


def _identity_of_key(table: TableDescription) -> str:
    """Return the replica identity that is the key: the primary key, or the index in its place."""
    definition = table.definition
    keys = [it for it in definition.unique if it.columns == definition.key] if definition is not None else []
    if not keys or any(it.primary for it in keys):
        return "DEFAULT"
    return f"USING INDEX {sql.Identifier(keys[0].name).as_string(None)}"


def wants_full_identity(article: Article, table: TableDescription) -> bool:
    """Return whether setup gives the table REPLICA IDENTITY FULL.

    A virtual generated column rules it out: PostgreSQL 18 then refuses the Publisher's own UPDATE and DELETE.
    """
    virtual = any(column.generation is Generation.VIRTUAL for column in table.columns)
    return article.replica_identity is ReplicaIdentity.FULL and not virtual


def _full_identity_problems(
    session: Session,
    name: str,
    article: Article,
    table: TableDescription,
    below: Sequence[Partition],
    others: OtherPublications,
) -> Iterator[ConfigurationError]:
    """Yield a problem where the Publisher's own UPDATE would fail once the table has REPLICA IDENTITY FULL: for another
    publication's column list, or (from PostgreSQL 18) its silence on stored generated columns."""
    version, where = session.info.server_version // 10000, f"Publisher {session.info.dbname}"
    lacking = [it for it in below if it.replica_identity != FULL]
    if (table.replica_identity == "full" and not lacking) or version < 15:
        return
    stored = any(column.generation is Generation.STORED for column in table.columns)
    if not (others.have_column_lists or (stored and others.leave_out_generated)):
        return
    silent = sql.SQL("p.pubgencols <> 's'" if version >= 18 and stored else "false")
    names = [article.source, *(it.table for it in below)]
    affected = session.execute(
        sql.SQL(
            "SELECT DISTINCT p.pubname FROM pg_catalog.pg_publication p, pg_catalog.pg_publication_tables t "
            "WHERE t.pubname = p.pubname "
            "AND (t.schemaname, t.tablename) IN (SELECT * FROM unnest(%(schemas)s::text[], %(names)s::text[])) "
            "AND (p.pubupdate OR p.pubdelete) AND p.pubname <> %(ours)s "
            "AND (EXISTS (SELECT FROM pg_catalog.pg_publication_rel r "
            "WHERE r.prpubid = p.oid AND r.prrelid = ANY (%(tables)s::oid[]) AND r.prattrs IS NOT NULL) OR {})"
        ).format(silent),
        {
            "tables": [table.object_id, *(it.object_id for it in below)],
            "schemas": [it.schema for it in names],
            "names": [it.table for it in names],
            "ours": name,
        },
    ).fetchall()
    for (publication,) in affected:
        yield ConfigurationError(
            f"article {article.source}: REPLICA IDENTITY FULL would make UPDATE and DELETE fail at {where}: "
            f"publication {publication} has a column list for this table or leaves out its generated columns",
            remedy="set replica_identity: default for this article, or change that publication",
        )


def before_image_problems(at: str, article: Article, table: TableDescription) -> Iterator[ConfigurationError]:
    """Yield a problem for settings that need more of a row than the log carries without REPLICA IDENTITY FULL."""
    key = {column.name for column in table.key}
    wanting = needs_whole_rows(article, key)
    # Without the old row, an unchanged TOASTed value is not in the log at all.
    if any(column.toastable and column.name not in key for column in table.published(article.columns)):
        if article.upd_cmd.syntax in (CallSyntax.CALL, CallSyntax.MCALL):
            wanting.append(f"upd_cmd: {article.upd_cmd.syntax}")
        if article.update_policy is UpdatePolicy.ALWAYS_PAIRS:
            wanting.append("update_policy: always_pairs")
    if wanting:
        yield ConfigurationError(
            f"{at}: the log carries no before image of the table, which is needed for {', '.join(wanting)}",
            remedy=f"ALTER TABLE {article.source} REPLICA IDENTITY FULL, or leave replica_identity out of the article; "
            "a table with a virtual generated column cannot have it",
        )


def type_problems(at: str, article: Article, table: TableDescription) -> Iterator[ConfigurationError]:
    for column in table.published(article.columns):
        if not is_type(column.type_name):
            yield ConfigurationError(
                f"{at}: column {column.name} is of type {column.type_name}, which is not read",
                remedy="leave the column out of the article's columns, or give it another type",
            )


def column_problems(at: str, article: Article, table: TableDescription) -> Iterator[ConfigurationError]:
    names = {column.name for column in table.columns}
    publishable = [column.name for column in table.publishable()]
    for name in article.columns or ():
        if name not in names:
            yield ConfigurationError(
                f"{at}: columns: {name!r} does not exist",
                remedy=f"{did_you_mean(name, publishable)} allowed: {', '.join(publishable)}".lstrip(),
            )
        elif name not in publishable:
            yield ConfigurationError(
                f"{at}: columns: {name!r} is generated, it is computed at the Subscriber",
                remedy=f"allowed: {', '.join(publishable)}",
            )
    published = {column.name for column in table.published(article.columns)}
    for name in article.lob_columns:
        if name not in published:
            yield ConfigurationError(
                f"{at}: lob_columns: {name!r} is not published",
                remedy=f"{did_you_mean(name, published)} allowed: {', '.join(sorted(published))}".lstrip(),
            )
    left_out = [
        column.name for column in table.key if article.columns is not None and column.name not in article.columns
    ]
    if left_out:
        yield ConfigurationError(
            f"{at}: columns: primary key column {', '.join(left_out)} is left out (error 21250)",
            remedy="add it to columns: the key is what finds a row at the Subscriber",
        )
    for column in table.key:
        if column.generation is not Generation.NONE:
            yield ConfigurationError(
                f"{at}: primary key column {column.name} is generated", remedy="allowed: a plain column"
            )


def no_such_table(session: Session, where: str, wanted: TableName) -> ConfigurationError:
    """Return the error of an article whose table is not there, with the likeliest one."""
    with translated_errors(where):
        tables = [TableName(*row) for row in session.execute(_TABLES)]
    found = likely_table(wanted, tables)
    question = "" if found is None else f"did you mean {found}? "
    return ConfigurationError(
        f"article {wanted}: {where} has no such table",
        remedy=f"{question}names are case-sensitive; allowed: schema.table as the catalogue spells it",
    )


def likely_table(wanted: TableName, tables: list[TableName]) -> TableName | None:
    """Return a table of that name in another schema, or one of a name like it; None where there is none."""
    elsewhere = sorted(it for it in tables if it.table.casefold() == wanted.table.casefold())
    near = [it for it in elsewhere if it.schema.casefold() == wanted.schema.casefold()] or elsewhere
    if near:
        return near[0]
    # A schema's name that is written right would make every table of it alike.
    beside = [it for it in tables if it.schema.casefold() == wanted.schema.casefold()]
    for among in (sorted(beside), sorted(tables)):
        name = likeliest(wanted.table, (it.table for it in among))
        if name is not None:
            return next(it for it in among if it.table == name)
    return None
