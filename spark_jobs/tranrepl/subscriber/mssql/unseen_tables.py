"""Tables that are there, and that the catalogue does not show to our login.

`sys` shows a login only what it has some right on. Reading a table says more: that it may not be read, or that there is
none. Source: "Metadata visibility configuration"; errors 229 and 208.
"""

from __future__ import annotations

from collections.abc import Iterable

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError
from sqlalchemy.sql import quoted_name

from tranrepl.error_numbers import PERMISSION_DENIED
from tranrepl.subscriber.mssql.driver_errors import number_of, text_of

_IN_WORDS = "permission denied"
"""How the text begins at a server that gives this error its general number."""


def find_unseen(engine: sa.Engine, tables: Iterable[tuple[str, str]]) -> frozenset[tuple[str, str]]:
    """Return which of the tables that the catalogue does not show are there, given by schema and name. Reads no row, in
    a session of its own: an error may end what is open."""
    asked = list(tables)
    if not asked:
        return frozenset()
    with engine.connect() as session:
        return frozenset(it for it in asked if _is_refused(session, *it))


def _is_refused(session: sa.Connection, schema: str, name: str) -> bool:
    table = sa.table(quoted_name(name, quote=True), schema=quoted_name(schema, quote=True))
    try:
        with session.begin():
            session.execute(sa.select(sa.literal_column("1")).select_from(table).where(sa.false()))
    except DBAPIError as error:
        if error.connection_invalidated:
            raise
        return denies(error)
    return False


def denies(error: DBAPIError) -> bool:
    """Return whether an error says that a right is missing, and not that there is no such table."""
    return number_of(error) == PERMISSION_DENIED or text_of(error.orig or error).lower().startswith(_IN_WORDS)
