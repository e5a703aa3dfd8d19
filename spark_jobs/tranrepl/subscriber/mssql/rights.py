"""What our login may not at a SQL Server Subscriber, before setup or a delivery finds out. Asks, and tries nothing.

Source: "HAS_PERMS_BY_NAME"; it counts roles, and what one right implies of another. "CREATE TABLE", "CREATE PROCEDURE",
"CREATE SCHEMA", permissions: the right of that name in the database, and ALTER on the schema. "SET IDENTITY_INSERT",
permissions: ALTER on the table.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from tranrepl.error_numbers import PERMISSION_DENIED, Codes
from tranrepl.errors import JobRightError, MissingRightError
from tranrepl.model.catalogue import TableDescription
from tranrepl.model.commands import Method
from tranrepl.settings.publication import Article
from tranrepl.settings.registration import PublishedTables
from tranrepl.subscriber.generic.catalogue import Place
from tranrepl.subscriber.job_rights import MODEL_TABLES, rights_on_table
from tranrepl.subscriber.mssql.catalogue import CatalogueTable, find_tables
from tranrepl.subscriber.mssql.procedures import PROCEDURE_NAMES
from tranrepl.subscriber.mssql.sql_text import SCHEMA, qualified, quoted
from tranrepl.subscriber.procedure_names import PREFIXES, called_procedure, generates

_ROWS = ("SELECT", "INSERT", "UPDATE", "DELETE")
_CREATE_TABLE, _CREATE_PROCEDURE, _CREATE_SCHEMA = "CREATE TABLE", "CREATE PROCEDURE", "CREATE SCHEMA"
_ALTER, _EXECUTE = "ALTER", "EXECUTE"
_DATABASE, _SCHEMA, _OBJECT = "DATABASE", "SCHEMA", "OBJECT"
_UNSEEN = " (a table on which it has no right counts as missing)"
_OWNER = "dbo"
"""The database's owner, and whoever administers the server: nothing there is refused to it."""
_USER = sa.text("select user_name()")
_SCHEMAS = sa.text("select name from sys.schemas where name in :names").bindparams(
    sa.bindparam("names", expanding=True)
)


@dataclass(frozen=True, slots=True)
class _Right:
    """A right on a securable: what T-SQL calls its class, and its quoted name; None: the session's database."""

    kind: str
    name: str | None
    right: str


@dataclass(frozen=True, slots=True)
class _There:
    """What is there of what setup creates."""

    tables: Mapping[Place, CatalogueTable]
    """By the places asked for."""
    schemas: frozenset[str]

    def lacks(self, places: Iterable[Place]) -> list[Place]:
        return [it for it in places if it not in self.tables]


def right_problems(
    session: sa.Connection, where: str, tables: PublishedTables, model: Sequence[str]
) -> Iterator[MissingRightError]:
    """Yield the rights that setup lacks to create what is missing: the model's tables and the procedures in the schema
    dbo, and each article's table in its own; and those that deliveries lack on what is there. `model`: the names of the
    model's tables.

    A table on which the login has no right at all is not seen, and counts as missing. A server that does not say
    whether it has given a right is believed to have done so.
    """
    user = str(session.scalar(_USER))
    if user == _OWNER:
        return
    articles = [article for article, _ in tables]
    of_model: list[Place] = [(SCHEMA, name) for name in model]
    found = find_tables(session, [*of_model, *map(_place, articles)])
    there = _There(found, _schemas(session, [it.destination_table.schema for it in articles]))
    creating = _lacking(session, list(_to_create(articles, of_model, there)))
    using = _lacking(session, list(_to_use(tables, found)))
    if creating:
        what = f"create what setup creates{_UNSEEN}"
        yield _problem(session, where, user, what, creating, MissingRightError)
    if using:
        yield _problem(session, where, user, "apply commands", using, JobRightError)


def _place(article: Article) -> Place:
    return article.destination_table.schema, article.destination_table.table


def _schemas(session: sa.Connection, names: Sequence[str]) -> frozenset[str]:
    """Return those that are there."""
    return frozenset(session.execute(_SCHEMAS, {"names": list(names)}).scalars()) if names else frozenset()


# What is needed


def _to_create(articles: Sequence[Article], model: Sequence[Place], there: _There) -> Iterator[_Right]:
    missing = dict.fromkeys(it.destination_table.schema for it in articles if there.lacks([_place(it)]))
    begins = bool(there.lacks(model))
    calls = begins and any(generates(article.propagation(it)) for article in articles for it in PREFIXES)
    if missing or begins:
        yield _Right(_DATABASE, None, _CREATE_TABLE)
    if any(schema not in there.schemas for schema in missing):
        yield _Right(_DATABASE, None, _CREATE_SCHEMA)
    if calls:
        yield _Right(_DATABASE, None, _CREATE_PROCEDURE)
    for schema in missing:
        if schema in there.schemas:
            yield from _rights(_SCHEMA, quoted(schema), _ALTER, *_ROWS)
    if begins:
        yield from _rights(_SCHEMA, quoted(SCHEMA), _ALTER, *_ROWS, *([_EXECUTE] if calls else []))


def _to_use(tables: PublishedTables, found: Mapping[Place, CatalogueTable]) -> Iterator[_Right]:
    for name, rights in MODEL_TABLES.items():
        if (SCHEMA, name) in found:
            yield from _rights(_OBJECT, qualified(SCHEMA, name), *rights)
    for article, source in tables:
        table = found.get(_place(article))
        if table is not None:
            more = [_ALTER] if _sets_identity(article, source, table) else []
            yield from _rights(_OBJECT, qualified(*_place(article)), *rights_on_table(article), *more)
            yield from _calls(article)


def _sets_identity(article: Article, source: TableDescription, table: CatalogueTable) -> bool:
    """Return whether a statement or generated procedure gives an identity column its value."""
    published = [column.name for column in source.published(article.columns)]
    identities = {it.name for it in table.spelled_as(published).columns if it.identity is not None}
    return bool(rights_on_table(article)) and not identities.isdisjoint(published)


def _calls(article: Article) -> Iterator[_Right]:
    for operation in PREFIXES:
        propagation = article.propagation(operation)
        if propagation.method is Method.PROCEDURE:
            name = called_procedure(propagation, operation, article.destination_table, PROCEDURE_NAMES)
            yield _Right(_OBJECT, qualified(*name), _EXECUTE)


def _rights(kind: str, name: str, *rights: str) -> Iterator[_Right]:
    return (_Right(kind, name, right) for right in rights)


# What is lacking


def _lacking(session: sa.Connection, wanted: Sequence[_Right]) -> list[_Right]:
    """Ask about all rights at once."""
    wanted = list(dict.fromkeys(wanted))
    if not wanted:
        return []
    asked = sa.values(
        sa.column("number", sa.Integer),
        sa.column("kind", sa.Unicode),
        sa.column("name", sa.Unicode),
        sa.column("wanted", sa.Unicode),
        name="asked",
    ).data([(number, it.kind, it.name, it.right) for number, it in enumerate(wanted)])
    name = sa.func.coalesce(asked.c.name, sa.func.quotename(sa.func.db_name()))
    query = sa.select(asked.c.number).where(sa.func.has_perms_by_name(name, asked.c.kind, asked.c.wanted) == 0)
    return [wanted[number] for number in sorted(session.scalars(query))]


def _problem(
    session: sa.Connection, where: str, user: str, what: str, lacking: Sequence[_Right], kind: type[MissingRightError]
) -> MissingRightError:
    database = quoted(session.engine.url.database or "master")
    grants = "\n".join(f"{it} TO {quoted(user)};" for it in _grants(lacking))
    return kind(
        f"{where}: user {user} may not {what}",
        **Codes.SQL_SERVER.value.numbered(str(PERMISSION_DENIED)),
        remedy=f"let an administrator run in the database {database}:\n{grants}",
    )


def _grants(lacking: Sequence[_Right]) -> Iterator[str]:
    """Yield a GRANT a securable, in the order in which they are named first."""
    rights: dict[tuple[str, str | None], list[str]] = defaultdict(list)
    for it in lacking:
        rights[it.kind, it.name].append(it.right)
    for (kind, name), of_securable in rights.items():
        on = "" if name is None else f" ON {kind}::{name}"
        yield f"GRANT {', '.join(of_securable)}{on}"
