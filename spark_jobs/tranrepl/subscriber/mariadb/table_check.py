"""What of a MariaDB or MySQL table, or of its server, keeps commands from being applied to it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql
from sqlalchemy.types import TypeEngine

from tranrepl.subscriber.base.catalogue import Place, Refusal
from tranrepl.subscriber.mariadb.sql_text import qualified_name

_ENGINE = "InnoDB"
_MOST_COLUMNS = 1017
_ROW_BYTES = 65_535
_PAGE_BYTES = 8125
"""With pages of the usual size."""
_KEY_BYTES = 3072
_ROW_HEADER = 18
_OUTSIDE = 21
"""What a page has of a value that is stored outside of it."""
_SHORT = 255
"""The longest value whose length is one byte, and which is in the page."""
_LARGE_OBJECT = 12
_BYTES_OF_A_CHARACTER = 4
_SIZES: Mapping[type[TypeEngine[Any]], int] = {
    mysql.TINYINT: 1,
    mysql.SMALLINT: 2,
    mysql.BIGINT: 8,
    mysql.INTEGER: 4,
    mysql.DOUBLE: 8,
    mysql.DATETIME: 8,
    mysql.DATE: 3,
    mysql.TIME: 6,
}
_ENGINES = sa.text(
    "SELECT table_schema AS place, table_name AS name, engine AS engine FROM information_schema.tables "
    "WHERE engine IS NOT NULL AND table_schema IN :schemas AND table_name IN :names"
).bindparams(sa.bindparam("schemas", expanding=True), sa.bindparam("names", expanding=True))


_LOG_FORMAT = sa.text(
    "SHOW VARIABLES WHERE variable_name IN ('log_bin', 'sql_log_bin', 'binlog_format') "
    "AND value NOT IN ('OFF', '0', 'ROW', 'MIXED')"
)
LOG_FORMAT_REMEDY = (
    "let an administrator run: SET GLOBAL binlog_format = 'MIXED'; and set binlog_format = MIXED (or ROW) in the "
    "configuration file of the Subscriber's server"
)


def log_format_problem(session: sa.Connection) -> str | None:
    """Return why the server takes no changes of ours; None where it does. Our sessions are READ COMMITTED, which a
    binary log of statements cannot hold."""
    found = {row[0].lower() for row in session.execute(_LOG_FORMAT)}
    if found != {"log_bin", "sql_log_bin", "binlog_format"}:
        return None
    return "its binary log holds statements (binlog_format = STATEMENT), and so takes none of a READ COMMITTED session"


def tables_of_other_engines(session: sa.Connection, places: Sequence[Place]) -> dict[Place, Refusal]:
    """Return the tables whose storage engine does not take part in a transaction with the watermark."""
    if not places:
        return {}
    own = session.engine.url.database or ""
    wanted = {place: (place[0] or own, place[1]) for place in places}
    schemas, names = (sorted({it[at] for it in wanted.values()}) for at in (0, 1))
    rows = session.execute(_ENGINES, {"schemas": schemas, "names": names}).all()
    engines = {(row.place, row.name): row.engine for row in rows}
    # Where the server ignores case, the catalogue may have another one.
    folded = {_folded(it): engine for it, engine in engines.items()}
    found = {place: engines.get(it) or folded.get(_folded(it)) for place, it in wanted.items()}
    return {
        place: _refusal(place, engine)
        for place, engine in found.items()
        if engine is not None and engine.lower() != _ENGINE.lower()
    }


def fit_row(table: sa.Table, indexed: Collection[str], text: TypeEngine[Any]) -> None:
    """Make `text` of the longest texts of a table, until its row has room for all columns. The key's and `indexed`
    keep their types."""
    movable = [it for it in table.columns if not it.primary_key and it.name not in indexed and _is_varchar(it)]
    for column in sorted(movable, key=lambda it: -_bytes(it.type)):
        if _row_bytes(table) <= _ROW_BYTES:
            return
        column.type = text


def size_problem(table: sa.Table) -> str | None:
    """Return why the server does not take a table that setup would create; None where it does.

    Sources: MariaDB, "InnoDB Limitations" and "Troubleshooting Row Size Too Large Errors with InnoDB".
    """
    columns, row, page = len(table.columns), _row_bytes(table), _page_bytes(table)
    key = sum(_bytes(it.type) for it in table.primary_key)
    if columns > _MOST_COLUMNS:
        return f"has {columns} columns: {_ENGINE} takes {_MOST_COLUMNS}"
    if row > _ROW_BYTES:
        return f"has rows of up to {row} bytes: the server takes {_ROW_BYTES}"
    if page > _PAGE_BYTES:
        return f"has rows of which up to {page} bytes are in one page: {_ENGINE} takes {_PAGE_BYTES}"
    if key > _KEY_BYTES + 2 * len(table.primary_key):
        return f"has a primary key of up to {key} bytes: {_ENGINE} takes {_KEY_BYTES}"
    return None


def _row_bytes(table: sa.Table) -> int:
    """Return what a row takes at most; of a large object, its place."""
    return sum(_bytes(it.type) for it in table.columns) + _null_bytes(table)


def _page_bytes(table: sa.Table) -> int:
    """Return what of a row is in its page at least, whatever is stored outside of it."""
    inside = sum(_OUTSIDE if _may_go_outside(it) else _bytes(it.type) for it in table.columns)
    return inside + _null_bytes(table) + _ROW_HEADER


def _may_go_outside(column: sa.Column[Any]) -> bool:
    return not column.primary_key and (_is_large_object(column.type) or _bytes(column.type) > _SHORT + 1)


def _null_bytes(table: sa.Table) -> int:
    return -(-sum(bool(it.nullable) for it in table.columns) // 8)


def _bytes(kind: TypeEngine[Any]) -> int:
    """Return what values of a type that setup gives take at most."""
    if isinstance(kind, mysql.DECIMAL):
        precision, scale = kind.precision or 0, kind.scale or 0
        return -(-(precision - scale) * 4 // 9) - (-scale * 4 // 9)
    if _is_large_object(kind):
        return _LARGE_OBJECT
    length: int | None = getattr(kind, "length", None)
    if length is None:
        return next(size for type_, size in _SIZES.items() if isinstance(kind, type_))
    longest = length if isinstance(kind, mysql.VARBINARY) else length * _BYTES_OF_A_CHARACTER
    return longest + (1 if longest <= _SHORT else 2)


def _is_large_object(kind: TypeEngine[Any]) -> bool:
    return isinstance(kind, mysql.LONGTEXT | mysql.LONGBLOB)


def _is_varchar(column: sa.Column[Any]) -> bool:
    return isinstance(column.type, mysql.VARCHAR)


def _folded(place: tuple[str, str]) -> tuple[str, str]:
    return place[0].casefold(), place[1].casefold()


def _refusal(place: Place, engine: str) -> Refusal:
    return Refusal(
        f"has the storage engine {engine}, which does not commit and roll back with the watermark",
        f"ALTER TABLE {qualified_name(*place)} ENGINE={_ENGINE};",
    )
