"""Dates that do not exist, as `0000-00-00`: a server may keep them, and no Subscriber has them in a column of dates."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import pymysql

from tranrepl.mysql.session import Session, error_number, quoted
from tranrepl.printable import named
from tranrepl.publisher.mysql.catalogue import spellings
from tranrepl.publisher.mysql.row_filters import condition
from tranrepl.publisher.mysql.snapshot import qualified
from tranrepl.publisher.publisher import Tables
from tranrepl.settings.publication import Article

_KINDS = ("date", "timestamp")
_REFUSING = {"NO_ZERO_DATE", "NO_ZERO_IN_DATE"}
_STRICT = {"STRICT_TRANS_TABLES", "STRICT_ALL_TABLES"}
_SECONDS_IN_ALL, _SECONDS_EACH = 5.0, 2.0
_LIMITED = "SET /*M!100300 max_statement_time = {seconds} */ /*!80000 max_execution_time = {milliseconds} */"
_TOOK_TOO_LONG = (1969, 3024)


def zero_date_warnings(session: Session, where: str, tables: Tables) -> Iterator[str]:
    """Yield which published columns have such dates. Rows are looked through for some seconds; a table of more is named
    where the server's `sql_mode` lets clients write such dates."""
    ends, found, unknown = time.monotonic() + _SECONDS_IN_ALL, list[str](), list[str]()
    try:
        for article, table in tables:
            dates = [it.name for it in table.published(article.columns) if it.type_name.startswith(_KINDS)]
            if not dates:
                continue
            seconds = min(ends - time.monotonic(), _SECONDS_EACH)
            columns = None if seconds <= 0 else _columns_with(session, article, dates, seconds)
            if columns is None:
                unknown.append(str(article.source))
            elif columns:
                found.append(f"{article.source} ({', '.join(columns)})")
    finally:
        session.execute(_LIMITED.format(seconds=0, milliseconds=0))
    if found:
        yield (
            f"{where}: dates that do not exist, as 0000-00-00: {', '.join(found)}. A Subscriber refuses them: a "
            "snapshot of them fails, and so does a delivery. Write NULL or a date in their place (MONTH(c) = 0 OR "
            "DAYOFMONTH(c) = 0 finds most), or give the Subscribers' tables text for these columns"
        )
    if unknown and _are_allowed(session):
        yield (
            f"{where}: sql_mode lets clients write dates that do not exist, as 0000-00-00, which a Subscriber refuses, "
            f"and it takes too long to look whether rows have some: {named(unknown, 'table')}. SET GLOBAL sql_mode = "
            "CONCAT(@@GLOBAL.sql_mode, ',STRICT_TRANS_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE') keeps new sessions from it"
        )


def _columns_with(session: Session, article: Article, dates: Sequence[str], seconds: float) -> list[str] | None:
    """Return the columns in which one row has such dates; none where no row has any, None where that takes too
    long."""
    among, table = "TRUE", article.source
    if article.filter is not None:
        among = condition(article.filter, table, spellings(session, table)).sql
    has = [_does_not_exist(quoted(it)) for it in dates]
    session.execute(_LIMITED.format(seconds=round(seconds, 3), milliseconds=max(round(seconds * 1000), 1)))
    try:
        rows = session.execute(
            f"SELECT {', '.join(has)} FROM {qualified(table)} WHERE ({among}) AND ({' OR '.join(has)}) LIMIT 1"  # noqa: S608 - quoted
        )
    except pymysql.err.Error as error:
        if error_number(error) in _TOOK_TOO_LONG:
            return None
        # Our role may not read it, which the check says elsewhere.
        return []
    return [name for row in rows for name, it in zip(dates, row, strict=True) if it]


def _does_not_exist(column: str) -> str:
    days = f"DAYOFMONTH({column})"
    return f"(0 IN (YEAR({column}), MONTH({column}), {days}) OR {days} > DAYOFMONTH(LAST_DAY({column})))"


def _are_allowed(session: Session) -> bool:
    ((mode,),) = session.execute("SELECT @@GLOBAL.sql_mode")
    words = set(str(mode).split(","))
    return not (words >= _REFUSING and words & _STRICT) or "ALLOW_INVALID_DATES" in words
