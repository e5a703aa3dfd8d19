"""A PostgreSQL Publisher: its publication and logical replication slot, and what they ask of its tables."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import cached_property

from tranrepl.connections import Connection
from tranrepl.errors import ConfigurationError, MissingRightError, ReplicationError
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.catalogue import OldRowSetting, TableDescription
from tranrepl.model.clock_difference import ClockDifference, measure
from tranrepl.model.names import TableName
from tranrepl.model.pending_definitions import DefinitionMessage
from tranrepl.model.position import Position
from tranrepl.model.script import Script
from tranrepl.model.sequences import FoundSequences
from tranrepl.model.table_file import TableFile
from tranrepl.model.tracer_token import TracerToken
from tranrepl.postgres.catalogue import describe_tables, read_foreign_keys
from tranrepl.postgres.session import Session, answer_soon, connect, read_clock, translated_errors
from tranrepl.publisher.continuity import Continuation, LogIdentity, RegisteredLog
from tranrepl.publisher.log_range import Limits, SchemaReading
from tranrepl.publisher.messages import MessageKind
from tranrepl.publisher.postgres.article_check import (
    PARTITIONED,
    OtherPublications,
    article_problems,
    no_such_table,
)
from tranrepl.publisher.postgres.continuity import Continuity, flushed_to, read_log_identity, readable_to
from tranrepl.publisher.postgres.exported_snapshot import ExportedSnapshot, exported_snapshot
from tranrepl.publisher.postgres.free_slots import free_slots, none_free
from tranrepl.publisher.postgres.log_probe import probe_log
from tranrepl.publisher.postgres.log_range import PostgresLogRange, cut
from tranrepl.publisher.postgres.log_stream import NO_LIMITS, PostgresLogStream
from tranrepl.publisher.postgres.lsn import LsnPositions, lsn_of, position_of
from tranrepl.publisher.postgres.message_secret import read_secrets
from tranrepl.publisher.postgres.partitions import articles_by_table, partitionings, partitions
from tranrepl.publisher.postgres.published_tables import (
    PublishedTable,
    catalogue_state,
    judged_files,
    logs_what_is_needed,
    published_tables,
    refuse_unfit,
    table_names,
    tables_in,
)
from tranrepl.publisher.postgres.replica_identity import identified_tables
from tranrepl.publisher.postgres.replication_session import replication_problems
from tranrepl.publisher.postgres.schema_change_setup import SchemaChangeSetup
from tranrepl.publisher.postgres.schema_messages import read_definitions
from tranrepl.publisher.postgres.sequences import own_sequences, published_sequences
from tranrepl.publisher.postgres.server_check import server_problems
from tranrepl.publisher.postgres.set_up import PublicationSetup
from tranrepl.publisher.postgres.signed_messages import post_token, write_message
from tranrepl.publisher.postgres.slot import (
    ReplicationSlot,
    SlotState,
    advance_restart_lsn,
    idle_warnings,
    object_name,
    retained_log,
)
from tranrepl.publisher.postgres.snapshot_session import rows_of_keys
from tranrepl.publisher.postgres.standby_slots import slowest_standby
from tranrepl.publisher.postgres.table_ranges import table_sizes
from tranrepl.publisher.postgres.teardown import (
    DROP_SCHEMA,
    KnownIdentities,
    drop_publication,
    drop_slot,
    find_removal,
    remove,
    require_no_reader,
    statements_left,
)
from tranrepl.publisher.postgres.unconverted_text import is_unconverted
from tranrepl.publisher.postgres.user_types import type_statements
from tranrepl.publisher.publisher import NO_PARTITIONS, LogHealth, Probe, Removal, Say, Tables
from tranrepl.settings.publication import Article


class PostgresPublisher:
    """One publication in one PostgreSQL database."""

    def __init__(self, connection: Connection, session: Session, publication: str) -> None:
        self.session = session
        self._connection = connection
        self.name = object_name(session.info.dbname, publication)
        self.slot = ReplicationSlot(session, self.name)
        self._setup = PublicationSetup(session, self.name)
        self.schema_changes = SchemaChangeSetup(session, self.name)

    @property
    def where(self) -> str:
        return f"Publisher {self.session.info.dbname}"

    @property
    def database(self) -> str:
        return self.session.info.dbname

    @property
    def positions(self) -> LsnPositions:
        return LsnPositions()

    # Tables

    def describe(self, tables: Collection[TableName]) -> Mapping[TableName, TableDescription]:
        with translated_errors(self.where):
            # Before the tables are looked at: what is committed between is found again, and changes nothing.
            holds_from = self.end_of_log()
            found = describe_tables(self.session, tables)
            foreign_keys = read_foreign_keys(self.session, [it.object_id for it in found.values()])
            sequences = own_sequences(self.session, [it.object_id for it in found.values()])
            divided = [it.object_id for it in found.values() if it.kind == PARTITIONED]
            partitioning = partitionings(self.session, divided)
            with self.session.transaction():
                definitions = read_definitions(self.session, [it.object_id for it in found.values()], holds_from)
                types = {
                    part.oid for it in definitions.values() for column in it.columns for part in column.types or ()
                }
                statements = type_statements(self.session, types)
        now = self._published([it.object_id for it in found.values()])
        return {
            name: replace(
                it.with_definition(definitions.get(it.object_id)),
                foreign_keys=foreign_keys.get(it.object_id, ()),
                file=now[it.object_id].file if it.object_id in now else it.file,
                sequences=sequences.get(it.object_id, {}),
                partitioning=partitioning.get(it.object_id),
                type_statements=statements,
            )
            for name, it in found.items()
        }

    def tables_in(self, schemas: Collection[str]) -> Mapping[TableName, int]:
        with translated_errors(self.where):
            return tables_in(self.session, schemas)

    def table_names(self, object_ids: Collection[int]) -> Mapping[int, TableName]:
        with translated_errors(self.where):
            return table_names(self.session, object_ids)

    def table_bytes(self, article: RegisteredArticle) -> int:
        return sum(it.bytes for it in table_sizes(self.session, article).values())

    def rows_of_key(self, article: RegisteredArticle, key: Sequence[str | None]) -> list[list[str | None]]:
        with translated_errors(self.where), self.session.transaction():
            answer_soon(self.session)
            return list(rows_of_keys(self.session, article, [[*key]]).values())

    def sequences(self, articles: Sequence[RegisteredArticle]) -> FoundSequences:
        with translated_errors(self.where):
            return published_sequences(self.session, articles)

    def files(self, articles: Sequence[RegisteredArticle]) -> Mapping[int, TableFile]:
        tables = self._published([it.source_object_id for it in articles])
        refuse_unfit(self.where, tables, articles)
        with translated_errors(self.where):
            return judged_files(self.session, tables, articles)

    def catalogue_state(self) -> str | None:
        with translated_errors(self.where):
            return catalogue_state(self.session, self.name)

    def unpublished(self, articles: Sequence[RegisteredArticle]) -> list[RegisteredArticle]:
        tables = self._published([it.source_object_id for it in articles])
        return [it for it in articles if it.source_object_id in tables and not tables[it.source_object_id].is_published]

    def logs_what_is_needed(self, article: RegisteredArticle) -> bool:
        table = self._published([article.source_object_id]).get(article.source_object_id)
        return table is not None and logs_what_is_needed(article, table)

    def _published(self, object_ids: Collection[int]) -> Mapping[int, PublishedTable]:
        with translated_errors(self.where):
            return published_tables(self.session, self.name, object_ids)

    # Check

    def warnings(self, longest_pause: timedelta | None) -> Iterator[str]:
        yield from idle_warnings(self.session, longest_pause)
        if is_unconverted(self.session):
            yield (
                f"{self.where}: the database's encoding is SQL_ASCII: a published value that is no UTF-8 "
                "stops the log reader, or a snapshot, with its table and key"
            )

    def problems(self, kept_for: timedelta = timedelta()) -> Iterator[ReplicationError]:
        del kept_for
        refused = list(server_problems(self.session, self.slot))
        yield from refused or replication_problems(self._connection)
        yield from self.schema_changes.problems()

    def article_problems(self, article: Article, table: TableDescription) -> Iterator[ConfigurationError]:
        yield from article_problems(self.session, self.name, article, table, self._others)

    @cached_property
    def _others(self) -> OtherPublications:
        with translated_errors(self.where):
            return OtherPublications.of(self.session, self.name)

    def value_warnings(self, tables: Tables) -> Iterator[str]:  # noqa: ARG002 - all are taken
        yield from ()

    def right_problems(self, tables: Tables, read: Collection[TableName]) -> Iterator[ConfigurationError]:
        yield from self._setup.right_problems(tables, read)
        try:
            read_secrets(self.session, self.where, self.name)
        except MissingRightError as error:
            yield error
        except ConfigurationError:
            # `problems` tells it.
            return

    def no_such_table(self, name: TableName) -> ConfigurationError:
        return no_such_table(self.session, self.where, name)

    # Set up and tear down

    def set_up(self, tables: Tables) -> list[str]:
        return [*self._setup.set_up(tables), *self.slot.set_up()]

    def old_row_settings(self, object_ids: Collection[int]) -> Mapping[int, OldRowSetting]:
        with translated_errors(self.where):
            below = [it.object_id for it in partitions(self.session, object_ids)]
            found = identified_tables(self.session, self.name, [*object_ids, *below])
        return {object_id: it.identity for object_id, it in found.items()}

    def forget_log(self) -> list[str]:
        return self.slot.drop()

    def abandoned(self, system: str | None, name: str, *, whole: bool) -> str:
        if whole:
            return (
                f"the publication is registered for another server, {system}: where that is still used, run "
                f"{drop_slot(name)} and {drop_publication(name)} there, and, where that database has no other "
                f"publication of ours, {DROP_SCHEMA}"
            )
        return (
            f"the other server, {system}, still keeps its log for slot {name}: where it is still used, run "
            f"{drop_slot(name)} there"
        )

    def require_no_reader(self) -> None:
        require_no_reader(self.session)

    def find_removal(
        self,
        object_ids: Collection[int],
        remembered: Mapping[int, OldRowSetting],
        unsettled: str,
        partitions: Mapping[int, bool] = NO_PARTITIONS,
    ) -> Removal:
        known = KnownIdentities(frozenset(object_ids), remembered, unsettled, partitions)
        return find_removal(self.session, self.slot, known, self.schema_changes)

    def remove(self, removal: Removal, say: Say) -> None:
        remove(self.session, removal, say)

    # The log

    def identity(self, known_timeline: int | None = None) -> LogIdentity:
        return read_log_identity(self.session, self._connection, known_timeline)

    def proof(self, position: Position, last: bytes | None) -> None:
        """Return None: the timeline tells."""

    def continuation(self, identity: LogIdentity, registered: RegisteredLog) -> Continuation:
        return Continuity(self.session, self.slot, identity, registered).continuation()

    def require_unbroken(self, identity: LogIdentity, registered: RegisteredLog) -> None:
        slot, continuity = self.slot.find(), Continuity(self.session, self.slot, identity, registered)
        if slot is not None and slot.state is SlotState.IN_USE:
            # The session that reads it has proved the rest.
            continuity.require_history()
        else:
            continuity.continuation()

    def kept_from(self) -> Position:
        return position_of(self.slot.ready().confirmed_flush_lsn)

    def require_kept(self) -> None:
        self.slot.require()

    def require_unread(self) -> None:
        self.slot.require_idle()

    def end_of_log(self) -> Position:
        return position_of(flushed_to(self.session))

    def readable_end_of_log(self, say: Say) -> Position:
        return position_of(readable_to(self.session, say))

    def probe(
        self,
        articles: Sequence[RegisteredArticle],  # noqa: ARG002 — the server knows what is published
        start: Position,  # noqa: ARG002 — and where the slot is
        up_to: Position,
    ) -> Probe:
        with translated_errors(self.where):
            return probe_log(self.session, self.name, self.name, lsn_of(up_to))

    def readers(self) -> int:
        slots = free_slots(self.session, self.where)
        if slots.free < 1:
            raise none_free(self.where, slots)
        return slots.free

    def log_range(
        self,
        articles: Sequence[RegisteredArticle],
        start: Position,
        up_to: Position,
        limits: Limits,
        readers: int = 1,
        schema: SchemaReading | None = None,
        scripts: Sequence[str] = (),
    ) -> PostgresLogRange:
        first = lsn_of(start)
        with translated_errors(self.where):
            # What the log holds was committed: a partition that is made later is in none of it.
            found = partitions(self.session, [it.source_object_id for it in articles])
        return PostgresLogRange(
            self._connection,
            self.name,
            articles,
            first,
            cut(first, lsn_of(up_to), limits),
            limits,
            sessions=min(readers, 2),
            schema=schema,
            scripts=scripts,
            secrets=read_secrets(self.session, self.where, self.name),
            converted=not is_unconverted(self.session),
            by_table=articles_by_table(articles, found),
        )

    def log_stream(
        self, articles: Sequence[RegisteredArticle], start: Position, schema: SchemaReading | None = None
    ) -> PostgresLogStream | None:
        if slowest_standby(self.session) is not None and not self.slot.waits_for_standbys():
            return None
        return PostgresLogStream(self.log_range(articles, start, start, NO_LIMITS, schema=schema))

    def write_script(self, script: Script) -> None:
        with translated_errors(self.where):
            write_message(self.session, MessageKind.SCRIPT, self.name, script.message, self.where)

    def write_definitions(self, digest: str) -> None:
        message = DefinitionMessage(publication=self.name, digest=digest)
        with translated_errors(self.where):
            write_message(self.session, MessageKind.DEFINITION, self.name, message.message, self.where)

    def post_token(self, token: TracerToken) -> None:
        post_token(self.session, token, self.where)

    def clock_difference(self) -> ClockDifference:
        with translated_errors(self.where):
            return measure(lambda: read_clock(self.session))

    def require_session(self) -> None:
        with translated_errors(self.where):
            self.session.execute("SELECT 1")

    def confirm(self, up_to: Position) -> None:
        self.slot.advance(lsn_of(up_to))

    def catch_up(self, position: Position) -> None:
        self.confirm(position)
        with translated_errors(self.where):
            advance_restart_lsn(self.session, self.name)

    def health(self, registered_to: Position | None = None) -> LogHealth:
        del registered_to
        slot, kept, waiting = self.slot.find(), retained_log(self.session, self.name), list[str]()
        readable_to(self.session, waiting.append)
        return LogHealth(
            self.name,
            f"slot {self.name}",
            slot.state if slot else None,
            kept,
            flushed_to(self.session) - slot.confirmed_flush_lsn if slot else None,
            waiting[0] if waiting else None,
        )

    # Rows

    def snapshot(self, timeout_seconds: float, say: Say) -> AbstractContextManager[ExportedSnapshot]:
        return exported_snapshot(self._connection, timeout_seconds, say)


class PostgresPublisherDatabase:
    """PostgreSQL, as a kind of Publisher."""

    @property
    def positions(self) -> LsnPositions:
        return LsnPositions()

    def statements_left(self, name: str, tables: Mapping[TableName, OldRowSetting]) -> list[str]:
        return statements_left(name, tables)

    @contextmanager
    def open(self, connection: Connection, publication: str, application_name: str) -> Iterator[PostgresPublisher]:
        with connect(connection, application_name, autocommit=True) as session:
            yield PostgresPublisher(connection, session, publication)
