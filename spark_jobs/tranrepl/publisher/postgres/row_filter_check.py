"""Whether an article's row filter can be one: a condition over published columns whose answer changes with them alone.

The Publisher itself judges that, as it judges the predicate of an index: by its catalogue, which knows the types, and
with them the functions, operators and casts. The index is one of a temporary table, which is rolled back.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import psycopg
import sqlglot
from psycopg import sql
from psycopg.errors import InsufficientPrivilege, InvalidObjectDefinition
from psycopg.pq import DiagnosticField
from sqlglot import Token, TokenType

from tranrepl.errors import ConfigurationError, ReplicationError
from tranrepl.model.catalogue import ColumnDescription, TableDescription
from tranrepl.model.names import TableName
from tranrepl.postgres.catalogue import qualified
from tranrepl.postgres.composed_sql import condition_sql, type_sql
from tranrepl.postgres.session import SAFE_PATH, Session, own_path, translated_errors
from tranrepl.publisher.postgres.row_filters import filter_columns, filter_parts
from tranrepl.settings.publication import Article
from tranrepl.spelling import did_you_mean

_OF_THE_MOMENT = re.compile("now|today|tomorrow|yesterday", re.IGNORECASE)
"""Words that the input functions of dates and times take for the moment at which a condition is parsed."""
_ESCAPED = (TokenType.BYTE_STRING, TokenType.UNICODE_STRING)
STRINGS = (TokenType.STRING, TokenType.HEREDOC_STRING, TokenType.NATIONAL_STRING, *_ESCAPED)
_NO_MOMENT = "tranrepl"
_NOT_A_MOMENT = (b"22007", b"22008")
"""What a date's or time's input function says of a text that is none."""


def filter_problems(session: Session, article: Article, table: TableDescription) -> Iterator[ConfigurationError]:
    """Look at the filter, and change nothing."""
    if article.filter is None:
        return
    at = f"article {article.source}: filter"
    try:
        columns = filter_columns(article.filter, table.name.table)
    except ValueError as error:
        yield ConfigurationError(f"{at}: {error}", remedy="allowed: a condition over published columns")
        return
    published = table.published(article.columns)
    names = [column.name for column in published]
    unpublished = [name for name in columns if name not in names]
    if unpublished:
        yield ConfigurationError(
            f"{at}: column {', '.join(unpublished)} is not published",
            remedy=f"{did_you_mean(unpublished[0], names)} allowed: {', '.join(names)}".lstrip(),
        )
        return
    problem = _other_meaning(session, at, table, published, article.filter)
    if problem is not None:
        yield problem
        return
    try:
        with translated_errors(at):
            # Asked for in binary form, the server takes one statement only.
            session.execute(_query(table.name, article.filter), binary=True)
            literal = _moment(session, table.name, article.filter)
    except ReplicationError as error:
        yield ConfigurationError(error.message, remedy="allowed: a condition in the Publisher's SQL")
        return
    if literal is not None:
        yield ConfigurationError(
            f"{at}: {literal} depends on when it is read", remedy="write the date or time, as in '2026-01-31'"
        )
        return
    yield from _mutable_problems(session, at, table.name.table, published, article.filter)


def _other_meaning(
    session: Session, at: str, table: TableDescription, columns: Sequence[ColumnDescription], condition: str
) -> ConfigurationError | None:
    """Return a problem where the names in the filter mean something else, or nothing, by the safe search path, by which
    it is evaluated, than by the login's own, by which its author may have tried it."""
    try:
        with session.transaction(force_rollback=True):
            temporary = _temporary_table(session, table.name.table, columns)
            safe, own = _meaning(session, temporary, condition), None
            with own_path(session):
                own = _meaning(session, temporary, condition)
    except psycopg.Error:
        # A login that may not make the table gets a message below.
        return None
    if own is None or own == safe:
        return None
    by_own = f"by this login's own search_path it would mean {own}"
    if safe is None:
        return ConfigurationError(
            f"{at}: it has names that are not in pg_catalog, where alone a filter's names are found; {by_own}",
            remedy=f"write the filter with their schemas: {own}",
        )
    return ConfigurationError(
        f"{at}: its names are found in pg_catalog alone, so that it means {safe}; {by_own}",
        remedy=f"write the filter as what it shall mean: {safe}\nor, where you trust those schemas: {own}",
    )


def _meaning(session: Session, table: sql.Identifier, condition: str) -> str | None:
    """Return the condition with all that it names in schemas, where it is one: as PostgreSQL parses it, which calls
    none of it. A constraint that was validated, or an index, would call functions of constants."""
    add = sql.SQL("ALTER TABLE {} ADD CONSTRAINT tranrepl_meaning CHECK ({}) NOT VALID")
    try:
        with session.transaction(force_rollback=True):
            session.execute(add.format(table, condition_sql(condition)), binary=True)
            session.execute(f"SET LOCAL search_path = {SAFE_PATH}")
            row = session.execute(
                "SELECT pg_catalog.pg_get_expr(conbin, conrelid) FROM pg_catalog.pg_constraint "
                "WHERE conrelid = %s::regclass AND conname = 'tranrepl_meaning'",
                [table.as_string(session)],
            ).fetchone()
    except psycopg.Error:
        return None
    return None if row is None else str(row[0])


def _temporary_table(session: Session, name: str, columns: Sequence[ColumnDescription]) -> sql.Identifier:
    """Create a temporary table with such columns, in a transaction that is rolled back. A filter may name its columns
    by the table."""
    temporary = sql.Identifier("pg_temp", name)
    typed = [sql.SQL("{} {}").format(sql.Identifier(it.name), type_sql(it.type_name)) for it in columns]
    session.execute("SET TRANSACTION READ WRITE")
    session.execute(sql.SQL("CREATE TABLE {} ({})").format(temporary, sql.SQL(", ").join(typed)))
    return temporary


def _query(table: TableName, condition: str) -> sql.Composed:
    return sql.SQL("SELECT FROM ONLY {} WHERE ({}) LIMIT 0").format(qualified(table), condition_sql(condition))


def _moment(session: Session, table: TableName, condition: str) -> str | None:
    """Return a literal that the server reads as a date or time of now. With another word in the place of that one, it
    is no date any more, while a text stays one."""
    for token in sqlglot.tokenize(condition, read="postgres"):
        if token.token_type not in STRINGS:
            continue
        literal = condition[token.start : token.end + 1]
        other = _without_moment(token, literal)
        if other != literal:
            changed = condition[: token.start] + other + condition[token.end + 1 :]
            parsed = session.pgconn.prepare(b"", _query(table, changed).as_string(session).encode())
            if parsed.error_field(DiagnosticField.SQLSTATE) in _NOT_A_MOMENT:
                return literal
    return None


def _without_moment(token: Token, literal: str) -> str:
    if token.token_type in _ESCAPED and "\\" in literal:
        # Whatever it says.
        return f"'{_NO_MOMENT}'"
    return _OF_THE_MOMENT.sub(_NO_MOMENT, literal)


def _mutable_problems(
    session: Session, at: str, table: str, columns: Sequence[ColumnDescription], condition: str
) -> Iterator[ConfigurationError]:
    # A filter may name its columns by the table.
    try:
        with translated_errors(at), session.transaction(force_rollback=True):
            mutable = _mutable_part(session, _temporary_table(session, table, columns), condition)
    except ReplicationError as error:
        yield _not_judged(session, error)
        return
    if mutable is not None:
        yield ConfigurationError(
            f"{at}: {mutable} is not immutable: its result may change with time, or with a setting",
            remedy="allowed: functions, operators and casts that PostgreSQL calls IMMUTABLE, as in an index",
        )


def _not_judged(session: Session, error: ReplicationError) -> ConfigurationError:
    if error.report.code != InsufficientPrivilege.sqlstate:
        return ConfigurationError(
            error.message,
            number=error.report.number,
            database_code=error.report.database_code,
            remedy="allowed: what an index's predicate may be",
        )
    database, role = (sql.Identifier(it).as_string(None) for it in (session.info.dbname, session.info.user))
    return ConfigurationError(
        f"{error.message}; the condition is checked by an index on a temporary table, which is rolled back",
        number=error.report.number,
        database_code=error.report.database_code,
        remedy=f"GRANT TEMPORARY ON DATABASE {database} TO {role}",
    )


def _mutable_part(session: Session, table: sql.Identifier, condition: str) -> str | None:
    """Return the smallest part of the condition that is not immutable."""
    predicate = sql.SQL("CREATE INDEX ON {} ((1)) WHERE ({})")
    try:
        with session.transaction():
            session.execute(predicate.format(table, condition_sql(condition)), binary=True)
    except InvalidObjectDefinition:
        parts = (it for it in filter_parts(condition) if not _is_immutable(session, table, it))
        return next(parts, condition)
    return None


def _is_immutable(session: Session, table: sql.Identifier, part: str) -> bool:
    """Return whether the part is immutable, also where it cannot be checked by itself."""
    try:
        with session.transaction():
            session.execute(
                sql.SQL("CREATE INDEX ON {} ((1)) WHERE ({}) IS NULL").format(table, condition_sql(part)), binary=True
            )
    except InvalidObjectDefinition:
        return False
    except psycopg.Error:
        return True
    return True
