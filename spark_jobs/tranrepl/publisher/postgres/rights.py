"""What our role may not at a PostgreSQL Publisher, before setup or a snapshot finds out."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from psycopg import sql

from tranrepl.error_numbers import Codes
from tranrepl.errors import JobRightError, MissingRightError
from tranrepl.model.names import TableName
from tranrepl.postgres.catalogue import qualified
from tranrepl.postgres.rights import (
    INSUFFICIENT_PRIVILEGE,
    grants_on_database,
    grants_on_schemas,
    grants_on_tables,
    lacking_right,
    our_role,
)
from tranrepl.postgres.session import Session, translated_errors

FOR_OWNER = "let the owner of the tables, with CREATE on the database, run this, then set up again:"
OR_GRANT = "or let a superuser give the role what it needs for it:"


def read_problems(session: Session, where: str, tables: Collection[TableName]) -> Iterator[MissingRightError]:
    """Yield a right that a snapshot and a validation lack to read the tables; the log is another right."""
    with translated_errors(where):
        grants = grants_on_tables(session, tables, "SELECT")
        if grants:
            yield lacking_right(
                where, f"role {our_role(session)} may not read every published table", grants, JobRightError
            )


def owner_problems(
    session: Session, where: str, publication: str, tables: Collection[TableName], statements: Sequence[str]
) -> Iterator[MissingRightError]:
    """Yield a problem where setup may not run these statements, for which one must own the tables, and the publication
    where it is there.

    The owner may run them instead.
    """
    if not statements:
        return
    with translated_errors(where):
        role = our_role(session)
        others = _not_owned(session, tables)
        rights = [
            sql.SQL("ALTER TABLE {} OWNER TO {}").format(qualified(it), sql.Identifier(role)).as_string(session)
            for it in others
        ]
        rights = [*grants_on_schemas(session, (it.schema for it in tables), "USAGE"), *rights]
        owned = _owns_publication(session, publication)
        if owned is None:
            rights = [*grants_on_database(session, "CREATE"), *rights]
        elif not owned:
            change = sql.SQL("ALTER PUBLICATION {} OWNER TO {}").format(
                sql.Identifier(publication), sql.Identifier(role)
            )
            rights = [*rights, *grants_on_database(session, "CREATE"), change.as_string(session)]
    if rights:
        whose = f"does not own {', '.join(map(str, others))}" if others else "may not create the publication"
        yield MissingRightError(
            f"{where}: role {role} {whose}, as setup must to publish the tables",
            **Codes.POSTGRES.value.numbered(INSUFFICIENT_PRIVILEGE),
            remedy="\n".join([FOR_OWNER, *_ended(statements), OR_GRANT, *_ended(rights)]),
        )


def _ended(statements: Sequence[str]) -> list[str]:
    return [f"{it};" for it in statements]


def _not_owned(session: Session, tables: Collection[TableName]) -> list[TableName]:
    rows = session.execute(
        "SELECT n.nspname, c.relname FROM unnest(%s::text[], %s::text[]) AS asked(schema, name) "
        "JOIN pg_catalog.pg_namespace n ON n.nspname = asked.schema "
        "JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = asked.name "
        "WHERE NOT pg_catalog.pg_has_role(c.relowner, 'USAGE')",
        [[it.schema for it in tables], [it.table for it in tables]],
    )
    return sorted(TableName(*row) for row in rows)


def _owns_publication(session: Session, name: str) -> bool | None:
    """Return whether our role owns the publication; None where there is none of that name."""
    row = session.execute(
        "SELECT pg_catalog.pg_has_role(pubowner, 'USAGE') FROM pg_catalog.pg_publication WHERE pubname = %s", [name]
    ).fetchone()
    return None if row is None else bool(row[0])
