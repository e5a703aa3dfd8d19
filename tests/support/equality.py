"""Equality by EXCEPT both ways: one end's rows are loaded next to the other's and compared there."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import sql

from support.comparison import columns_of
from support.site import Site
from tranrepl.connections import Connection
from tranrepl.model.names import TableName
from tranrepl.settings.publication import Article

_SHOWN = 5
_ROWS = sql.Identifier("rows_of_publisher")


def differing_rows(site: Site, subscriber: Connection | None = None) -> dict[str, list[tuple[Any, ...]]]:
    """Return by article the first rows that only one end has. All columns that both ends have are compared."""
    target = subscriber or site.databases.subscriber
    found = {str(it.source): _differing(it, site.databases.publisher, target) for it in site.publication.articles}
    return {article: rows for article, rows in found.items() if rows}


def common_columns(article: Article, publisher: Connection, subscriber: Connection) -> list[str]:
    """Return the columns that both ends have, generated ones included, in the Publisher's order."""
    theirs = columns_of(subscriber, article.destination_table)
    return [name for name in columns_of(publisher, article.source) if name in theirs]


def copy_rows(
    source: Connection, source_table: TableName, target: Connection, target_table: sql.Identifier, columns: list[str]
) -> None:
    """Copy a table's rows by COPY."""
    with _session(source) as reader, _session(target) as writer:
        _copy(reader, source_table, writer, target_table, columns)


def _session(connection: Connection) -> psycopg.Connection[tuple[Any, ...]]:
    return psycopg.connect(**connection.libpq_parameters("test"), client_encoding="utf8")  # type: ignore[arg-type]


def _copy(
    reader: psycopg.Connection[Any],
    source: TableName,
    writer: psycopg.Connection[Any],
    target: sql.Identifier,
    columns: list[str],
) -> None:
    names = _names(columns)
    read = sql.SQL("COPY (SELECT {} FROM {}) TO STDOUT").format(names, sql.Identifier(source.schema, source.table))
    write = sql.SQL("COPY {} ({}) FROM STDIN").format(target, names)
    with reader.cursor().copy(read) as rows, writer.cursor().copy(write) as into:
        for chunk in rows:
            into.write(chunk)


def _differing(article: Article, publisher: Connection, subscriber: Connection) -> list[tuple[Any, ...]]:
    columns = common_columns(article, publisher, subscriber)
    destination = sql.Identifier(article.destination_table.schema, article.destination_table.table)
    with _session(publisher) as source, _session(subscriber) as target:
        target.execute(
            sql.SQL("CREATE TEMPORARY TABLE {} AS SELECT {} FROM {} LIMIT 0").format(
                _ROWS, _names(columns), destination
            )
        )
        _copy(source, article.source, target, _ROWS, columns)
        return target.execute(_except_both_ways(columns, destination)).fetchall()


def _except_both_ways(columns: list[str], destination: sql.Identifier) -> sql.Composed:
    names, shown = _names(columns), sql.Literal(_SHOWN)
    return sql.SQL(" UNION ALL ").join(
        sql.SQL("(SELECT {}, * FROM (SELECT {} FROM {} EXCEPT ALL SELECT {} FROM {}) differing LIMIT {})").format(
            sql.Literal(end), names, one, names, other, shown
        )
        for end, one, other in (
            ("only at the Publisher", _ROWS, destination),
            ("only at the Subscriber", destination, _ROWS),
        )
    )


def _names(columns: list[str]) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, columns))
