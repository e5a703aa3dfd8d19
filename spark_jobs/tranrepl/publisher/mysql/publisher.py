"""MariaDB as Publisher: it keeps its binary log for a time, read or not, and setup makes a table of messages."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import cached_property

import pymysql

from tranrepl.connections import Connection
from tranrepl.errors import (
    ConfigurationError,
    MissingRightError,
    MustBeReinitializedError,
    ReplicationError,
)
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.catalogue import OldRowSetting, TableDescription
from tranrepl.model.clock_difference import ClockDifference, measure
from tranrepl.model.names import TableName
from tranrepl.model.pending_definitions import DefinitionMessage
from tranrepl.model.position import FIRST_POSITION, Position
from tranrepl.model.row_images import values as values_of_line
from tranrepl.model.script import Script
from tranrepl.model.sequences import ArticleColumn, FoundSequences
from tranrepl.model.table_file import TableFile
from tranrepl.model.tracer_token import TracerToken
from tranrepl.mysql.auto_increment import counting_columns
from tranrepl.mysql.session import Session, account, connect, translated_errors
from tranrepl.publisher.continuity import Continuation, LogIdentity, RegisteredLog
from tranrepl.publisher.log_range import Limits, SchemaReading
from tranrepl.publisher.messages import MessageKind
from tranrepl.publisher.mysql.catalogue import (
    article_problems,
    describe_tables,
    table_names,
    table_size,
    tables_in,
)
from tranrepl.publisher.mysql.continuity import LogHistory
from tranrepl.publisher.mysql.dump import dumping
from tranrepl.publisher.mysql.log_range import BinlogRange
from tranrepl.publisher.mysql.log_stream import BinlogStream
from tranrepl.publisher.mysql.message_table import MESSAGES, MessageTable
from tranrepl.publisher.mysql.messages import MessageReading
from tranrepl.publisher.mysql.positions import (
    FIRST_EVENT,
    NO_END,
    BinlogPositions,
    file_of,
    place_of,
    position_of,
)
from tranrepl.publisher.mysql.server import ServerLog, end_of_log, read_server_log
from tranrepl.publisher.mysql.server_check import (
    READING,
    kept_for,
    retention_problems,
    right_problems,
    server_problems,
    server_warnings,
)
from tranrepl.publisher.mysql.snapshot import MySqlSnapshot, qualified, rows_query, taken_snapshot, too_long
from tranrepl.publisher.mysql.table_maps import Flavor
from tranrepl.publisher.mysql.zero_dates import zero_date_warnings
from tranrepl.publisher.publisher import NO_PARTITIONS, Danger, LogHealth, Probe, Removal, RetainedLog, Say, Tables
from tranrepl.remedies import REINITIALIZE
from tranrepl.settings.publication import Article
from tranrepl.spelling import likeliest

_SYSTEM = {
    Flavor.MARIADB: "CONCAT(@@server_uid, '/', @@server_id)",
    # Subscribers have room for 32 letters.
    Flavor.MYSQL: "REPLACE(@@server_uuid, '-', '')",
}
_SMALL_PART = 5
"""The log is in danger where less than this part of its time is left."""
_NO_LIMITS = Limits(1 << 62, 1 << 62)


class LoggedSchemaChanges:
    """Statements are in the log as they are."""

    made_by_setup = False

    def __init__(self, messages: MessageTable) -> None:
        self._messages = messages

    def collation(self, number: int) -> str | None:
        return None

    def set_up(self, *, captured: bool = True, new_secret: bool = False) -> list[str]:
        return []

    def warnings(self) -> Iterator[str]:
        yield from ()

    def left_to_make(self, *, captured: bool = True) -> list[str]:
        return self._messages.left_to_make()

    def why_not_captured(self) -> str | None:
        return None


class MySqlPublisher:
    """One publication in one database."""

    def __init__(self, connection: Connection, session: Session, publication: str) -> None:
        self._connection = connection
        self._session = session
        self.name = f"tranrepl_{publication.lower().replace('-', '_')}"
        # The server's, not the database's: two databases may have publications of one name, and one may have `a-b` and
        # `a_b`.
        self._messages = MessageTable(session, self.where, f"{session.database}/tranrepl_{publication}")
        self.schema_changes = LoggedSchemaChanges(self._messages)

    @property
    def where(self) -> str:
        return f"Publisher {self._session.database}"

    @property
    def database(self) -> str:
        return self._session.database

    @property
    def positions(self) -> BinlogPositions:
        return BinlogPositions()

    @cached_property
    def log(self) -> ServerLog:
        return read_server_log(self._session, self._connection, self.where)

    # Tables

    def describe(self, tables: Collection[TableName]) -> Mapping[TableName, TableDescription]:
        with translated_errors(self.where):
            holds_from = FIRST_POSITION
            # check describes tables before it says which rights our role lacks.
            with suppress(pymysql.err.Error):
                holds_from = position_of(end_of_log(self._session, self.log.flavor))
            return describe_tables(self._session, tables, holds_from)

    def tables_in(self, schemas: Collection[str]) -> Mapping[TableName, int]:
        with translated_errors(self.where):
            return tables_in(self._session, schemas)

    def table_names(self, object_ids: Collection[int]) -> Mapping[int, TableName]:
        with translated_errors(self.where):
            return table_names(self._session, object_ids)

    def table_bytes(self, article: RegisteredArticle) -> int:
        with translated_errors(self.where):
            return table_size(self._session, article.source).bytes

    def sequences(self, articles: Sequence[RegisteredArticle]) -> FoundSequences:
        with translated_errors(self.where):
            found = counting_columns(self._session.execute, [it.source for it in articles])
        return FoundSequences(
            {
                ArticleColumn(it.source, column.name): column.sequence(it.source)
                for it in articles
                if (column := found.get(it.source)) is not None and column.name in {of.name for of in it.columns}
            }
        )

    def catalogue_state(self) -> str | None:
        return None

    def files(self, articles: Sequence[RegisteredArticle]) -> Mapping[int, TableFile]:
        found = self.describe([it.source for it in articles])
        files: dict[int, TableFile] = {}
        for it in articles:
            table = found.get(it.source)
            now = {column.name: column.type_oid for column in table.columns} if table is not None else {}
            unfit = [column.name for column in it.columns if now.get(column.name) != column.type_oid]
            if unfit:
                raise ConfigurationError(
                    f"{self.where}: table {it.source} was altered: column {unfit[0]} is not as it is registered",
                    remedy=f"make the Subscriber's table fit, run `tranrepl setup FILE`, then {REINITIALIZE}",
                    article=str(it.source),
                )
            if table is not None and table.file is not None:
                files[it.source_object_id] = table.file
        return files

    def unpublished(self, articles: Sequence[RegisteredArticle]) -> list[RegisteredArticle]:
        return []

    def logs_what_is_needed(self, article: RegisteredArticle) -> bool:
        return self._session.execute("SELECT @@GLOBAL.binlog_row_image") == [("FULL",)]

    # Check

    def warnings(self, longest_pause: timedelta | None) -> Iterator[str]:
        with translated_errors(self.where):
            yield from server_warnings(self._session, self.where, self.log.flavor)
        unwritable = self._messages.warning()
        if unwritable is not None:
            yield unwritable
        limit = self._kept_for()
        if limit and (longest_pause is None or limit <= longest_pause):
            pause = "no schedule says when runs come" if longest_pause is None else f"runs pause up to {longest_pause}"
            yield (
                f"{self.where}: binlog_expire_logs_seconds is {limit}, and {pause}: the server removes its log after "
                "that time, read or not, and the publication must then be reinitialized"
            )

    def _kept_for(self) -> timedelta:
        """Return after what time the server removes a file of its log; nothing where it does not."""
        with translated_errors(self.where):
            return kept_for(self._session)

    def problems(self, kept_for: timedelta = timedelta()) -> Iterator[ReplicationError]:
        with translated_errors(self.where):
            yield from server_problems(self._session, self.where, self.log.flavor)
            yield from retention_problems(self._session, self.where, self.log.flavor, kept_for)

    def article_problems(self, article: Article, table: TableDescription) -> Iterator[ConfigurationError]:
        with translated_errors(self.where):
            yield from article_problems(self._session, self.where, self.log.flavor, article, table)

    def value_warnings(self, tables: Tables) -> Iterator[str]:
        with translated_errors(self.where):
            yield from zero_date_warnings(self._session, self.where, tables)

    def right_problems(self, tables: Tables, read: Collection[TableName]) -> Iterator[ConfigurationError]:
        with translated_errors(self.where):
            user = account(self._session)
        yield from right_problems(self._session, self.where, self.log.flavor, user)
        try:
            with dumping(self._connection, self.where, self.log.flavor, "", FIRST_EVENT) as dump:
                next(dump.chunks(), None)
        except ConfigurationError as error:
            yield MissingRightError(
                error.message, remedy=f"GRANT {READING[self.log.flavor]} ON *.* TO {user}: the log is read by it"
            )
        except MustBeReinitializedError:
            pass
        for name in read:
            try:
                with translated_errors(self.where):
                    self._session.execute(f"SELECT 1 FROM {qualified(name)} LIMIT 0")  # noqa: S608 - quoted
            except ConfigurationError as error:
                yield MissingRightError(error.message, remedy=f"GRANT SELECT ON {qualified(name)} TO {user}")

    def no_such_table(self, name: TableName) -> ConfigurationError:
        with translated_errors(self.where):
            rows = self._session.execute(
                "SELECT table_name FROM information_schema.tables WHERE table_schema = %s", [name.schema]
            )
        near = likeliest(name.table, [table for (table,) in rows])
        question = "" if near is None else f"did you mean {TableName(name.schema, near)}? "
        return ConfigurationError(
            f"{self.where}: there is no table {name}",
            remedy=f"{question}A schema is a database here, and our role sees a table only with a right on it",
            article=str(name),
        )

    # Set up and tear down

    def set_up(self, tables: Tables) -> list[str]:
        return self._messages.set_up()

    def old_row_settings(self, object_ids: Collection[int]) -> Mapping[int, OldRowSetting]:
        return {}

    def forget_log(self) -> list[str]:
        return []

    def abandoned(self, system: str | None, name: str, *, whole: bool) -> str:
        kept = f"the publication was registered for another server, {system}, which keeps nothing for {name}"
        if not whole:
            return kept
        return (
            f"{kept} but a row of {MESSAGES}: DROP DATABASE tranrepl there, where it has no other publication of ours"
        )

    def require_no_reader(self) -> None:
        """Do nothing: readers do not exclude one another."""

    def find_removal(
        self,
        object_ids: Collection[int],
        remembered: Mapping[int, OldRowSetting],
        unsettled: str,
        partitions: Mapping[int, bool] = NO_PARTITIONS,
    ) -> Removal:
        return self._messages.removal()

    def remove(self, removal: Removal, say: Say) -> None:
        for step in removal.steps:
            with translated_errors(self.where):
                self._session.execute(step.statement)
            say(f"{step.what} at {self.where}")

    def rows_of_key(self, article: RegisteredArticle, key: Sequence[str | None]) -> list[list[str | None]]:
        with translated_errors(self.where):
            lines = self._session.execute(*rows_query(self._session, article, [[*key]]))
        if any(line is None for (line,) in lines):
            raise too_long(self.where, article)
        return [values_of_line(line) for (line,) in lines]

    # The log

    def identity(self, known_timeline: int | None = None) -> LogIdentity:
        with translated_errors(self.where):
            ((system,),) = self._session.execute(f"SELECT {_SYSTEM[self.log.flavor]}")
        return LogIdentity(str(system), 1)

    @property
    def _history(self) -> LogHistory:
        return LogHistory(self._session, self.log)

    def continuation(self, identity: LogIdentity, registered: RegisteredLog) -> Continuation:
        self._history.require(registered)
        return Continuation(registered.position, identity.timeline, registered.position)

    def require_unbroken(self, identity: LogIdentity, registered: RegisteredLog) -> None:
        self.continuation(identity, registered)

    def proof(self, position: Position, last: bytes | None) -> str | None:
        """Return what lies before a place, and the event that begins the transaction; None where no group ends at the
        place."""
        return self._history.proof(place_of(position), last)

    def kept_from(self) -> Position:
        return self.end_of_log()

    def require_kept(self) -> None:
        """Do nothing: nothing is kept for the publication alone."""

    def require_unread(self) -> None:
        """Do nothing: readers do not exclude one another."""

    def end_of_log(self) -> Position:
        with translated_errors(self.where):
            return position_of(end_of_log(self._session, self.log.flavor))

    def readable_end_of_log(self, say: Say) -> Position:
        return self.end_of_log()

    def probe(self, articles: Sequence[RegisteredArticle], start: Position, up_to: Position) -> Probe:
        empty_up_to = start
        for part in self.log_range(articles, start, up_to, _NO_LIMITS, schema=SchemaReading()).changes():
            if part.refusal or part.unreadable or part.limit_reached or part.notices or part.unsigned:
                return Probe(True, empty_up_to)
            if part.changes is not None and (part.changes.sets or part.changes.messages):
                return Probe(True, empty_up_to)
            empty_up_to = max(empty_up_to, part.end or empty_up_to)
        return Probe(False, max(empty_up_to, up_to))

    def readers(self) -> int:
        return 1

    def log_range(
        self,
        articles: Sequence[RegisteredArticle],
        start: Position,
        up_to: Position,
        limits: Limits,
        readers: int = 1,
        schema: SchemaReading | None = None,
        scripts: Sequence[str] = (),
    ) -> BinlogRange:
        messages = MessageReading(self._messages.publication, self.name, schema, scripts)
        return BinlogRange(self.log, articles, start, up_to, limits, messages)

    def log_stream(
        self, articles: Sequence[RegisteredArticle], start: Position, schema: SchemaReading | None = None
    ) -> BinlogStream:
        return BinlogStream(self.log_range(articles, start, NO_END, _NO_LIMITS, schema=schema))

    def write_script(self, script: Script) -> None:
        self._messages.write(MessageKind.SCRIPT, script.message)

    def write_definitions(self, digest: str) -> None:
        message = DefinitionMessage(publication=self.name, digest=digest)
        self._messages.write(MessageKind.DEFINITION, message.message)

    def post_token(self, token: TracerToken) -> None:
        self._messages.write(MessageKind.TRACER, token.message)

    def clock_difference(self) -> ClockDifference:
        with translated_errors(self.where):
            return measure(self._clock)

    def _clock(self) -> datetime:
        ((now,),) = self._session.execute("SELECT UTC_TIMESTAMP(6)")
        clock: datetime = now
        return clock.replace(tzinfo=UTC)

    def require_session(self) -> None:
        with translated_errors(self.where):
            self._session.execute("SELECT 1")

    def confirm(self, up_to: Position) -> None:
        """Do nothing: the server keeps its log for a time, read or not."""

    def catch_up(self, position: Position) -> None:
        """Do nothing: nothing is confirmed."""

    def health(self, registered_to: Position | None = None) -> LogHealth:
        limit = self._kept_for()
        size = sum(self._history.files().values())
        dangers = () if registered_to is None or not limit else tuple(self._dangers(place_of(registered_to), limit))
        kept = RetainedLog(f"removed after {limit}" if limit else "until it is purged", size, None, dangers=dangers)
        return LogHealth(self.name, "binary log", "kept", kept, None, None)

    def _dangers(self, place: int, limit: timedelta) -> Iterator[Danger]:
        """Yield that the file that is to be read next is nearly as old as the server lets one become: its age counts
        from when the next one began."""
        began = self._history.began_at(file_of(place) + 1)
        if began is None:
            return
        left = began + limit - self._clock()
        if left * _SMALL_PART <= limit:
            yield Danger(
                f"the binary log is in danger: in {max(left, timedelta()) / timedelta(hours=1):,.1f} hours the server "
                f"removes {self.log.file(file_of(place))} (binlog_expire_logs_seconds), which is to be read next",
                "read the log with `tranrepl run FILE`, or raise binlog_expire_logs_seconds at the Publisher",
            )

    # Rows

    def snapshot(self, timeout_seconds: float, say: Say) -> AbstractContextManager[MySqlSnapshot]:
        return taken_snapshot(self._connection, self.where, self.log.flavor, timeout_seconds, say)


class MySqlPublisherDatabase:
    """MariaDB and MySQL, as a kind of Publisher."""

    @property
    def positions(self) -> BinlogPositions:
        return BinlogPositions()

    def statements_left(self, name: str, tables: Mapping[TableName, OldRowSetting]) -> list[str]:
        return []

    @contextmanager
    def open(self, connection: Connection, publication: str, application_name: str) -> Iterator[MySqlPublisher]:
        with connect(connection) as session:
            yield MySqlPublisher(connection, session, publication)
