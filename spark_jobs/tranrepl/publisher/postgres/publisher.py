"""A PostgreSQL Publisher: its publication and logical replication slot, and what they ask of its tables."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import LiteralString

from psycopg import sql
from psycopg.errors import InsufficientPrivilege, QueryCanceled, UndefinedObject

from tranrepl.error_numbers import Codes
from tranrepl.errors import ConfigurationError, MustBeReinitializedError, TransientError
from tranrepl.model.catalogue import Generation, ReplicaIdentity, TableDescription
from tranrepl.model.names import TableName
from tranrepl.postgres.catalogue import describe_tables, qualified
from tranrepl.postgres.session import Session, translated_errors
from tranrepl.publisher.postgres.column_check import before_image_problems, column_problems
from tranrepl.publisher.postgres.commit_search import holds_commit
from tranrepl.publisher.postgres.free_slots import MORE_SLOTS, free_slots, none_free
from tranrepl.publisher.postgres.likely_tables import no_such_table
from tranrepl.publisher.postgres.log_probe import Probe, probe_log
from tranrepl.publisher.postgres.lsn import lsn_number, lsn_text
from tranrepl.publisher.postgres.published_tables import PublishedTable, published_tables
from tranrepl.publisher.postgres.replica_identity import identified_tables
from tranrepl.publisher.postgres.replication_session import RIGHT_TO_READ
from tranrepl.publisher.postgres.restart_lsn import advance_restart_lsn
from tranrepl.publisher.postgres.rights import FOR_OWNER, owner_problems, read_problems
from tranrepl.publisher.postgres.row_filter_check import filter_problems
from tranrepl.publisher.postgres.standby_slots import standby_behind, wait_for_standbys, waiting_for
from tranrepl.publisher.postgres.unconverted_text import is_unconverted
from tranrepl.settings.publication import Article
from tranrepl.settings.publication import ReplicaIdentity as WantedIdentity

PLUGIN = "pgoutput"
_SETUP_LOCK_TIMEOUT = "5s"
_ADVANCE_TIMEOUT = "30min"
"""To pass over the log takes nearly as long as to decode it."""
_SLOT_TIMEOUT = "60s"
_STANDBY_PATIENCE_SECONDS = 2.0
_STANDBY_SECONDS = 60.0
REINITIALIZE = (
    "`tranrepl reinitialize FILE` begins anew from the Publisher's rows; or `tranrepl reinitialize FILE --log-reader`, "
    "then `tranrepl validate FILE --repair`, leaves the Subscribers' rows and corrects those that differ"
)

log = logging.getLogger(__name__)


class SlotState(StrEnum):
    READY = "ready"
    IN_USE = "in use"
    INVALIDATED = "invalidated"


@dataclass(frozen=True, slots=True)
class Slot:
    """The logical replication slot of a publication. LSNs as integers."""

    name: str
    state: SlotState
    reason: str
    confirmed_flush_lsn: int


@dataclass(frozen=True, slots=True)
class _Step:
    """Of setup, for which one must own the tables."""

    statements: tuple[sql.Composed, ...]
    done: str


class PostgresPublisher:
    """One publication in one PostgreSQL database."""

    def __init__(self, session: Session, publication: str) -> None:
        self._session = session
        self._publication = publication
        # Slots are the cluster's, not the database's: two databases may have publications of one name. And a slot's
        # name has neither capital letters nor hyphens: two publications must not become one.
        suffix = hashlib.sha256(f"{session.info.dbname}/{publication}".encode()).hexdigest()[:8]
        self.object_name = f"tranrepl_{publication.lower().replace('-', '_')}_{suffix}"

    @property
    def where(self) -> str:
        return f"Publisher {self._session.info.dbname}"

    @property
    def database(self) -> str:
        return self._session.info.dbname

    @property
    def version(self) -> int:
        """Major version."""
        return self._session.info.server_version // 10000

    @property
    def converts_text(self) -> bool:
        """Whether the server knows the encoding of its text."""
        return not is_unconverted(self._session)

    def describe(self, tables: Collection[TableName]) -> Mapping[TableName, TableDescription]:
        """Those that exist."""
        with translated_errors(self.where):
            found = describe_tables(self._session, tables)
            now = self.tables_now([it.object_id for it in found.values()])
        return {
            name: replace(it, file=now[it.object_id].file) if it.object_id in now else it for name, it in found.items()
        }

    def problems(self) -> Iterator[ConfigurationError]:
        """What keeps this server from publishing at all."""
        wal_level = self._value("SHOW wal_level")
        if wal_level != "logical":
            yield ConfigurationError(
                f"{self.where}: wal_level is {wal_level!r}",
                remedy="allowed: logical. ALTER SYSTEM SET wal_level = 'logical'; then restart the server",
            )
        else:
            yield from self._right_problems()
        slot = self.slot()
        if slot is not None and slot.state is SlotState.INVALIDATED:
            yield self._invalidated(slot)
        yield from self._slot_problems(1 if slot is None else 0)

    def _right_problems(self) -> Iterator[ConfigurationError]:
        """Whether our role may read the log: tried, for not every server has the right as an attribute. It is asked
        for before a slot of this name is looked for, and there is none."""
        try:
            self._session.execute(
                "SELECT count(*) FROM pg_catalog.pg_logical_slot_peek_binary_changes(%s, NULL, 1)",
                [f"tranrepl_none_{os.urandom(8).hex()}"],
            )
        except UndefinedObject:
            return
        except InsufficientPrivilege as error:
            yield ConfigurationError(
                f"{self.where}: role {self._session.info.user} may not read the log",
                **Codes.POSTGRES.value.numbered(error.sqlstate),
                remedy=RIGHT_TO_READ.format(role=self._session.info.user),
            )

    def _slot_problems(self, missing: int) -> Iterator[ConfigurationError]:
        """The publication's slot must fit in, and beside it the temporary copy that a log reader reads."""
        free = free_slots(self._session, self.where).free
        if free < missing + 1:
            yield ConfigurationError(
                f"{self.where}: {free} replication slots are free, {missing + 1} are needed", remedy=MORE_SLOTS
            )

    def free_slots(self) -> int:
        """How many readings of the log may go on at once. Raises TransientError or ConfigurationError where none
        may."""
        slots = free_slots(self._session, self.where)
        if slots.free < 1:
            raise none_free(self.where, slots)
        return slots.free

    def article_problems(self, article: Article, table: TableDescription) -> Iterator[ConfigurationError]:
        """Why this table cannot be published as the article asks, each with its way out."""
        at = f"article {article.source}"
        if table.kind != "table" or table.persistence != "permanent":
            what = table.kind if table.kind != "table" else f"{table.persistence} table"
            yield ConfigurationError(
                f"{at}: {self.where}: not an ordinary table ({what})", remedy="allowed: an ordinary table"
            )
            return
        if not table.key:
            yield ConfigurationError(
                f"{at}: the table has no primary key (error 14088)",
                remedy=f"ALTER TABLE {article.source} ADD PRIMARY KEY (…)",
            )
            return
        yield from column_problems(at, article, table)
        yield from filter_problems(self._session, article, table)
        if article.replica_identity is WantedIdentity.DEFAULT and table.replica_identity in ("nothing", "index"):
            yield ConfigurationError(
                f"{at}: replica_identity: default, but the table's replica identity is {table.replica_identity}",
                remedy=f"ALTER TABLE {article.source} REPLICA IDENTITY DEFAULT, or leave replica_identity out",
            )
        if self._wants_full_identity(article, table):
            yield from self._full_identity_problems(article, table)
        elif table.replica_identity != "full":
            yield from before_image_problems(at, article, table)

    def _wants_full_identity(self, article: Article, table: TableDescription) -> bool:
        """Whether setup gives the table REPLICA IDENTITY FULL.

        A virtual generated column rules it out: PostgreSQL 18 then refuses the Publisher's own UPDATE and DELETE.
        """
        virtual = any(column.generation is Generation.VIRTUAL for column in table.columns)
        return article.replica_identity is WantedIdentity.FULL and not virtual

    def _full_identity_problems(self, article: Article, table: TableDescription) -> Iterator[ConfigurationError]:
        """Another publication's column list, or (from PostgreSQL 18) its silence on stored generated columns, makes
        the Publisher's own UPDATE fail once the table has REPLICA IDENTITY FULL."""
        if table.replica_identity == "full" or self.version < 15:
            return
        stored = any(column.generation is Generation.STORED for column in table.columns)
        silent = sql.SQL("p.pubgencols <> 's'" if self.version >= 18 and stored else "false")
        harmed = self._session.execute(
            sql.SQL(
                "SELECT p.pubname FROM pg_catalog.pg_publication p, pg_catalog.pg_publication_tables t "
                "WHERE t.pubname = p.pubname AND t.schemaname = %(schema)s AND t.tablename = %(name)s "
                "AND (p.pubupdate OR p.pubdelete) AND p.pubname <> %(ours)s "
                "AND (EXISTS (SELECT FROM pg_catalog.pg_publication_rel r "
                "WHERE r.prpubid = p.oid AND r.prrelid = %(table)s AND r.prattrs IS NOT NULL) OR {})"
            ).format(silent),
            {
                "table": table.object_id,
                "schema": article.source.schema,
                "name": article.source.table,
                "ours": self.object_name,
            },
        ).fetchall()
        for (publication,) in harmed:
            yield ConfigurationError(
                f"article {article.source}: REPLICA IDENTITY FULL would make UPDATE and DELETE fail at {self.where}: "
                f"publication {publication} has a column list for this table or leaves out its generated columns",
                remedy="set replica_identity: default for this article, or change that publication",
            )

    def right_problems(
        self, articles: Sequence[tuple[Article, TableDescription]], read: Collection[TableName]
    ) -> Iterator[ConfigurationError]:
        """Rights that our role lacks: to set up the publication of all its articles, and to read some of them."""
        yield from read_problems(self._session, self.where, read)
        with translated_errors(self.where):
            steps = self._steps(articles)
        statements = [it.as_string(self._session) for step in steps for it in step.statements]
        tables = [table.name for _, table in articles]
        yield from owner_problems(self._session, self.where, self.object_name, tables, statements)

    def no_such_table(self, name: TableName) -> ConfigurationError:
        """The error of an article whose table is not there."""
        return no_such_table(self._session, self.where, name)

    def _steps(self, articles: Sequence[tuple[Article, TableDescription]]) -> list[_Step]:
        """Nothing is published without the old rows that its article needs."""
        steps = [step for article, table in articles for step in self._identity_steps(article, table)]
        return steps + self._publication_steps([table.name for _, table in articles])

    def set_up(self, articles: Sequence[tuple[Article, TableDescription]]) -> list[str]:
        """Create or alter what is missing: publication, replica identities, slot. Idempotent.

        Returns what was done, in words. Raises TransientError where a table stays locked by others.
        """
        with translated_errors(self.where):
            self._session.execute("SELECT set_config('lock_timeout', %s, false)", [_SETUP_LOCK_TIMEOUT])
            steps = self._steps(articles)
            for at in range(len(steps)):
                self._take(steps[at:])
            self._session.execute("SET lock_timeout = 0")
            return [*(step.done for step in steps), *self._set_up_slot()]

    def _take(self, steps: Sequence[_Step]) -> None:
        """The first of these steps. Raises ConfigurationError where it, and with it the others, is for the owner of the
        tables to take."""
        try:
            for statement in steps[0].statements:
                self._session.execute(statement)
        except InsufficientPrivilege as error:
            texts = [statement.as_string(self._session) for step in steps for statement in step.statements]
            raise ConfigurationError(
                f"{self.where}: {error.diag.message_primary}",
                **Codes.POSTGRES.value.numbered(error.sqlstate),
                remedy="\n".join([FOR_OWNER, *(f"{text};" for text in texts)]),
            ) from error

    def _publication_steps(self, tables: Sequence[TableName]) -> list[_Step]:
        """No column list and no row filter: both can make the Publisher's own statements fail."""
        name = sql.Identifier(self.object_name)
        options = [sql.SQL("publish = 'insert, update, delete, truncate'")]
        if self.version >= 18:
            # Without it, UPDATE of a table with stored generated columns and full identity is refused.
            options.append(sql.SQL("publish_generated_columns = stored"))
        listed = sql.SQL(", ").join(sql.SQL("ONLY {}").format(qualified(table)) for table in tables)
        if not self._value(
            "SELECT EXISTS (SELECT FROM pg_catalog.pg_publication WHERE pubname = %s)", self.object_name
        ):
            create = sql.SQL("CREATE PUBLICATION {} FOR TABLE {} WITH ({})")
            statement = create.format(name, listed, sql.SQL(", ").join(options))
            return [_Step((statement,), f"created publication {self.object_name} at {self.where}")]
        published = self._session.execute(
            "SELECT schemaname, tablename FROM pg_catalog.pg_publication_tables WHERE pubname = %s", [self.object_name]
        ).fetchall()
        if {TableName(*row) for row in published} == set(tables):
            return []
        statements = (
            sql.SQL("ALTER PUBLICATION {} SET ({})").format(name, sql.SQL(", ").join(options)),
            sql.SQL("ALTER PUBLICATION {} SET TABLE {}").format(name, listed),
        )
        return [_Step(statements, f"changed the tables of publication {self.object_name} at {self.where}")]

    def _identity_steps(self, article: Article, table: TableDescription) -> list[_Step]:
        if table.replica_identity == "full" or not self._wants_full_identity(article, table):
            return []
        statement = sql.SQL("ALTER TABLE ONLY {} REPLICA IDENTITY FULL").format(qualified(table.name))
        return [_Step((statement,), f"set REPLICA IDENTITY FULL on {table.name}")]

    def _set_up_slot(self) -> list[str]:
        slot = self.slot()
        if slot is not None:
            if slot.state is SlotState.INVALIDATED:
                raise self._invalidated(slot)
            return []
        failover = sql.SQL(", failover => true") if self.version >= 17 else sql.SQL("")
        try:
            with self._session.transaction():
                self._session.execute("SELECT pg_catalog.set_config('statement_timeout', %s, true)", [_SLOT_TIMEOUT])
                self._session.execute(
                    sql.SQL("SELECT pg_catalog.pg_create_logical_replication_slot(%s, %s, false{})").format(failover),
                    [self.object_name, PLUGIN],
                )
        except QueryCanceled as error:
            raise TransientError(
                f"{self.where}: no replication slot after {_SLOT_TIMEOUT}: a new one waits for the transactions that "
                f"were open before; the oldest is {self._oldest_writer()}",
                remedy="end that transaction, or wait for its end, then run `tranrepl setup FILE`",
                **Codes.POSTGRES.value.numbered(error.sqlstate),
            ) from error
        return [f"created replication slot {self.object_name} at {self.where}"]

    def _oldest_writer(self) -> str:
        """The transaction that has been open for longest of those that have written, in words."""
        row = self._session.execute(
            "SELECT who, date_trunc('second', clock_timestamp() - since)::text FROM ("
            "SELECT concat('that of process ', pid, ' (', usename, ', ', application_name, ')') AS who, "
            "xact_start AS since FROM pg_catalog.pg_stat_activity WHERE backend_xid IS NOT NULL UNION ALL "
            "SELECT concat('prepared transaction ', quote_literal(gid)), prepared "
            "FROM pg_catalog.pg_prepared_xacts) AS writers ORDER BY since LIMIT 1"
        ).fetchone()
        return f"{row[0]}, open for {row[1]}" if row else "one that has ended since"

    def slot(self) -> Slot | None:
        """The publication's slot; None where it does not exist. Raises ConfigurationError for another's slot."""
        with translated_errors(self.where):
            row = self._session.execute(
                sql.SQL(
                    "SELECT s.database, s.plugin, s.active, s.wal_status, s.confirmed_flush_lsn::text, {} "
                    "FROM pg_catalog.pg_replication_slots s WHERE s.slot_name = %s"
                ).format(sql.SQL(self._invalidation_column())),
                [self.object_name],
            ).fetchone()
        if row is None:
            return None
        database, plugin, active, wal_status, confirmed, invalidation = row
        if database != self.database or plugin != PLUGIN:
            raise ConfigurationError(
                f"{self.where}: slot {self.object_name} exists, but for database {database} and plugin {plugin}",
                remedy="rename the publication, or drop that slot if nobody needs it",
            )
        state = SlotState.IN_USE if active else SlotState.READY
        if wal_status == "lost" or invalidation:
            state = SlotState.INVALIDATED
        return Slot(self.object_name, state, invalidation or wal_status or "", lsn_number(confirmed or "0/0"))

    def _invalidation_column(self) -> LiteralString:
        if self.version >= 17:
            return "coalesce(s.invalidation_reason, '')"
        return "CASE WHEN s.conflicting THEN 'conflict' ELSE '' END" if self.version == 16 else "''"

    def ready_slot(self) -> Slot:
        """The slot, fit to be read. Raises MustBeReinitializedError where it is missing or invalidated, TransientError
        where another session reads it."""
        slot = self.require_slot()
        if slot.state is SlotState.IN_USE:
            raise self._in_use()
        return slot

    def require_slot(self) -> Slot:
        """As `ready_slot`, whoever reads it."""
        slot = self.slot()
        if slot is None:
            raise MustBeReinitializedError(
                f"{self.where}: replication slot {self.object_name} does not exist: changes made since it was lost "
                "cannot be read any more",
                remedy=REINITIALIZE,
            )
        if slot.state is SlotState.INVALIDATED:
            raise self._invalidated(slot)
        return slot

    def _in_use(self) -> TransientError:
        return TransientError(
            f"{self.where}: replication slot {self.object_name} is in use by another session",
            remedy="one log reader at a time: wait for the other one, or end it",
            database_code="55006",
        )

    def _invalidated(self, slot: Slot) -> MustBeReinitializedError:
        return MustBeReinitializedError(
            f"{self.where}: replication slot {slot.name} is invalidated ({slot.reason}): the log it needs is gone",
            remedy=f"{REINITIALIZE}. A higher max_slot_wal_keep_size prevents it",
        )

    def require_idle_slot(self) -> Slot | None:
        """The slot, whatever state it is in. Raises TransientError where another session reads it."""
        slot = self.slot()
        if slot is not None and slot.state is SlotState.IN_USE:
            raise self._in_use()
        return slot

    def drop_slot(self) -> list[str]:
        """Let a new one take its place; what was done. Raises TransientError where another session reads it."""
        slot = self.require_idle_slot()
        if slot is None:
            return []
        with translated_errors(self.where):
            self._session.execute("SELECT pg_catalog.pg_drop_replication_slot(%s)", [slot.name])
        return [f"dropped replication slot {slot.name} at {self.where}"]

    def holds_commit(self, lsn: int, latest: datetime) -> bool:
        """Whether a transaction of the publication commits there, in the log after what the slot has confirmed, and did
        so at `latest` or before. Raises TransientError where it cannot be told before a standby has the log."""
        if lsn >= self.end_of_log():
            return False
        wait_for_standbys(self._session, lsn + 1, _STANDBY_SECONDS, log.warning)
        with translated_errors(self.where):
            return holds_commit(self._session, self.object_name, self.object_name, lsn, latest)

    def tables_now(self, object_ids: Collection[int]) -> Mapping[int, PublishedTable]:
        """What the catalogue has of published tables, by oid."""
        with translated_errors(self.where):
            return published_tables(self._session, self.object_name, object_ids)

    def replica_identities(self, object_ids: Collection[int]) -> Mapping[int, ReplicaIdentity]:
        """Of tables that exist, by oid."""
        with translated_errors(self.where):
            found = identified_tables(self._session, self.object_name, object_ids)
        return {object_id: it.identity for object_id, it in found.items()}

    def require_session(self) -> None:
        """Raise TransientError where the server has ended this session, as it does when it stops."""
        self._value("SELECT 1")

    def end_of_log(self) -> int:
        """LSN up to which the log is flushed now."""
        return lsn_number(str(self._value("SELECT pg_catalog.pg_current_wal_flush_lsn()::text")))

    def readable_end_of_log(self, say: Callable[[str], None]) -> int:
        """LSN up to which the log may be read now: what the standbys of `synchronized_standby_slots` have of it.

        They have a moment to follow; whom it is not waited for any longer is told to `say`.
        """
        end = self.end_of_log()
        behind = standby_behind(self._session, end, _STANDBY_PATIENCE_SECONDS)
        if behind is None:
            return end
        say(waiting_for(self._session, behind))
        return min(end, behind.confirmed_lsn)

    def probe(self, up_to: int) -> Probe:
        """Look for the first change of a published table before `up_to`, for a few seconds at most."""
        with translated_errors(self.where):
            return probe_log(self._session, self.object_name, self.object_name, up_to)

    def advance(self, up_to: int) -> None:
        """Confirm that everything before `up_to` is registered, so that the Publisher may drop its log.

        Raises TransientError where a standby must have it before and does not get it, or where it takes too long.
        """
        slot = self.ready_slot()
        if slot.confirmed_flush_lsn >= up_to:
            return
        wait_for_standbys(self._session, up_to, _STANDBY_SECONDS, log.warning)
        with translated_errors(self.where), self._session.transaction():
            self._session.execute("SELECT pg_catalog.set_config('statement_timeout', %s, true)", [_ADVANCE_TIMEOUT])
            self._session.execute(
                "SELECT pg_catalog.pg_replication_slot_advance(%s, %s::pg_lsn)", [self.object_name, lsn_text(up_to)]
            )

    def advance_restart_lsn(self) -> None:
        """Let no reading begin far before what is registered."""
        with translated_errors(self.where):
            advance_restart_lsn(self._session, self.object_name)

    def _value(self, query: LiteralString, *values: object) -> object:
        with translated_errors(self.where):
            row = self._session.execute(query, values or None).fetchone()
        return row[0] if row else None
