"""Tables as the server's catalogue describes them."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from tranrepl.errors import ConfigurationError
from tranrepl.model.catalogue import ColumnDescription, Identity, TableDescription
from tranrepl.model.names import TableName
from tranrepl.model.position import FIRST_POSITION, Position
from tranrepl.model.table_definition import DefinedColumn, Generation, TableDefinition, UniqueConstraint
from tranrepl.model.table_file import TableFile
from tranrepl.mysql.auto_increment import numbers_of
from tranrepl.mysql.session import Session, tells_apart
from tranrepl.publisher.mysql.column_types import declared
from tranrepl.publisher.mysql.message_table import MESSAGES
from tranrepl.publisher.mysql.row_filters import filter_problem
from tranrepl.publisher.mysql.table_maps import Flavor
from tranrepl.settings.publication import Article

_CASCADES = 15
"""Bits of a foreign key's type: CASCADE and SET NULL, ON DELETE and ON UPDATE."""
_KINDS = {"BASE TABLE": "table", "VIEW": "view"}


def table_number(name: TableName) -> int:
    """Return a table's number: made of its name, as nothing else lasts. A table that is renamed is another one."""
    return zlib.crc32(str(name).encode()) & 0x7FFFFFFF


def column_number(name: str) -> int:
    """Return a column's number: made of its name, as nothing else lasts. A column that is renamed is another one."""
    return zlib.crc32(name.lower().encode()) & 0x7FFFFFFF


def describe_tables(
    session: Session, tables: Collection[TableName], holds_from: Position = FIRST_POSITION
) -> dict[TableName, TableDescription]:
    """Return those that exist. `holds_from`: a position in the log before now."""
    if not tables:
        return {}
    wanted = ", ".join("(%s, %s)" for _ in tables)
    values = [part for it in tables for part in (it.schema, it.table)]
    found = session.execute(
        "SELECT table_schema, table_name, table_type, coalesce(engine, '') FROM information_schema.tables "
        f"WHERE (table_schema, table_name) IN ({wanted})",
        values,
    )
    columns = defaultdict(list)
    for row in session.execute(
        "SELECT table_schema, table_name, column_name, ordinal_position, column_type, is_nullable, extra, "
        "COALESCE(character_set_name, ''), COALESCE(collation_name, '') FROM information_schema.columns "
        f"WHERE (table_schema, table_name) IN ({wanted}) ORDER BY ordinal_position",
        values,
    ):
        columns[TableName(*row[:2])].append(row[2:])
    indexes: defaultdict[TableName, dict[str, list[str]]] = defaultdict(dict)
    for schema, table, index, column in session.execute(
        "SELECT table_schema, table_name, index_name, column_name FROM information_schema.statistics "
        f"WHERE non_unique = 0 AND (table_schema, table_name) IN ({wanted}) ORDER BY index_name, seq_in_index",
        values,
    ):
        indexes[TableName(schema, table)].setdefault(index, []).append(column or "")
    described = {}
    for schema, table, kind, _ in found:
        name = TableName(schema, table)
        described[name] = _description(name, _KINDS.get(kind, kind.lower()), columns[name], indexes[name], holds_from)
    return described


def _description(
    name: TableName,
    kind: str,
    rows: list[tuple[object, ...]],
    indexes: Mapping[str, list[str]],
    holds_from: Position,
) -> TableDescription:
    key = indexes.get("PRIMARY", [])
    unique = {column for it in indexes.values() for column in it}
    columns = tuple(_column(row, key, unique) for row in rows)
    labels = {
        str(column): declared(str(spelling)).labels(str(charset)) for column, _, spelling, _, _, charset, _ in rows
    }
    ordinals = {it.name: it.ordinal for it in columns}
    definition = TableDefinition(
        name=name,
        replica_identity="full",
        persistence="permanent",
        columns=tuple(
            DefinedColumn(
                ordinal=it.ordinal,
                name=it.name,
                type_oid=it.type_oid,
                type_modifier=it.type_modifier,
                type_name=it.type_name,
                not_null=it.not_null,
                generation=it.generation,
                is_identity=it.identity is not Identity.NONE,
                types=(),
                labels=labels[it.name],
            )
            for it in columns
            # They do not travel, and what they are made of is not followed.
            if it.generation is Generation.NONE
        ),
        holds_from=holds_from,
        unique=tuple(
            UniqueConstraint(
                name=index,
                primary=index == "PRIMARY",
                immediate=True,
                partial=False,
                identity=False,
                columns=tuple(ordinals.get(it, 0) for it in of),
            )
            for index, of in indexes.items()
        ),
    )
    number = table_number(name)
    return TableDescription(
        name=name,
        object_id=number,
        kind=kind,
        persistence="permanent",
        replica_identity="full",
        columns=columns,
        deferrable=False,
        file=TableFile(number=number, columns={}),
        sequences={
            str(column): numbers
            for column, _, spelling, _, extra, *_ in rows
            if "auto_increment" in str(extra) and (numbers := numbers_of(str(spelling))) is not None
        },
    ).with_definition(definition)


def _column(row: tuple[object, ...], key: list[str], unique: Collection[str]) -> ColumnDescription:
    name, _, spelling, nullable, extra, charset, collation = (str(it) for it in row)
    of = declared(spelling)
    counts = "auto_increment" in extra
    # Numbers of rows are no truth values, however they are shown.
    type_name = "smallint" if of.type_name == "boolean" and counts else of.type_name or spelling
    generated = "GENERATED" in extra.upper() and "DEFAULT_GENERATED" not in extra.upper()
    return ColumnDescription(
        name=name,
        ordinal=column_number(name),
        type_oid=of.number(charset),
        type_modifier=-1,
        type_name=type_name,
        base_type_name=type_name.partition("(")[0],
        not_null=nullable == "NO",
        generation=Generation.STORED if generated else Generation.NONE,
        identity=Identity.BY_DEFAULT if counts else Identity.NONE,
        # In words of this server's, which no other database need understand.
        generation_expression=None,
        generated_from=(),
        key_ordinal=key.index(name) + 1 if name in key else None,
        unique=name in unique,
        toastable=False,
        # A label is stored as a number.
        ignores_case=not tells_apart(collation) and of.name not in ("enum", "set"),
    )


def tables_in(session: Session, schemas: Collection[str]) -> dict[TableName, int]:
    """Return the tables of these databases and their numbers."""
    found = session.execute(
        "SELECT table_schema, table_name FROM information_schema.tables WHERE table_type = 'BASE TABLE' "
        "AND table_schema IN %s",
        [tuple(schemas)],
    )
    return {it: table_number(it) for it in (TableName(*row) for row in found)}


def table_names(session: Session, numbers: Collection[int]) -> dict[int, TableName]:
    """Return the names of these tables, by number; those that exist."""
    found = session.execute(
        "SELECT table_schema, table_name FROM information_schema.tables WHERE table_schema NOT IN "
        "('information_schema', 'mysql', 'performance_schema', 'sys')"
    )
    named = {table_number(it): it for it in (TableName(*row) for row in found)}
    return {number: named[number] for number in numbers if number in named}


def spellings(session: Session, table: TableName) -> dict[str, str]:
    """Return the types of a table's columns as the catalogue spells them, by name."""
    return dict(
        session.execute(
            "SELECT column_name, column_type FROM information_schema.columns "
            "WHERE table_schema = %s AND table_name = %s",
            [table.schema, table.table],
        )
    )


class TableSize(NamedTuple):
    """How large a table is, about."""

    bytes: int = 0
    rows: int = 0


def table_size(session: Session, table: TableName) -> TableSize:
    """Return how large a table is; nothing of one that is not there."""
    found = session.execute(
        "SELECT COALESCE(data_length, 0), COALESCE(table_rows, 0) FROM information_schema.tables "
        "WHERE table_schema = %s AND table_name = %s",
        [table.schema, table.table],
    )
    return TableSize(*map(int, found[0])) if found else TableSize()


def article_problems(
    session: Session, where: str, flavor: Flavor, article: Article, table: TableDescription
) -> Iterator[ConfigurationError]:
    """Yield why a table cannot be published as the article asks, each with its remedy."""
    name, source = table.name, str(article.source)
    if name == MESSAGES:
        yield ConfigurationError(
            f"{where}: table {source} is tranrepl's own", remedy="leave it out of the articles", article=source
        )
        return
    yield from table_problems(session, where, flavor, table)
    if table.kind != "table":
        return
    known = [it.name for it in table.columns]
    for column in article.columns or ():
        if column not in known:
            yield ConfigurationError(
                f"{where}: table {source} has no column {column!r}",
                remedy=f"its columns: {', '.join(known)}",
                article=source,
            )
    left_out = [it.name for it in table.key if article.columns is not None and it.name not in article.columns]
    if left_out:
        yield ConfigurationError(
            f"{where}: table {source}: column {left_out[0]} of the primary key is left out",
            remedy=f"add {left_out[0]} to the article's columns",
            article=source,
        )
    yield from _value_problems(session, where, article, table)


def table_problems(
    session: Session, where: str, flavor: Flavor, table: TableDescription
) -> Iterator[ConfigurationError]:
    """Yield why a table cannot be published, whatever the article asks, each with its remedy."""
    name, source = table.name, str(table.name)
    if table.kind != "table":
        yield ConfigurationError(
            f"{where}: {source} is a {table.kind}", remedy="name tables with rows of their own", article=source
        )
        return
    ((engine,),) = session.execute(
        "SELECT engine FROM information_schema.tables WHERE table_schema = %s AND table_name = %s",
        [name.schema, name.table],
    )
    if str(engine).lower() != "innodb":
        yield ConfigurationError(
            f"{where}: table {source} is of engine {engine}, which has no transactions",
            remedy=f"ALTER TABLE {source} ENGINE = InnoDB",
            article=source,
        )
    if not table.key:
        yield ConfigurationError(
            f"{where}: table {source} has no primary key, and no unique index without NULLs in its place",
            remedy=f"ALTER TABLE {source} ADD PRIMARY KEY (…)",
            article=source,
        )
    yield from _cascade_problems(session, where, flavor, name)
    if len({it.ordinal for it in table.columns}) < len(table.columns):
        yield ConfigurationError(
            f"{where}: two columns of table {source} have one number, which is made of their names",
            remedy="rename one of them",
            article=source,
        )


def _value_problems(
    session: Session, where: str, article: Article, table: TableDescription
) -> Iterator[ConfigurationError]:
    """Yield why values cannot be read, or the row filter cannot be evaluated on them."""
    name, source = table.name, str(article.source)
    spelled = spellings(session, name)
    unread = [it for it in table.published(article.columns) if declared(spelled[it.name]).type_name is None]
    for it in unread:
        yield ConfigurationError(
            f"{where}: table {source}: column {it.name} is of type {it.type_name}, whose values cannot be read",
            remedy="leave the column out (columns)",
            article=source,
        )
    unfit = None
    if article.filter is not None:
        unfit = filter_problem(session, article.filter, name, [it.name for it in table.published(article.columns)])
    if unfit is not None:
        yield ConfigurationError(
            f"{where}: table {source}: filter {article.filter!r}: {unfit}",
            remedy=f"correct the article's filter; the table's columns: {', '.join(it.name for it in table.columns)}",
            article=source,
        )


_CASCADES_OF: Mapping[Flavor, str] = {
    # The standard's views show MariaDB's foreign keys to few.
    Flavor.MARIADB: "SELECT SUBSTRING_INDEX(id, '/', -1), ref_name FROM information_schema.innodb_sys_foreign "
    "WHERE BINARY for_name = CONCAT(CAST(CONVERT(%s USING filename) AS BINARY), '/', "
    f"CAST(CONVERT(%s USING filename) AS BINARY)) AND type & {_CASCADES}",
    Flavor.MYSQL: "SELECT constraint_name, CONCAT(unique_constraint_schema, '/', referenced_table_name) "
    "FROM information_schema.referential_constraints WHERE constraint_schema = %s AND table_name = %s "
    "AND (delete_rule IN ('CASCADE', 'SET NULL') OR update_rule IN ('CASCADE', 'SET NULL'))",
}
_WHY_NOT_CASCADED = {
    Flavor.MARIADB: "the binary log says nothing of that",
    Flavor.MYSQL: "the binary log has these rows in an order that keys do not allow, or not at all",
}


def _cascade_problems(session: Session, where: str, flavor: Flavor, table: TableName) -> Iterator[ConfigurationError]:
    """Yield an error for each foreign key by which the server changes the table's rows itself."""
    for key, parent in session.execute(_CASCADES_OF[flavor], [table.schema, table.table]):
        yield ConfigurationError(
            f"{where}: table {table}: foreign key {key} changes its rows where {parent} changes (CASCADE or SET "
            f"NULL), and {_WHY_NOT_CASCADED[flavor]}",
            remedy=f"ALTER TABLE {table} DROP FOREIGN KEY {key}, and add it with ON DELETE RESTRICT ON UPDATE "
            "RESTRICT; a trigger may change the rows instead: its changes are in the log",
            article=str(table),
        )
