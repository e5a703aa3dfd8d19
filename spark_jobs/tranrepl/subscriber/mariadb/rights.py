"""What our login may not at a MariaDB or MySQL Subscriber, before setup finds out. Asks, and tries nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import sqlalchemy as sa

from tranrepl.error_numbers import Codes
from tranrepl.errors import JobRightError, MissingRightError
from tranrepl.printable import named
from tranrepl.settings.publication import Article
from tranrepl.subscriber.job_rights import RIGHTS_OF_JOBS, rights_on_table
from tranrepl.subscriber.mariadb.sql_text import quoted_name
from tranrepl.subscriber.procedure_names import PREFIXES, generates

_ACCESS_DENIED = "1142"
_ROWS = ("SELECT", "INSERT", "UPDATE", "DELETE")
_TABLES = ("CREATE", "ALTER", "INDEX", "REFERENCES")
_ONLY_FOR_BULK = ("msreplication_objects",)
_PROCEDURES = ("CREATE ROUTINE", "ALTER ROUTINE", "EXECUTE")

# A grant on databases is for names that are LIKE its own. Roles that are in force come with theirs.
_GRANTED = sa.text(
    """
SELECT privilege_type FROM information_schema.user_privileges WHERE grantee IN :ours
 UNION SELECT privilege_type FROM information_schema.schema_privileges
        WHERE grantee IN :ours AND :schema LIKE table_schema
"""
).bindparams(sa.bindparam("ours", expanding=True))
_GRANTED_ON_TABLES = sa.text(
    "SELECT table_schema, table_name, privilege_type FROM information_schema.table_privileges WHERE grantee IN :ours"
).bindparams(sa.bindparam("ours", expanding=True))
_EXISTING_TABLES = sa.text(
    "SELECT count(*) FROM information_schema.tables WHERE table_schema = :schema AND table_name IN :tables"
).bindparams(sa.bindparam("tables", expanding=True))


def right_problems(
    session: sa.Connection, where: str, articles: Sequence[Article], model: Sequence[str]
) -> Iterator[MissingRightError]:
    """Yield the rights that setup lacks to create what is missing: in the connection's database the model's tables and
    the procedures, and in each article's schema its table. `model`: the names of the model's tables."""
    ours = _grantees(session)
    home = str(session.scalar(sa.text("SELECT database()")))
    wanted: dict[str, tuple[str, ...]] = {}
    if not _exist(session, home, model):
        procedures = any(generates(article.propagation(it)) for article in articles for it in PREFIXES)
        wanted[home] = (*_ROWS, *_TABLES, *(_PROCEDURES if procedures else ()))
    for article in articles:
        schema, name = article.destination_table.schema, article.destination_table.table
        if schema not in wanted and not _exist(session, schema, [name]):
            wanted[schema] = (*_ROWS, *_TABLES)
    yield from _of_jobs(session, where, ours, home, articles)
    login, _ = _account(session)
    lacking = {
        schema: [it for it in rights if it not in _granted(session, ours, schema)] for schema, rights in wanted.items()
    }
    grants = [
        f"GRANT {', '.join(rights)} ON {_quoted_exactly(schema)}.* TO {_grantee(session)}"
        for schema, rights in lacking.items()
        if rights
    ]
    databases = [schema for schema, rights in lacking.items() if rights and schema != home]
    if grants:
        yield MissingRightError(
            f"{where}: login {login} may not create what setup creates"
            + (f" in {named(databases, 'database')} (each schema is a database there)" if databases else ""),
            **Codes.MARIADB.value.numbered(_ACCESS_DENIED),
            remedy="let an administrator run:\n" + "\n".join(f"{it};" for it in grants),
        )


def _of_jobs(
    session: sa.Connection, where: str, ours: Sequence[str], home: str, articles: Sequence[Article]
) -> Iterator[JobRightError]:
    """Yield what the jobs lack on the tables that are there."""
    tables = {(home, name): rights for name, rights in RIGHTS_OF_JOBS.items() if name not in _ONLY_FOR_BULK}
    for it in articles:
        tables[it.destination_table.schema, it.destination_table.table] = rights_on_table(it)
    of_tables: dict[tuple[str, str], set[str]] = defaultdict(set)
    for schema, name, right in session.execute(_GRANTED_ON_TABLES, {"ours": list(ours)}):
        of_tables[schema.lower(), name.lower()].add(right)
    of_schemas = {schema: _granted(session, ours, schema) for schema, _ in tables}
    lacking = {
        (schema, name): [it for it in rights if it not in of_schemas[schema] | of_tables[schema.lower(), name.lower()]]
        for (schema, name), rights in tables.items()
        if not set(rights) <= of_schemas[schema] and _exist(session, schema, [name])
    }
    grants = [
        f"GRANT {', '.join(rights)} ON {quoted_name(schema)}.{quoted_name(name)} TO {_grantee(session)};"
        for (schema, name), rights in lacking.items()
        if rights
    ]
    if grants:
        yield JobRightError(
            f"{where}: login {_account(session)[0]} may not apply commands",
            **Codes.MARIADB.value.numbered(_ACCESS_DENIED),
            remedy="let an administrator run:\n" + "\n".join(grants),
        )


def grant_of_texts(session: sa.Connection) -> str:
    """Return the statement that lets our login see the texts of procedures that others made."""
    what = "SELECT ON mysql.proc" if getattr(session.dialect, "is_mariadb", True) else "SHOW_ROUTINE ON *.*"
    return f"GRANT {what} TO {_grantee(session)}"


def _account(session: sa.Connection) -> tuple[str, str]:
    """Return the login and its host, as the server found them."""
    login, _, host = str(session.scalar(sa.text("SELECT current_user()"))).rpartition("@")
    return login, host


def _grantee(session: sa.Connection) -> str:
    return "@".join(map(_literal, _account(session)))


def _grantees(session: sa.Connection) -> list[str]:
    """Return the login and the roles in force, as information_schema writes them."""
    login, host = _account(session)
    roles = session.execute(sa.text("SELECT role_name FROM information_schema.enabled_roles")).scalars()
    return [
        f"'{login}'@'{host}'",
        *(form for role in roles if role for form in (f"'{role}'@''", f"'{role}'@'%'", role)),
    ]


def _granted(session: sa.Connection, ours: Sequence[str], schema: str) -> set[str]:
    return set(session.execute(_GRANTED, {"ours": list(ours), "schema": schema}).scalars())


def _exist(session: sa.Connection, schema: str, tables: Sequence[str]) -> bool:
    found = session.scalar(_EXISTING_TABLES, {"schema": schema, "tables": list(tables)})
    return bool(found == len(tables))


def _quoted_exactly(schema: str) -> str:
    """Return the schema's name for a GRANT, where an underscore stands for any character unless it is escaped."""
    return quoted_name(schema.replace("_", "\\_").replace("%", "\\%"))


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
