"""The model's tables at a PostgreSQL Subscriber.

Source: `MSreplication_subscriptions`, `MSreplication_objects`, `MSsubscription_articles`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

from psycopg import sql

from tranrepl.errors import ConfigurationError
from tranrepl.postgres.rights import our_role
from tranrepl.postgres.session import Session
from tranrepl.subscriber.job_rights import MODEL_TABLES
from tranrepl.subscriber.postgres.procedures import SCHEMA
from tranrepl.subscriber.subscription import SubscriptionKey
from tranrepl.subscriber.tables_version import THIS_VERSION, UNKNOWN_VERSION, TablesVersion

if TYPE_CHECKING:
    import sqlalchemy as sa

WATERMARKS = sql.Identifier(SCHEMA, "msreplication_subscriptions")
OBJECTS = sql.Identifier(SCHEMA, "msreplication_objects")
SNAPSHOTS = sql.Identifier(SCHEMA, "msreplication_snapshots")
ARTICLES = sql.Identifier(SCHEMA, "mssubscription_articles")
VERSION = sql.Identifier(SCHEMA, "msrepl_version")

_KEY_OF = """
SELECT c.conname, EXISTS (SELECT FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.conrelid
                             AND a.attname = 'publisher_system' AND a.attnum = ANY (c.conkey))
  FROM pg_catalog.pg_constraint c WHERE c.contype = 'p' AND c.conrelid = to_regclass(%s)
"""


MINE = sql.SQL("publisher_system = %s AND publisher_db = %s AND publication = %s AND subscription = %s")
"""Rows of one subscription. Its values are those of `key_values` without the first."""


def key_values(key: SubscriptionKey) -> list[str]:
    """Return the values of `publisher`, `publisher_system`, `publisher_db`, `publication` and `subscription`."""
    return [key.publisher, key.publisher_system, key.publisher_db, key.publication, key.subscription]


def has_table(session: Session, table: sql.Identifier) -> bool:
    """Return whether it is there, and a table: to read a view may run code of whoever made it."""
    found = session.execute(
        "SELECT FROM pg_catalog.pg_class WHERE oid = to_regclass(%s) AND relkind = 'r'", [table.as_string(None)]
    )
    return found.fetchone() is not None


_OF_OTHERS = """
SELECT c.relname::text, o.rolname::text,
       CASE c.relkind WHEN 'v' THEN 'VIEW' WHEN 'm' THEN 'MATERIALIZED VIEW' WHEN 'f' THEN 'FOREIGN TABLE'
       WHEN 'S' THEN 'SEQUENCE' WHEN 'c' THEN 'TYPE' ELSE 'TABLE' END
  FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  JOIN pg_catalog.pg_roles o ON o.oid = c.relowner
  JOIN pg_catalog.pg_roles me ON me.rolname = current_user
  JOIN pg_catalog.pg_database d ON d.datname = current_database()
 WHERE n.nspname = %s AND c.relname = ANY (%s) AND NOT o.rolsuper AND o.oid NOT IN (me.oid, d.datdba, n.nspowner)
   AND (me.rolsuper OR NOT pg_catalog.pg_has_role(o.oid, 'MEMBER'))
 ORDER BY 1
"""


def refuse_tables_of_others(session: Session, where: str) -> None:
    """Raise ConfigurationError where a role that may create in the schema has made a table of the model's: its triggers
    would run as our role."""
    for name, owner, kind in session.execute(_OF_OTHERS, [SCHEMA, list(MODEL_TABLES)]).fetchall():
        table = sql.Identifier(SCHEMA, name).as_string(session)
        role = sql.Identifier(our_role(session)).as_string(session)
        drop, take = f"DROP {kind} {table};", f"ALTER TABLE {table} OWNER TO {role};"
        raise ConfigurationError(
            f"{where}: {kind.lower()} {SCHEMA}.{name} belongs to role {owner}, which could put anything there",
            remedy=f"{drop} or, where setup made it as that role: {take}" if kind == "TABLE" else drop,
        )


def create_model_tables(session: Session) -> None:
    """Create the model's tables, inside a transaction. Idempotent; tables of earlier versions get what they lack.

    The version is written down.
    """
    for table, definitions in _defined_tables():
        for statement in definitions:
            session.execute(statement.encode())
        _add_publisher_system(session, table)
    _write_version(session)


@cache
def _defined_tables() -> list[tuple[sa.Table, list[str]]]:
    """Return each table with the statements that make it, or give an earlier version's what it lacks."""
    return [(it, list(_definitions(it))) for it in _tables()]


def _tables() -> list[sa.Table]:
    """Return the tables as PostgreSQL has them: a snapshot's rows say here also what is built after the load."""
    # For setup alone: a delivery does without it.
    import sqlalchemy as sa

    from tranrepl.subscriber import replication_tables

    here = sa.MetaData(schema=SCHEMA)
    tables = {it.name: it.to_metadata(here) for it in replication_tables.METADATA.tables.values()}
    snapshots = tables[replication_tables.SNAPSHOTS.name]
    snapshots.append_column(sa.Column("created", sa.Boolean, nullable=False, server_default=sa.false()))
    snapshots.append_column(sa.Column("deferred", sa.Text))
    return list(tables.values())


def _definitions(table: sa.Table) -> Iterator[str]:
    """Return the statement that makes a table, and one that gives an earlier version's the columns that it lacks."""
    import sqlalchemy as sa
    from sqlalchemy.schema import CreateColumn, CreateTable

    dialect = sa.URL.create("postgresql+psycopg").get_dialect()()
    yield str(CreateTable(table, if_not_exists=True).compile(dialect=dialect))
    later = [it for it in table.columns if it.nullable or it.server_default is not None]
    added = [f"ADD COLUMN IF NOT EXISTS {CreateColumn(it).compile(dialect=dialect)}" for it in later]
    if later:
        yield f"ALTER TABLE {dialect.identifier_preparer.format_table(table)} {', '.join(added)}"


def _add_publisher_system(session: Session, table: sa.Table) -> None:
    """Add the column to the primary key of a table that an earlier version made."""
    columns = [it.name for it in table.primary_key]
    name = sql.Identifier(SCHEMA, table.name)
    found = session.execute(_KEY_OF, [name.as_string(session)]).fetchone()
    if "publisher_system" in columns and found is not None and not found[1]:
        session.execute(
            sql.SQL("ALTER TABLE {} DROP CONSTRAINT {}, ADD PRIMARY KEY ({})").format(
                name, sql.Identifier(found[0]), sql.SQL(", ").join(map(sql.Identifier, columns))
            )
        )


def find_version(session: Session) -> TablesVersion | None:
    """Return which version made the tables; None where there are none."""
    row = None
    if has_table(session, VERSION):
        row = session.execute(sql.SQL("SELECT revision, version FROM {}").format(VERSION)).fetchone()
    if row is not None:
        return TablesVersion(*row)
    return UNKNOWN_VERSION if has_table(session, WATERMARKS) else None


def _write_version(session: Session) -> None:
    if find_version(session) != THIS_VERSION:
        session.execute(sql.SQL("DELETE FROM {}").format(VERSION))
        session.execute(
            sql.SQL("INSERT INTO {} (revision, version) VALUES (%s, %s)").format(VERSION),
            [THIS_VERSION.revision, THIS_VERSION.version],
        )


def adopt_unidentified_rows(session: Session, key: SubscriptionKey) -> None:
    """Give rows that an earlier version wrote, which did not say which server the Publisher is, the identity of this
    one, where they were written for its address. Inside a transaction."""
    mine = [key.publisher_db, key.publication, key.subscription]
    known = session.execute(
        sql.SQL("SELECT publisher_system, publisher FROM {} WHERE {} AND stream = 0").format(WATERMARKS, _OF_NAME), mine
    ).fetchall()
    systems: dict[str, str] = dict(known)
    if key.publisher_system in systems or systems.get("") != key.publisher:
        return
    for table in (WATERMARKS, SNAPSHOTS):
        session.execute(
            sql.SQL("UPDATE {} SET publisher_system = %s WHERE {} AND publisher_system = ''").format(table, _OF_NAME),
            [key.publisher_system, *mine],
        )


_OF_NAME = sql.SQL("publisher_db = %s AND publication = %s AND subscription = %s")
