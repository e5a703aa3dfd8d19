"""PostgreSQL, as what is the same for every Subscriber needs it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from psycopg import sql
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.types import TypeEngine

from tranrepl.errors import ConfigurationError
from tranrepl.postgres.catalogue import qualified
from tranrepl.postgres.rights import INSUFFICIENT_PRIVILEGE, our_role
from tranrepl.postgres.session import Session, translated_errors
from tranrepl.subscriber.applier_options import ApplierOptions
from tranrepl.subscriber.base.database import SqlDatabase
from tranrepl.subscriber.capabilities import Capabilities, ForeignKeyCheck, NameCase
from tranrepl.subscriber.foreign_keys import ForeignKey
from tranrepl.subscriber.postgres.catalogue import PostgresCatalogue
from tranrepl.subscriber.postgres.column_types import PublishersType, publishers
from tranrepl.subscriber.postgres.core import driver
from tranrepl.subscriber.postgres.procedures import MOST_ARGUMENTS, PROCEDURE_NAMES, SCHEMA, ends_with_body
from tranrepl.subscriber.value_conversion import ColumnType

LOCK_NOT_AVAILABLE = "55P03"

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

_PROCEDURES = """
SELECT p.proname::text, p.oid::regprocedure::text, p.prosrc, pg_catalog.pg_has_role(p.proowner, 'USAGE')
  FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
 WHERE n.nspname = %s AND p.proname = ANY (%s) ORDER BY p.proname
"""
_OWNS = "SELECT pg_catalog.pg_has_role(relowner, 'USAGE') FROM pg_catalog.pg_class WHERE oid = to_regclass(%s)"


class Postgres(SqlDatabase):
    """A connection is one over a session of psycopg (`core`), whose transactions are the session's."""

    capabilities = Capabilities(
        title="PostgreSQL",
        comparison=True,
        procedures=True,
        most_arguments=MOST_ARGUMENTS,
        procedure_names=PROCEDURE_NAMES,
        name_case=NameCase.SENSITIVE,
        streams=True,
        schemas=True,
        foreign_keys=ForeignKeyCheck.AT_COMMIT,
        not_for_replication=True,
        scripts=True,
    )
    lock_timeouts = frozenset({LOCK_NOT_AVAILABLE})
    inserts_identities = True
    reads_publishers_filters = True

    @contextmanager
    def transaction(self, session: sa.Connection, where: str) -> Iterator[None]:
        with translated_errors(where), driver(session).transaction():
            yield

    def reading(self, session: sa.Connection, where: str) -> AbstractContextManager[None]:
        """Begin no transaction: each statement is one."""
        del session
        return translated_errors(where)

    def together(self, session: sa.Connection, where: str) -> AbstractContextManager[None]:
        return self.transaction(session, where)

    def name(self, session: sa.Connection) -> str:
        return driver(session).info.dbname

    def has_table(self, session: sa.Connection, table: sa.Table) -> bool:
        return has_table(driver(session), sql.Identifier(SCHEMA, table.name))

    def require_fit_tables(self, session: sa.Connection, where: str, names: Sequence[str]) -> None:
        """Raise ConfigurationError where a role that may create in the schema has made a table of the model's: its
        triggers would run as our role."""
        under = driver(session)
        for name, owner, kind in under.execute(_OF_OTHERS, [SCHEMA, list(names)]).fetchall():
            table = sql.Identifier(SCHEMA, name).as_string(under)
            role = sql.Identifier(our_role(under)).as_string(under)
            drop, take = f"DROP {kind} {table};", f"ALTER TABLE {table} OWNER TO {role};"
            raise ConfigurationError(
                f"{where}: {kind.lower()} {SCHEMA}.{name} belongs to role {owner}, which could put anything there",
                remedy=f"{drop} or, where setup made it as that role: {take}" if kind == "TABLE" else drop,
            )

    def wait_for_lock(self, session: sa.Connection, seconds: int) -> None:
        """Set it for the transaction that is open."""
        driver(session).execute("SELECT pg_catalog.set_config('lock_timeout', %s, true)", [f"{seconds}s"])

    def insert_new(self, session: sa.Connection, table: sa.Table, rows: Sequence[Mapping[str, object]]) -> int:
        statement = insert(table).values(list(rows)).on_conflict_do_nothing()
        # SQLAlchemy keeps no count of inserted rows unless it is asked.
        return session.execute(statement, execution_options={"preserve_rowcount": True}).rowcount

    # Destinations

    def catalogue(self, session: sa.Connection) -> PostgresCatalogue:
        return PostgresCatalogue(driver(session))

    def type_named(self, type_name: str, base_type_name: str | None = None, *, indexed: bool) -> PublishersType:
        del indexed
        return PublishersType(type_name, base_name=base_type_name)

    def described_type(self, reflected: TypeEngine[Any], dialect: sa.Dialect) -> ColumnType:
        del dialect
        return publishers(reflected).described()

    def key_warning(self, reflected: TypeEngine[Any]) -> str | None:
        is_citext = publishers(reflected).name.rpartition(".")[2] == "citext"
        return "is citext, in which texts that differ only in case are one key" if is_citext else None

    def not_for_replication_problems(self, session: sa.Connection, where: str) -> Iterator[ConfigurationError]:
        return replica_role_problems(driver(session), where)

    def add_foreign_key_text(self, key: ForeignKey) -> str:
        """Return the statement, of a key that is checked at the commit: a cascade's commands come after their
        parent's."""
        added = sql.SQL(
            "ALTER TABLE {} ADD CONSTRAINT {} FOREIGN KEY ({}) REFERENCES {} ({}) DEFERRABLE INITIALLY DEFERRED"
        ).format(
            qualified(key.table),
            sql.Identifier(key.name),
            sql.SQL(", ").join(map(sql.Identifier, key.columns)),
            qualified(key.referenced),
            sql.SQL(", ").join(map(sql.Identifier, key.referenced_columns)),
        )
        return added.as_string(None)

    # Teardown

    def as_made(self, session: sa.Connection, texts: Mapping[str, str]) -> Mapping[str, bool]:
        found: dict[str, bool] = {}
        for it in self._procedures(session, list(texts)):
            found[it.name] = found.get(it.name, True) and ends_with_body(texts[it.name], it.body)
        return found

    def _procedures(self, session: sa.Connection, names: Sequence[str]) -> list[_Found]:
        rows = driver(session).execute(_PROCEDURES, [SCHEMA, list(names)])
        return [_Found(*row) for row in rows]

    def drop_statement(self, procedure: str) -> str:
        return sql.SQL("DROP PROCEDURE {}").format(sql.Identifier(SCHEMA, procedure)).as_string(None)

    def drops(self, session: sa.Connection, procedures: Collection[str]) -> Mapping[str, Sequence[str]]:
        """Drop by signature: another list of parameters makes another procedure."""
        found: dict[str, list[str]] = {it: [] for it in procedures}
        for it in self._procedures(session, list(procedures)):
            found[it.name].append(it.drop())
        return found

    def drop_problem(
        self, session: sa.Connection, where: str, procedures: Sequence[str], tables: Sequence[sa.Table]
    ) -> ConfigurationError | None:
        under = driver(session)
        drops = [(f"procedure {it.name}", it.drop()) for it in self._procedures(session, procedures) if not it.owned]
        for it in tables:
            table = sql.Identifier(SCHEMA, it.name).as_string(under)
            if under.execute(_OWNS, [table]).fetchone() != (True,):
                drops.append((table, f"DROP TABLE {table}"))
        if not drops:
            return None
        statements = "\n".join(f"{statement};" for _, statement in drops)
        return ConfigurationError(
            f"{where}: role {under.info.user} may not change: {', '.join(what for what, _ in drops)}",
            number=INSUFFICIENT_PRIVILEGE,
            remedy=f"let the owner run this, then tear down again:\n{statements}",
        )

    def lock_table(self, session: sa.Connection, table: sa.Table) -> None:
        name = sql.Identifier(SCHEMA, table.name)
        driver(session).execute(sql.SQL("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE").format(name))


POSTGRES = Postgres("postgresql")


@dataclass(frozen=True, slots=True)
class _Found:
    """A procedure under the name of a generated one."""

    name: str
    signature: str
    body: str
    owned: bool

    def drop(self) -> str:
        return f"DROP PROCEDURE {self.signature}"


def has_table(session: Session, table: sql.Identifier) -> bool:
    """Return whether it is there, and a table: to read a view may run code of its owner."""
    found = session.execute(
        "SELECT FROM pg_catalog.pg_class WHERE oid = to_regclass(%s) AND relkind = 'r'", [table.as_string(None)]
    )
    return found.fetchone() is not None


def make_durable(session: Session) -> None:
    """Make all commits of the server durable that this session sees: a synchronous one, of the transaction that begins
    here or is open, writes out the log of those before it. The caller commits."""
    # A session that is kept commits without waiting for the disk again afterwards.
    session.execute("SET LOCAL synchronous_commit = on")
    # A transaction that has written nothing to the log, whether it has an xid or not, waits for no disk
    # (RecordTransactionCommit in PostgreSQL's xact.c). Nobody reads this message.
    session.execute("SELECT pg_logical_emit_message(true, 'tranrepl.durable', '')")


def configure_session(session: Session, where: str, options: ApplierOptions) -> None:
    """Tell a session that applies what the options ask. Raises ConfigurationError where its role may not."""
    if options.not_for_replication:
        for problem in replica_role_problems(session, where):
            raise problem
        session.execute("SET session_replication_role = replica")
    if options.lock_timeout_seconds is not None:
        # 0 would be no timeout at all.
        milliseconds = max(1, round(options.lock_timeout_seconds * 1000))
        session.execute("SELECT set_config('lock_timeout', %s, false)", [f"{milliseconds}ms"])


def replica_role_problems(session: Session, where: str) -> Iterator[ConfigurationError]:
    """Yield a problem where the session may not become a replica's, in which foreign keys and ordinary triggers do not
    act."""
    grants = session.info.server_version >= 150000
    with translated_errors(where):
        may = session.execute(
            "SELECT pg_catalog.has_parameter_privilege(current_user, 'session_replication_role', 'SET')"
            if grants
            else "SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user"
        ).fetchone()
    if may == (True,):
        return
    role = sql.Identifier(session.info.user).as_string(None)
    grant = f"GRANT SET ON PARAMETER session_replication_role TO {role}"
    yield ConfigurationError(
        f"{where}: not_for_replication: role {session.info.user} may not set session_replication_role",
        remedy=grant if grants else f"a superuser as login; from PostgreSQL 15 on it takes only {grant}",
    )
