"""What setup makes at a PostgreSQL Publisher beside the slot: the publication, and replica identities."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from psycopg import sql
from psycopg.errors import InsufficientPrivilege

from tranrepl.error_numbers import Codes
from tranrepl.errors import ConfigurationError
from tranrepl.model.catalogue import TableDescription
from tranrepl.model.names import TableName
from tranrepl.postgres.catalogue import qualified
from tranrepl.postgres.session import Session, translated_errors
from tranrepl.printable import named
from tranrepl.publisher.postgres.article_check import PARTITIONED, wants_full_identity
from tranrepl.publisher.postgres.old_rows import FULL
from tranrepl.publisher.postgres.partitions import partitions
from tranrepl.publisher.postgres.rights import FOR_OWNER, owner_problems, read_problems
from tranrepl.publisher.publisher import Tables

_SETUP_LOCK_TIMEOUT = "5s"
_PUBLISHED = """
SELECT n.nspname, c.relname,
       pg_catalog.to_jsonb(r) ->> 'prqual' IS NULL AND pg_catalog.to_jsonb(r) ->> 'prattrs' IS NULL
         AND p.pubinsert AND p.pubupdate AND p.pubdelete AND p.pubtruncate AND NOT p.pubviaroot
  FROM pg_catalog.pg_publication p
  JOIN pg_catalog.pg_publication_rel r ON r.prpubid = p.oid JOIN pg_catalog.pg_class c ON c.oid = r.prrelid
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 WHERE p.pubname = %s
"""


@dataclass(frozen=True, slots=True)
class _Step:
    """A step of setup, for which one must own the tables."""

    statements: tuple[sql.Composed, ...]
    done: str


class PublicationSetup:
    """The publication of this name, and the tables that it is to have."""

    def __init__(self, session: Session, name: str) -> None:
        self._session = session
        self._name = name
        self.where = f"Publisher {session.info.dbname}"

    def right_problems(self, articles: Tables, read: Collection[TableName]) -> Iterator[ConfigurationError]:
        """Yield rights that our role lacks: to set up the publication of all its articles, and to read some of them."""
        with translated_errors(self.where):
            roots = {table.object_id: table.name for _, table in articles if table.kind == PARTITIONED}
            below = partitions(self._session, roots)
            steps = self._steps(articles)
        # A snapshot reads each partition by itself.
        read_below = [it.table for it in below if roots[it.root] in read]
        yield from read_problems(self._session, self.where, [*read, *read_below])
        statements = [it.as_string(self._session) for step in steps for it in step.statements]
        tables = [*(table.name for _, table in articles), *(it.table for it in below)]
        yield from owner_problems(self._session, self.where, self._name, tables, statements)

    def set_up(self, articles: Tables) -> list[str]:
        """Create or alter what is missing: publication, replica identities. Idempotent.

        Returns what was done, in words. Raises TransientError where a table stays locked by others.
        """
        with translated_errors(self.where):
            self._session.execute("SELECT set_config('lock_timeout', %s, false)", [_SETUP_LOCK_TIMEOUT])
            steps = self._steps(articles)
            for at in range(len(steps)):
                self._take(steps[at:])
            self._session.execute("SET lock_timeout = 0")
            return [step.done for step in steps]

    def _steps(self, articles: Tables) -> list[_Step]:
        """Return the steps of setup: nothing is published without the old rows that its article needs."""
        return self._identity_steps(articles) + self._publication_steps([table.name for _, table in articles])

    def _take(self, steps: Sequence[_Step]) -> None:
        """Take the first of these steps. Raises ConfigurationError where it, and with it the others, is for the owner
        of the tables to take."""
        *others, last = steps[0].statements
        try:
            # A commit that waits for the disk waits for all before it.
            self._session.execute("SET synchronous_commit = off")
            for statement in others:
                self._session.execute(statement)
            self._session.execute("RESET synchronous_commit")
            self._session.execute(last)
        except InsufficientPrivilege as error:
            texts = [statement.as_string(self._session) for step in steps for statement in step.statements]
            raise ConfigurationError(
                f"{self.where}: {error.diag.message_primary}",
                **Codes.POSTGRES.value.numbered(error.sqlstate),
                remedy="\n".join([FOR_OWNER, *(f"{text};" for text in texts)]),
            ) from error

    def _publication_steps(self, tables: Sequence[TableName]) -> list[_Step]:
        """Return the steps that make the publication, with no column list and no row filter: both can make the
        Publisher's own statements fail."""
        name = sql.Identifier(self._name)
        options = [sql.SQL("publish = 'insert, update, delete, truncate'")]
        # Of a partitioned table the log shows each partition: old rows as they are, and a TRUNCATE of one.
        options.append(sql.SQL("publish_via_partition_root = false"))
        if self._version >= 18:
            # Without it, UPDATE of a table with stored generated columns and full identity is refused.
            options.append(sql.SQL("publish_generated_columns = stored"))
        listed = sql.SQL(", ").join(sql.SQL("ONLY {}").format(qualified(table)) for table in tables)
        if not self._exists():
            create = sql.SQL("CREATE PUBLICATION {} FOR TABLE {} WITH ({})")
            statement = create.format(name, listed, sql.SQL(", ").join(options))
            return [_Step((statement,), f"created publication {self._name} at {self.where}")]
        published = self._session.execute(_PUBLISHED, [self._name]).fetchall()
        whole = all(is_whole for *_, is_whole in published)
        if whole and {TableName(schema, name) for schema, name, _ in published} == set(tables):
            return []
        statements = (
            sql.SQL("ALTER PUBLICATION {} SET ({})").format(name, sql.SQL(", ").join(options)),
            sql.SQL("ALTER PUBLICATION {} SET TABLE {}").format(name, listed),
        )
        return [_Step(statements, f"changed the tables of publication {self._name} at {self.where}")]

    def _identity_steps(self, articles: Tables) -> list[_Step]:
        """Return the step for the tables and each of their partitions, none of which has it of another."""
        wanted = [table for article, table in articles if wants_full_identity(article, table)]
        lacking = [it for table in wanted for it in self._lacking(table)]
        alter = sql.SQL("ALTER TABLE ONLY {} REPLICA IDENTITY FULL")
        statements = tuple(alter.format(qualified(it)) for it in lacking)
        return [_Step(statements, f"set REPLICA IDENTITY FULL on {named(lacking, 'table')}")] if lacking else []

    def _lacking(self, table: TableDescription) -> list[TableName]:
        lacking = [] if table.replica_identity == "full" else [table.name]
        if table.kind == PARTITIONED:
            below = partitions(self._session, [table.object_id])
            lacking += [it.table for it in below if it.replica_identity != FULL]
        return lacking

    def _exists(self) -> bool:
        found = self._session.execute("SELECT FROM pg_catalog.pg_publication WHERE pubname = %s", [self._name])
        return found.rowcount > 0

    @property
    def _version(self) -> int:
        return self._session.info.server_version // 10000
