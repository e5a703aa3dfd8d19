"""Whether a table is altered between the moment of a snapshot and the moment when a session holds it.

A snapshot has the rows of its moment and the catalogue of its moment, but a query is parsed with the table as it is
now, and reads those rows in another shape than they had.
"""

from __future__ import annotations

from psycopg import errors, sql

from tranrepl.errors import TransientError
from tranrepl.model.article import RegisteredArticle
from tranrepl.postgres.catalogue import qualified
from tranrepl.postgres.session import Session
from tranrepl.publisher.snapshot import UnregisteredError

# What a query gives of a domain is what the domain is made of.
_COLUMNS = """
WITH RECURSIVE given AS (
  SELECT attnum AS number, atttypid AS type, atttypmod AS modifier FROM pg_catalog.pg_attribute
   WHERE attrelid = %(table)s AND attnum > 0 AND NOT attisdropped
  UNION ALL SELECT g.number, t.typbasetype, t.typtypmod FROM given g JOIN pg_catalog.pg_type t ON t.oid = g.type
   WHERE t.typtype = 'd')
SELECT a.attnum, a.attname::text, a.atttypid::bigint, a.atttypmod, g.type::bigint, g.modifier
  FROM given g JOIN pg_catalog.pg_type t ON t.oid = g.type AND t.typtype <> 'd'
  JOIN pg_catalog.pg_attribute a ON a.attrelid = %(table)s AND a.attnum = g.number
 ORDER BY a.attnum
"""


def refuse_altered(session: Session, where: str, article: RegisteredArticle) -> None:
    """Raise UnregisteredError where the columns that the snapshot has are not those that are registered, TransientError
    where they are not those that the table has now. The table is locked by then."""
    seen = session.execute(_COLUMNS, {"table": article.source_object_id}).fetchall()
    registered = {(it.ordinal, it.name, it.type_oid, it.type_modifier) for it in article.columns}
    if not registered.issubset(column[:4] for column in seen):
        raise UnregisteredError(
            f"{where}: the columns of table {article.source} are not those that are registered", str(article.source)
        )
    try:
        with session.transaction():
            unaltered = _numbers_now(session, article) == [it.ordinal for it in article.columns]
            unaltered = unaltered and _columns_now(session, article) == [
                (name, *given) for _, name, _, _, *given in seen
            ]
    except errors.UndefinedColumn:
        unaltered = False
    if not unaltered:
        raise TransientError(
            f"{where}: table {article.source} was altered while its snapshot began", article=str(article.source)
        )


def _numbers_now(session: Session, article: RegisteredArticle) -> list[int]:
    """Return the numbers of the published columns. Others may be no business of this login."""
    columns = sql.SQL(", ").join(sql.Identifier(it.name) for it in article.columns)
    query = sql.SQL("SELECT {} FROM ONLY {} WHERE false").format(columns, qualified(article.source))
    result = session.execute(query).pgresult
    return [] if result is None else [result.ftablecol(at) for at in range(result.nfields)]


def _columns_now(session: Session, article: RegisteredArticle) -> list[tuple[str, int, int]]:
    """Return name, type and modifier of each column, as a query gives them."""
    query = sql.SQL("SELECT (NULL::{}).* WHERE false").format(qualified(article.source))
    result = session.execute(query).pgresult
    if result is None:
        return []
    return [((result.fname(at) or b"").decode(), result.ftype(at), result.fmod(at)) for at in range(result.nfields)]
