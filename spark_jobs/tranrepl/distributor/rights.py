"""What our role may not in the distribution database, before setup or a job finds out."""

from __future__ import annotations

from collections.abc import Iterator

from tranrepl.distributor.tables import metadata
from tranrepl.errors import MissingRightError
from tranrepl.model.names import TableName
from tranrepl.postgres.rights import grants_on_schemas, grants_on_tables, lacking_right, our_role
from tranrepl.postgres.session import Session, translated_errors

_FOUND = """
SELECT c.relname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = %s AND c.relkind = 'r'
"""


def right_problems(session: Session, where: str, schema: str) -> Iterator[MissingRightError]:
    """Yield the rights that setup lacks to create missing tables, and jobs to use those that are there."""
    with translated_errors(where):
        found = {name for (name,) in session.execute(_FOUND, [schema])}
        wanted = {table.name for table in metadata.sorted_tables}
        creating = grants_on_schemas(session, [schema], "USAGE", "CREATE") if wanted - found else []
        tables = [TableName(schema, name) for name in sorted(wanted & found)]
        using = grants_on_tables(session, tables, "SELECT", "INSERT", "UPDATE", "DELETE")
        role = our_role(session)
    if creating:
        yield lacking_right(where, f"role {role} may not create its tables", creating)
    if using:
        yield lacking_right(where, f"role {role} may not use its tables", using)
