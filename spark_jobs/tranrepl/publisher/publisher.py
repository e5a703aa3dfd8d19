"""The interface of a Publisher, whatever its database."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from tranrepl.connections import Connection
from tranrepl.errors import ConfigurationError, ReplicationError
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.catalogue import OldRowSetting, TableDescription
from tranrepl.model.clock_difference import ClockDifference
from tranrepl.model.names import TableName
from tranrepl.model.position import Position, Positions
from tranrepl.model.script import Script
from tranrepl.model.sequences import FoundSequences
from tranrepl.model.table_file import TableFile
from tranrepl.model.tracer_token import TracerToken
from tranrepl.publisher.continuity import Continuation, LogIdentity, RegisteredLog
from tranrepl.publisher.log_range import Limits, LogRange, SchemaReading
from tranrepl.publisher.log_stream import LogStream
from tranrepl.publisher.snapshot import Snapshot
from tranrepl.settings.publication import Article

Say = Callable[[str], None]
Tables = Sequence[tuple[Article, TableDescription]]


def say_nothing(_: str) -> None:
    """Report a thing that nobody waits for."""


@dataclass(frozen=True, slots=True)
class Probe:
    """What a probe found: before `empty_up_to` the log holds no change of a published table."""

    found_change: bool
    empty_up_to: Position


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that is open at a Publisher."""

    seconds: float
    """How long, by the Publisher's clock."""
    who: str
    """Its session, or its name where it has none, in words."""


@dataclass(frozen=True, slots=True)
class Danger:
    """Why log that was not read may soon be lost, in the Publisher's words, and what to do."""

    text: str
    remedy: str


@dataclass(frozen=True, slots=True)
class RetainedLog:
    """How much log a Publisher keeps that a publication needs."""

    status: str
    """The server's own word for it, as `reserved`, or how long it keeps its log for everybody."""
    size: int | None
    """Bytes; None where it keeps none any more."""
    left: int | None
    """Bytes that may be written before what is needed is in danger of being lost; None where nothing bounds them."""
    catalog_xmin_age: int | None = None
    """How many transactions ago those were of which the catalogue keeps dead rows for the log; None where it keeps
    none."""
    oldest_transaction: OpenTransaction | None = None
    """What has been open for longest: the log since its beginning is kept. None where nothing is, or where our role
    does not see since when."""
    dangers: tuple[Danger, ...] = ()


@dataclass(frozen=True, slots=True)
class LogHealth:
    """How a publication's log is kept."""

    name: str
    """The publication's name at the Publisher (`Publisher.name`)."""
    log: str
    """What keeps its log, as messages name it: a slot with its name, or `binary log`."""
    state: str | None
    """The Publisher's word for it, as `ready`, or `kept`; None where the log that is needed is kept no more."""
    retained: RetainedLog | None
    unread_bytes: int | None
    waits_for: str | None
    """Who must have the log before it is read further, in words."""


NO_PARTITIONS: Mapping[int, bool] = {}


@dataclass(frozen=True, slots=True)
class RemovalStep:
    """One thing that goes, in words, and the statement that removes it, in the Publisher's SQL."""

    what: str
    statement: str


@dataclass(frozen=True, slots=True)
class Removal:
    """What teardown removes, in this order, and what it leaves as it is, in words."""

    steps: tuple[RemovalStep, ...]
    stays: tuple[str, ...]

    @property
    def removed(self) -> tuple[str, ...]:
        return tuple(step.what for step in self.steps)


class SchemaChanges(Protocol):
    """What makes a Publisher's log announce schema changes. All publications of a database share it."""

    made_by_setup: bool
    """Whether setup makes something for them at the Publisher; False where its log has them in any case."""

    def collation(self, number: int) -> str | None:
        """Return the name of the collation with this number, in the Publisher's SQL; None where it is gone."""
        ...

    def set_up(self, *, captured: bool = True, new_secret: bool = False) -> list[str]:
        """Make what is missing or of an earlier version, as far as our role may. Without `captured`, remove it where
        no other publication of the database may need it, but for what signs messages; `new_secret` makes that another
        one. Returns what was done, in words.

        Raises ConfigurationError where another role that is not trusted owns a part of it.
        """
        ...

    def warnings(self) -> Iterator[str]:
        """Yield why schema changes will not be captured once setup has run, each with its remedy."""
        ...

    def left_to_make(self, *, captured: bool = True) -> list[str]:
        """Return what setup may not make, as statements in the Publisher's SQL for who may."""
        ...

    def why_not_captured(self) -> str | None:
        """Say why schema changes are not captured now; None where they are."""
        ...


class Publisher(Protocol):
    """One publication in one database, over a session. Every method raises TransientError where the server
    does not answer.

    A table's `object_id` is a number of the Publisher's own, which the table keeps when it is renamed and no other
    gets; a column's `ordinal` is such a number within its table.

    The log is kept for a publication from one place on (`kept_from`), and is read to another one, which is confirmed
    (`confirm`) once it is registered. A Publisher that keeps its log for a time, read or not, has nothing to
    confirm or to forget; it says how long that lasts (`health`).
    """

    @property
    def where(self) -> str:
        """The Publisher as messages name it."""
        ...

    @property
    def database(self) -> str: ...

    @property
    def name(self) -> str:
        """The name of what setup makes at the server: no two publications have the same one there."""
        ...

    @property
    def positions(self) -> Positions: ...

    @property
    def schema_changes(self) -> SchemaChanges: ...

    # Tables

    def describe(self, tables: Collection[TableName]) -> Mapping[TableName, TableDescription]:
        """Return those that exist."""
        ...

    def tables_in(self, schemas: Collection[str]) -> Mapping[TableName, int]:
        """Return the tables of these schemas and their object ids."""
        ...

    def table_names(self, object_ids: Collection[int]) -> Mapping[int, TableName]:
        """Return the names by which these tables are known now, by object id; those that exist."""
        ...

    def table_bytes(self, article: RegisteredArticle) -> int:
        """Return how large the article's table is."""
        ...

    def rows_of_key(self, article: RegisteredArticle, key: Sequence[str | None]) -> list[list[str | None]]:
        """Return the published values of the row with this key as it is now, in the text form of the log; none where no
        row has it, or the row filter keeps it out. Raises ConfigurationError where a published column is missing."""
        ...

    def sequences(self, articles: Sequence[RegisteredArticle]) -> FoundSequences:
        """Return the sequences of the articles' columns as they are now. Waits a few seconds for them at most."""
        ...

    def files(self, articles: Sequence[RegisteredArticle]) -> Mapping[int, TableFile]:
        """Return in which files the articles' tables are now, by object id. Raises ConfigurationError where a table
        does not fit its article any more."""
        ...

    def catalogue_state(self) -> str | None:
        """Return a text that is another one after whatever may change what `files` returns; None where no short
        question says so, or where `probe` has to know the articles."""
        ...

    def unpublished(self, articles: Sequence[RegisteredArticle]) -> list[RegisteredArticle]:
        """Return the articles whose tables are there, and whose changes are not all published."""
        ...

    def logs_what_is_needed(self, article: RegisteredArticle) -> bool:
        """Say whether changes that are made now come with the old rows that the article needs."""
        ...

    def warnings(self, longest_pause: timedelta | None) -> Iterator[str]:
        """Yield what is allowed but may surprise. `longest_pause`: between two runs that read the log; None where no
        schedule says so."""
        ...

    def problems(self, kept_for: timedelta = timedelta()) -> Iterator[ReplicationError]:
        """Yield what keeps this server from publishing at all, a snapshot from being taken, or the log from being kept
        for as long as commands are kept for a Subscriber, which is `kept_for`."""
        ...

    def article_problems(self, article: Article, table: TableDescription) -> Iterator[ConfigurationError]:
        """Yield why this table cannot be published as the article asks, each with its remedy."""
        ...

    def value_warnings(self, tables: Tables) -> Iterator[str]:
        """Yield which published columns have values that no Subscriber's column of such a type takes. Looks for some
        seconds at most."""
        ...

    def right_problems(self, tables: Tables, read: Collection[TableName]) -> Iterator[ConfigurationError]:
        """Yield rights that our role lacks: to set up the publication of all its articles, and to read some of them."""
        ...

    def no_such_table(self, name: TableName) -> ConfigurationError:
        """Return the error of an article whose table is not there."""
        ...

    # Set up and tear down

    def set_up(self, tables: Tables) -> list[str]:
        """Create or alter what is missing; what was done, in words. Idempotent. From then on the log is kept.

        Raises TransientError where a table stays locked by others, ConfigurationError where a right is missing.
        """
        ...

    def old_row_settings(self, object_ids: Collection[int]) -> Mapping[int, OldRowSetting]:
        """Return what `set_up` may change of tables that exist, by object id, for teardown to put back."""
        ...

    def forget_log(self) -> list[str]:
        """Let the server keep the log no longer: the next `set_up` keeps it from then on. Returns what was done. Raises
        TransientError where another session reads it."""
        ...

    def abandoned(self, system: str | None, name: str, *, whole: bool) -> str:
        """Return what to say of another server that a publication was registered at: what it still keeps for us under
        that name, and how to remove it there. `whole`: also what only teardown removes."""
        ...

    def require_no_reader(self) -> None:
        """Raise TransientError where a log reader is connected to the database."""
        ...

    def find_removal(
        self,
        object_ids: Collection[int],
        remembered: Mapping[int, OldRowSetting],
        unsettled: str,
        partitions: Mapping[int, bool] = NO_PARTITIONS,
    ) -> Removal:
        """Look for what `set_up` made; nothing is changed. `object_ids`: tables that are or were articles;
        `remembered`: their settings before set-up; `unsettled`: why one that is not remembered is not known;
        `partitions`: those that the tables have or had, and whether the log says that one came.

        Raises TransientError where another session reads the log, ConfigurationError where a right is missing.
        """
        ...

    def remove(self, removal: Removal, say: Say) -> None:
        """Remove it; `say` reports each thing done. Raises TransientError where a table stays locked by others,
        ConfigurationError where a right is missing."""
        ...

    # The log

    def identity(self, known_timeline: int | None = None) -> LogIdentity:
        """Return whose log it is. Its history is read where it is not on the timeline that is known."""
        ...

    def continuation(self, identity: LogIdentity, registered: RegisteredLog) -> Continuation:
        """Prove that what is registered is of this log. Changes nothing.

        Raises MustBeReinitializedError where it is not, or where log is lost that was not read; TransientError where
        another session reads the log.
        """
        ...

    def require_unbroken(self, identity: LogIdentity, registered: RegisteredLog) -> None:
        """Raise MustBeReinitializedError where the log cannot be read on, for good, even if another session reads it
        just now."""
        ...

    def proof(self, position: Position, last: bytes | None) -> str | None:
        """Return what tells the log before a position, whose last published transaction is `last` (`xact_seqno`), from
        another log that has such a position; None where the log's identity does."""
        ...

    def kept_from(self) -> Position:
        """Return from where the log is kept for the publication, where all before is registered or nothing is yet; the
        log's end where the server keeps it for nobody in particular. Raises MustBeReinitializedError where it is kept
        no more, TransientError where another session reads it."""
        ...

    def require_kept(self) -> None:
        """Raise MustBeReinitializedError where the log is kept no more."""
        ...

    def require_unread(self) -> None:
        """Raise TransientError where another session reads the log."""
        ...

    def end_of_log(self) -> Position:
        """Return how far the log is written durably now."""
        ...

    def readable_end_of_log(self, say: Say) -> Position:
        """Return how far the log may be read now, if the server were lost, too; `say` reports what it waits for."""
        ...

    def probe(self, articles: Sequence[RegisteredArticle], start: Position, up_to: Position) -> Probe:
        """Look for the first change of these articles from `start` on, where the log is registered to, and before
        `up_to`, for a few seconds at most."""
        ...

    def readers(self) -> int:
        """Return how many readings of the log may go on at once. Raises TransientError or ConfigurationError where none
        may."""
        ...

    def log_range(
        self,
        articles: Sequence[RegisteredArticle],
        start: Position,
        up_to: Position,
        limits: Limits,
        readers: int = 1,
        schema: SchemaReading | None = None,
        scripts: Sequence[str] = (),
    ) -> LogRange:
        """Return the log from `start`, where it is kept from or later, to `up_to`, for so many readers at most. Without
        `schema`, schema changes are not followed. `scripts`: digests of those that were written; no other is read."""
        ...

    def log_stream(
        self, articles: Sequence[RegisteredArticle], start: Position, schema: SchemaReading | None = None
    ) -> LogStream | None:
        """Return the log from `start` on, as it is written; None where it may be read by ranges only."""
        ...

    def write_script(self, script: Script) -> None:
        """Write a script into the log, in a transaction of its own."""
        ...

    def write_definitions(self, digest: str) -> None:
        """Write the message of setup's pending definitions into the log, in a transaction of its own: they hold from
        there on. Raises ConfigurationError where nothing signs messages, MissingRightError where our role may not."""
        ...

    def post_token(self, token: TracerToken) -> None:
        """Write a tracer token into the log, in a transaction of its own. Raises ConfigurationError where our role may
        not."""
        ...

    def clock_difference(self) -> ClockDifference:
        """Measure how far the server's clock is ahead of this machine's."""
        ...

    def require_session(self) -> None:
        """Raise TransientError where the server has ended this session, as it does when it stops."""
        ...

    def confirm(self, up_to: Position) -> None:
        """Tell the server that everything before `up_to` is registered: it may drop its log. Nothing where it keeps it
        for nobody in particular."""
        ...

    def catch_up(self, position: Position) -> None:
        """Confirm what an earlier job registered and did not confirm, and let no reading begin far before it."""
        ...

    def health(self, registered_to: Position | None = None) -> LogHealth:
        """Return how the log is kept. `registered_to`: from where it is to be read next, which a server does not know
        that keeps it for nobody in particular. Raises ConfigurationError where what has our name is another's."""
        ...

    # Rows

    def snapshot(self, timeout_seconds: float, say: Say) -> AbstractContextManager[Snapshot]:
        """Take a snapshot, which lives until the end of the context. `say` reports what it waits for; after
        `timeout_seconds` of it, raises TransientError."""
        ...


class PublisherDatabase(Protocol):
    """A kind of database that a Publisher may be in."""

    @property
    def positions(self) -> Positions: ...

    def statements_left(self, name: str, tables: Mapping[TableName, OldRowSetting]) -> list[str]:
        """Return what removes at a server that is not reached what set-up made there. `name`: the publication's name
        at the server; `tables`: their settings before set-up."""
        ...

    def open(
        self, connection: Connection, publication: str, application_name: str
    ) -> AbstractContextManager[Publisher]:
        """Connect. Raises TransientError or ConfigurationError."""
        ...
