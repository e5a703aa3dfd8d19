"""Whether a table holds the same rows at both ends, by their data."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import psycopg
from psycopg import sql

from tranrepl.connections import Connection
from tranrepl.model.names import TableName
from tranrepl.settings.publication import Article

_COLUMNS = """
SELECT attname FROM pg_attribute
WHERE attrelid = format('%%I.%%I', %s::text, %s::text)::regclass AND attnum > 0 AND NOT attisdropped
ORDER BY attnum
"""


@dataclass(frozen=True, slots=True)
class Content:
    """A table's rows in one fixed order, counted and hashed."""

    rows: int
    digest: str


_Session = psycopg.Connection[tuple[object, ...]]


@dataclass(frozen=True, slots=True)
class Comparison:
    """One article at both ends."""

    article: Article
    publisher: Content
    subscriber: Content

    @property
    def equal(self) -> bool:
        return self.publisher == self.subscriber


def compare(article: Article, publisher: Connection, subscriber: Connection) -> Comparison:
    """Compare every published column of every row, in text form."""
    with _session(publisher) as source, _session(subscriber) as destination:
        columns = article.columns or _columns(source, article.source)
        return Comparison(
            article,
            _content(source, article.source, columns),
            _content(destination, article.destination_table, columns),
        )


def columns_of(connection: Connection, table: TableName) -> list[str]:
    with _session(connection) as session:
        return _columns(session, table)


def _columns(session: _Session, table: TableName) -> list[str]:
    return [str(name) for (name,) in session.execute(_COLUMNS, [table.schema, table.table])]


def _content(session: _Session, table: TableName, columns: list[str]) -> Content:
    """Read a table through COPY, sorted by all the columns' text."""
    values = sql.SQL(", ").join(sql.SQL('{}::text COLLATE "C"').format(sql.Identifier(name)) for name in columns)
    order = sql.SQL(", ").join(sql.Literal(position) for position in range(1, len(columns) + 1))
    statement = sql.SQL("COPY (SELECT {} FROM {} ORDER BY {}) TO STDOUT").format(
        values, sql.Identifier(table.schema, table.table), order
    )
    rows, digest = 0, hashlib.sha256()
    with session.cursor().copy(statement) as copy:
        for chunk in copy:
            # COPY's text format writes a row's own line feeds as \n.
            rows += bytes(chunk).count(b"\n")
            digest.update(chunk)
    return Content(rows, digest.hexdigest())


def _session(connection: Connection) -> _Session:
    return psycopg.connect(**connection.libpq_parameters("tranrepl comparison"), client_encoding="utf8")  # type: ignore[arg-type]
