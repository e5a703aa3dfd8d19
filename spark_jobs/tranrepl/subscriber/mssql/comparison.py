"""A SQL Server Subscriber's end of a comparison."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from tranrepl.errors import ConfigurationError
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.comparison import Form
from tranrepl.subscriber.base.comparison import ComparisonWays, SqlComparison, open_comparison
from tranrepl.subscriber.base.database import SqlDatabase, translated_errors
from tranrepl.subscriber.base.target import SqlTarget
from tranrepl.subscriber.mssql.comparison_statements import ServerWays, SqlServerSide, compared_column, form_of
from tranrepl.subscriber.mssql.driver import literal
from tranrepl.subscriber.mssql.sql_text import qualified, quoted

Connect = Callable[[], AbstractContextManager[sa.Connection]]

_SAMPLE = "a|~ \u00fc \u20ac \U0001f600"
_BYTES = "convert(varbinary(max), convert(varchar(max), {} collate Latin1_General_100_BIN2_UTF8))"
_DIGESTS = (
    f"lower(convert(varchar(32), hashbytes('MD5', {_BYTES}), 2))",
    # Babelfish's: it has no collation of that name, and keeps all of its texts in UTF-8.
    "md5(convert(varchar(max), {}))",
)
_IS_EXCLUSIVE_OR = "select checksum_agg(v) from (values (1), (3), (-8)) as samples(v)"
_EXCLUSIVE_OR = 1 ^ 3 ^ -8
_SNAPSHOTS = sa.text("select snapshot_isolation_state from sys.databases where name = db_name()")
_FIRST_READ = "select count(*) from msreplication_subscriptions where 1 = 0"


@contextmanager
def compared(
    connect: Connect,
    of_server: Callable[[sa.Connection], SqlDatabase],
    articles: Sequence[RegisteredArticle],
    sessions: int,
    where: str,
) -> Iterator[SqlComparison]:
    """Open what compares the articles' tables. Raises ConfigurationError where the server cannot."""
    with connect() as session:
        database = of_server(session)
        with translated_errors(where, database):
            _require_snapshots(session, where)
            ways = _server_ways(session, where)
    with open_comparison(connect, database, _comparison_ways(ways), articles, sessions, where) as comparison:
        yield comparison


def _comparison_ways(server: ServerWays) -> ComparisonWays:
    return ComparisonWays(
        hold=_hold,
        form=form_of,
        side=partial(_side, server),
        literal=literal,
        begin="SET XACT_ABORT ON; BEGIN TRANSACTION",
    )


def _require_snapshots(session: sa.Connection, where: str) -> None:
    if not session.scalar(_SNAPSHOTS):
        name = quoted(session.engine.url.database or "master")
        raise ConfigurationError(
            f"{where}: the database allows no snapshot isolation, in which its rows are compared while others write",
            remedy=f"alter database {name} set allow_snapshot_isolation on",
        )


def _server_ways(session: sa.Connection, where: str) -> ServerWays:
    """Ask the server what it has. Raises ConfigurationError where it has no UTF-8."""
    sample = f"N'{_SAMPLE}'"
    digest = hashlib.md5(_SAMPLE.encode(), usedforsecurity=False).hexdigest()
    for expression in _DIGESTS:
        if _asked(session, f"select {expression.format(sample)}") == digest:
            return ServerWays(expression, _asked(session, _IS_EXCLUSIVE_OR) == _EXCLUSIVE_OR)
    raise ConfigurationError(
        f"{where}: the server has no texts in UTF-8, in which they are compared",
        remedy="SQL Server 2019 or later has them",
    )


def _asked(session: sa.Connection, statement: str) -> object:
    """Return the answer; None from a server that does not know what is asked."""
    try:
        answer: object = session.exec_driver_sql(statement).scalar()
    except DBAPIError:
        answer = None
    session.rollback()
    return answer


def _hold(session: sa.Connection) -> None:
    # The snapshot is of the first read's moment, not of the transaction's beginning.
    session.execution_options(isolation_level="SNAPSHOT")
    session.exec_driver_sql(_FIRST_READ)


def _side(server: ServerWays, found: SqlTarget, forms: Sequence[Form]) -> SqlServerSide:
    columns = tuple(
        compared_column(column, form, quoted(column.name)) for column, form in zip(found.columns, forms, strict=True)
    )
    table = qualified(found.schema, found.name)
    return SqlServerSide(table, columns, found.article.key_positions, server)
