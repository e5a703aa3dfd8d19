"""The table that was meant, where the Publisher has none of the name in the file."""

from __future__ import annotations

from tranrepl.errors import ConfigurationError
from tranrepl.model.names import TableName
from tranrepl.postgres.session import Session, translated_errors
from tranrepl.spelling import likeliest

_TABLES = """
SELECT n.nspname, c.relname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 WHERE c.relkind IN ('r', 'p') AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
   AND pg_catalog.has_schema_privilege(n.oid, 'USAGE')
"""


def no_such_table(session: Session, where: str, wanted: TableName) -> ConfigurationError:
    """Return the error of an article whose table is not there, with the likeliest one."""
    with translated_errors(where):
        tables = [TableName(*row) for row in session.execute(_TABLES)]
    found = likely_table(wanted, tables)
    question = "" if found is None else f"did you mean {found}? "
    return ConfigurationError(
        f"article {wanted}: {where} has no such table",
        remedy=f"{question}names are case-sensitive; allowed: schema.table as the catalogue spells it",
    )


def likely_table(wanted: TableName, tables: list[TableName]) -> TableName | None:
    """Return a table of that name in another schema, or one of a name like it; None where there is none."""
    elsewhere = sorted(it for it in tables if it.table.casefold() == wanted.table.casefold())
    near = [it for it in elsewhere if it.schema.casefold() == wanted.schema.casefold()] or elsewhere
    if near:
        return near[0]
    # A schema's name that is written right would make every table of it alike.
    beside = [it for it in tables if it.schema.casefold() == wanted.schema.casefold()]
    for among in (sorted(beside), sorted(tables)):
        name = likeliest(wanted.table, (it.table for it in among))
        if name is not None:
            return next(it for it in among if it.table == name)
    return None
