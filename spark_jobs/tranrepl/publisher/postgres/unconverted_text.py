"""Text of a PostgreSQL database whose encoding is SQL_ASCII: any bytes, which the server neither converts nor checks
where a session asks for the same."""

from __future__ import annotations

from collections.abc import Sequence

from tranrepl.errors import DataError
from tranrepl.model.article import RegisteredArticle
from tranrepl.postgres.session import Session

SQL_ASCII = "SQL_ASCII"
AS_IT_IS = (
    f"SELECT pg_catalog.set_config('client_encoding', '{SQL_ASCII}', false) "
    f"WHERE pg_catalog.current_setting('server_encoding') = '{SQL_ASCII}'"
)
"""The client encoding of a session that reads such text unchecked: a server that checks it names neither table nor
key."""

_NOT_IN_REPERTOIRE = "22021"


def is_unconverted(session: Session) -> bool:
    """Return whether the server does not know the encoding of its text."""
    return session.info.parameter_status("server_encoding") == SQL_ASCII


def no_utf8(article: RegisteredArticle, column: str, key: Sequence[bytes]) -> DataError:
    """Return the error of a value that is no UTF-8, in the row of this key."""
    names = [article.columns[at].name for at in article.key_positions]
    shown = [value.decode(errors="backslashreplace") for value in key]
    where = ", ".join(f"{name} = {value}" for name, value in zip(names, shown, strict=True))
    return DataError(
        f"article {article.source}: column {column} holds bytes that are no UTF-8 ({where}): the Publisher's database "
        f"is {SQL_ASCII}, which takes any",
        database_code=_NOT_IN_REPERTOIRE,
        remedy=f"UPDATE {article.source} so that {column} is UTF-8 there. The log still has the value, which cannot "
        "be read: then reinitialize after it, with `tranrepl reinitialize FILE`",
        article=str(article.source),
        key=where,
    )


def refuse_unreadable_lines(article: RegisteredArticle, lines: bytes) -> None:
    """Check whole rows in COPY's text form. Raises DataError at the first that is no UTF-8."""
    try:
        lines.decode()
    except UnicodeDecodeError as error:
        begin = lines.rfind(b"\n", 0, error.start) + 1
        cells = lines[begin : lines.find(b"\n", error.start)].split(b"\t")
        column = article.columns[lines.count(b"\t", begin, error.start)].name
        raise no_utf8(article, column, [cells[at] for at in article.key_positions]) from None
