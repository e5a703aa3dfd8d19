"""What our login may not at a SQL Server Subscriber, before setup or a delivery finds out.

Source: "HAS_PERMS_BY_NAME"; it counts roles, and what one right implies of another. "CREATE TABLE", "CREATE PROCEDURE",
"CREATE SCHEMA", permissions: the right of that name in the database, and ALTER on the schema. "SET IDENTITY_INSERT",
permissions: ALTER on the table.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError
from sqlalchemy.sql import quoted_name

from tranrepl.error_numbers import PERMISSION_DENIED, Codes
from tranrepl.errors import JobRightError, MissingRightError
from tranrepl.model.catalogue import TableDescription
from tranrepl.model.commands import Method
from tranrepl.settings.publication import Article
from tranrepl.settings.registration import PublishedTables
from tranrepl.subscriber.base.catalogue import Place
from tranrepl.subscriber.job_rights import RIGHTS_OF_JOBS, rights_on_table
from tranrepl.subscriber.mssql.catalogue import CatalogueTable, find_tables
from tranrepl.subscriber.mssql.driver import number_of, text_of
from tranrepl.subscriber.mssql.procedures import PROCEDURE_NAMES
from tranrepl.subscriber.mssql.sql_text import SCHEMA, qualified, quoted
from tranrepl.subscriber.procedure_names import PREFIXES, called_procedure, generates

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


_CREATE_TABLE, _CREATE_PROCEDURE, _CREATE_SCHEMA = "CREATE TABLE", "CREATE PROCEDURE", "CREATE SCHEMA"
_SELECT, _ALTER, _EXECUTE, _VIEW_DEFINITION = "SELECT", "ALTER", "EXECUTE", "VIEW DEFINITION"
_Name = tuple[str, str]
"""Schema and table."""
_ROWS = (_SELECT, "INSERT", "UPDATE", "DELETE")
_DATABASE, _SCHEMA, _OBJECT = "DATABASE", "SCHEMA", "OBJECT"
_SHOW_ALL = (_SELECT, _ALTER, _VIEW_DEFINITION)
"""Rights on a schema, each of which shows all of its tables."""
_OWNER = "dbo"
"""The database's owner, and the server's administrators: nothing there is refused to it."""
_USER = sa.text("select user_name()")


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
    unseen: frozenset[_Name]
    """Tables that the catalogue does not show to our login."""
    schemas: frozenset[str]

    def lacks(self, places: Iterable[_Name]) -> list[_Name]:
        return [it for it in places if it not in self.tables and it not in self.unseen]


def right_problems(
    session: sa.Connection, where: str, tables: PublishedTables, model: Sequence[str]
) -> Iterator[MissingRightError]:
    """Yield the rights that setup lacks to create what is missing: the model's tables and the procedures in the schema
    dbo, and each article's table in its own; and those that deliveries lack on what is there. `model`: the names of the
    model's tables.

    A server that does not say whether it has given a right is believed to have done so.
    """
    user = str(session.scalar(_USER))
    if user == _OWNER:
        return
    articles = [article for article, _ in tables]
    of_model = [(SCHEMA, name) for name in model]
    there = _find(session, articles, of_model)
    creating = _lacking(session, list(_to_create(articles, of_model, there)))
    using = _lacking(session, list(_to_use(tables, there)))
    hidden = {qualified(*it) for it in there.unseen}
    unseen = [it for it in using if it.name in hidden]
    using = [it for it in using if it.name not in hidden]
    if creating:
        yield _problem(session, where, user, "create what setup creates", creating, MissingRightError)
    if unseen:
        what = f"see tables that are there: {', '.join(sorted(hidden))}"
        yield _problem(session, where, user, what, unseen, MissingRightError)
    if using:
        yield _problem(session, where, user, "apply commands", using, JobRightError)


def bulk_warnings(session: sa.Connection, tables: PublishedTables) -> Iterator[str]:
    """Yield the schemas of which our login does not see what decides about bulk (triggers and foreign keys of tables
    that are there, the text of generated procedures), each with its grant."""
    user = str(session.scalar(_USER))
    if user == _OWNER:
        return
    articles = {_place(article): article for article, _ in tables}
    found = find_tables(session, list(articles))
    shown = [_Shown(_OBJECT, qualified(*place), place[0]) for place in articles if place in found]
    if any(generates(it.propagation(operation)) for it in articles.values() for operation in PREFIXES):
        shown.append(_Shown(_SCHEMA, quoted(SCHEMA), SCHEMA))
    lacking = set(_lacking(session, [right for it in shown for right in it.rights]))
    for schema in dict.fromkeys(it.schema for it in shown if lacking.issuperset(it.rights)):
        yield (
            f"user {user} may not see the definitions of tables and procedures in schema {schema}: commands on them "
            f"are applied serially, not in bulk; GRANT {_VIEW_DEFINITION} ON {_SCHEMA}::{quoted(schema)} TO "
            f"{quoted(user)} allows it"
        )


@dataclass(frozen=True, slots=True)
class _Shown:
    """A securable of which the definition must be seen."""

    kind: str
    name: str
    schema: str

    @property
    def rights(self) -> list[_Right]:
        """Either of these shows it."""
        return list(_rights(self.kind, self.name, _VIEW_DEFINITION, _ALTER))


def _place(article: Article) -> _Name:
    return article.destination_table.schema, article.destination_table.table


def _find(session: sa.Connection, articles: Sequence[Article], model: Sequence[_Name]) -> _There:
    """Look for the model's tables, and those of the articles."""
    places = [*model, *map(_place, articles)]
    found, schemas = find_tables(session, places), _schemas(session, [schema for schema, _ in places])
    missing = [it for it in places if it not in found and it[0] in schemas]
    showing = _showing_all(session, {schema for schema, _ in missing})
    return _There(found, find_unseen(session.engine, [it for it in missing if it[0] not in showing]), schemas)


def _showing_all(session: sa.Connection, schemas: Iterable[str]) -> set[str]:
    """Return the schemas whose tables are all shown to our login."""
    rights = {schema: set(_rights(_SCHEMA, quoted(schema), *_SHOW_ALL)) for schema in schemas}
    lacking = set(_lacking(session, [it for of_schema in rights.values() for it in of_schema]))
    return {schema for schema, of_schema in rights.items() if not of_schema <= lacking}


def _schemas(session: sa.Connection, names: Sequence[str]) -> frozenset[str]:
    """Return those that are there, as they are written here."""
    asked = sa.values(sa.column("name", sa.Unicode), name="asked").data([(it,) for it in dict.fromkeys(names)])
    return frozenset(session.scalars(sa.select(asked.c.name).where(sa.func.schema_id(asked.c.name).is_not(None))))


# What is needed


def _to_create(articles: Sequence[Article], model: Sequence[_Name], there: _There) -> Iterator[_Right]:
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


def _to_use(tables: PublishedTables, there: _There) -> Iterator[_Right]:
    for name, rights in RIGHTS_OF_JOBS.items():
        if not there.lacks([(SCHEMA, name)]):
            yield from _rights(_OBJECT, qualified(SCHEMA, name), *rights)
    for article, source in tables:
        if not there.lacks([_place(article)]):
            yield from _rights(_OBJECT, qualified(*_place(article)), *_on_table(article, source, there))
            yield from _calls(article)


def _on_table(article: Article, source: TableDescription, there: _There) -> Iterator[str]:
    table = there.tables.get(_place(article))
    if table is None:
        # Whatever is called to change its rows, it must be seen.
        yield _SELECT
    yield from rights_on_table(article)
    if table is not None and _sets_identity(article, source, table):
        yield _ALTER


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
    # Of a procedure that is not there, or not seen, its schema has the right.
    absent = sa.and_(asked.c.kind == _OBJECT, sa.func.object_id(asked.c.name).is_(None))
    schema = sa.func.quotename(sa.func.parsename(asked.c.name, 2))
    name = sa.case((absent, schema), else_=sa.func.coalesce(asked.c.name, sa.func.quotename(sa.func.db_name())))
    kind = sa.case((absent, _SCHEMA), else_=asked.c.kind)
    query = sa.select(asked.c.number).where(sa.func.has_perms_by_name(name, kind, asked.c.wanted) == 0)
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
