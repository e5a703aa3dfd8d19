"""What a Subscriber's database must be able to do, and what it may lack: the interface that every dialect fulfils."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Protocol

from tranrepl.connections import Connection
from tranrepl.errors import ConfigurationError, CustomProcedureError, ErrorReport, FencedError
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.catalogue import TableDescription
from tranrepl.model.names import TableName
from tranrepl.model.schema_change import SchemaChange
from tranrepl.settings.publication import Apply, Article, Subscription
from tranrepl.settings.registration import PublishedTables
from tranrepl.subscriber.batching.steps import Operations, Step
from tranrepl.subscriber.capabilities import Capabilities
from tranrepl.subscriber.comparison import SubscriberComparison
from tranrepl.subscriber.constraints import Constraints
from tranrepl.subscriber.foreign_keys import ForeignKey
from tranrepl.subscriber.sequences import SubscriberSequences
from tranrepl.subscriber.snapshot import Loader, SubscriberSnapshot
from tranrepl.subscriber.tables_version import TablesVersion
from tranrepl.subscriber.teardown import SubscriberTeardown


@dataclass(frozen=True, slots=True)
class SubscriptionKey:
    """Which rows of the Subscriber's tables are this subscription's."""

    publisher: str
    """Host and port, as the Publisher was reached last: for people to read."""
    publisher_system: str
    """The Publisher's system identifier: two servers may have databases, publications and subscriptions of one name."""
    publisher_db: str
    publication: str
    subscription: str


@dataclass(frozen=True, slots=True)
class ApplierOptions:
    """The options of an applier's session."""

    not_for_replication: bool = False
    """Foreign keys and ordinary triggers do not act on what it applies."""
    lock_timeout_seconds: float | None = None
    """How long a statement waits for a lock; None: as long as the server's settings say."""
    skip_errors: frozenset[str] = frozenset()
    """Numbers of data errors at which the failing command alone is left out."""
    apply: Apply = Apply.AUTO


AS_CONFIGURED = ApplierOptions()
"""What the server's own settings say."""


@dataclass(frozen=True, slots=True)
class Stream:
    """One of the connections that apply each commit batch together. Stream 0 keeps the subscription's watermark."""

    number: int = 0
    streams: int = 1


@dataclass(frozen=True, slots=True)
class StreamRecord:
    """What a stream writes down with its part of a commit batch, in the same commit."""

    after: bytes
    """The subscription's watermark before."""
    last: bytes
    """… and after, once stream 0 has committed too."""
    streams: int
    division: str
    """How the commands were divided among the streams, as `Division` says it in JSON."""


@dataclass(frozen=True, slots=True)
class UnfinishedBatch:
    """A commit batch of which some streams have committed and stream 0 has not."""

    record: StreamRecord
    committed: frozenset[int]


@dataclass(frozen=True, slots=True, order=True)
class CommandPlace:
    """A command's place in the order of all."""

    xact_seqno: bytes
    command_id: int


@dataclass(frozen=True, slots=True)
class SubscriptionPosition:
    """Where a subscription stands: all up to `watermark` is applied, and parts of the `unfinished` batch after it."""

    watermark: bytes
    unfinished: UnfinishedBatch | None = None
    applied_before: CommandPlace | None = None
    """A schema change within the transaction after the watermark, where DDL ends a transaction: all commands before it
    are applied, and it is the next one."""

    @property
    def is_half_delivered(self) -> bool:
        """Return whether a part of a commit batch after the watermark is applied, and a part of it is not."""
        within = self.applied_before is not None and self.applied_before.xact_seqno > self.watermark
        return within or self.unfinished is not None


class Scripted(Enum):
    """Which procedures of an article are scripted."""

    GENERATED = auto()
    CUSTOM = auto()
    """Skeletons of the custom ones: the right signature, and a body that does what the generated one would do."""


ALONE = Stream()


class Subscriber(Protocol):
    """One subscription's end in one database, looked at and set up. Its errors are of `tranrepl.errors`."""

    @property
    def where(self) -> str:
        """The Subscriber as messages name it: "Subscriber reporting"."""
        ...

    def subscription_problems(self, subscription: Subscription) -> Iterator[ConfigurationError]:
        """Yield what keeps this Subscriber from delivering as the subscription asks, each with its remedy."""
        ...

    def reading_together(self, tables: PublishedTables) -> AbstractContextManager[None]:
        """Ask the catalogue about all articles at once; within the context, about none that stays as it is again."""
        ...

    def article_problems(self, article: Article, source: TableDescription) -> Iterator[ConfigurationError]:
        """Yield what keeps this Subscriber from taking the article, each with its remedy."""
        ...

    def right_problems(self, tables: PublishedTables) -> Iterator[ConfigurationError]:
        """Yield what our role lacks of the rights that setup and deliveries need, with the statements that grant it."""
        ...

    def article_warnings(self, article: Article, source: TableDescription) -> Iterator[str]:
        """Yield what of an article without problems may not fit into the table that is there."""
        ...

    def warnings(self, tables: PublishedTables) -> Iterator[str]:
        """Yield what is allowed, but may stop a delivery one day."""
        ...

    def schema_change_warnings(self, articles: Sequence[Article]) -> Iterator[str]:
        """Yield what keeps our role from altering tables that are there, as the Publisher's schema changes need it."""
        ...

    def custom_problems(self, article: RegisteredArticle, source: TableDescription) -> Iterator[CustomProcedureError]:
        """Yield custom procedures that are missing or declared otherwise than they are called."""
        ...

    def tables_version(self) -> TablesVersion | None:
        """Return which version made the model's tables; None where they are not there."""
        ...

    def set_up_tables(self) -> None:
        """Create the model's tables, and procedures that all articles share. Idempotent. Raises ConfigurationError
        where a newer version made the tables."""
        ...

    def has_destination(self, table: TableName) -> bool: ...

    def set_up_destination(
        self, article: Article, source: TableDescription, referencing: Collection[str] = ()
    ) -> list[str]:
        """Create the destination table where it is missing; what was done. `referencing`: columns that a foreign key
        is to have."""
        ...

    def set_up_foreign_key(self, key: ForeignKey, *, new: bool) -> list[str]:
        """Create a foreign key of a table that this setup made (`new`); of another, say that it is missing."""
        ...

    def set_up_procedures(self, articles: Sequence[RegisteredArticle]) -> list[str]:
        """Create or regenerate the generated procedures; one edited by hand is left alone, and said so."""
        ...

    def set_up_watermark(self) -> list[str]:
        """Create the subscription's watermark: a new subscription has received nothing. An existing watermark is left
        alone; one that an earlier version wrote, without saying which server the Publisher is, is this one's where it
        was written for its address."""
        ...

    def scripts(self, article: RegisteredArticle, source: TableDescription, what: Scripted) -> list[str]:
        """Return `CREATE PROCEDURE` statements, without a terminator."""
        ...

    def set_up_streams(self, streams: int) -> None:
        """Create a row for each stream, before any of them writes: so that whoever comes later can wait for it."""
        ...

    @property
    def sequences(self) -> SubscriberSequences | None:
        """Sequences that can be set; None where tables number their rows by themselves, or nobody has tried it."""
        ...

    def constraints(self, articles: Sequence[RegisteredArticle]) -> Constraints:
        """Return unique keys and foreign keys of the articles' tables."""
        ...

    def position(self) -> SubscriptionPosition:
        """Return where the subscription stands, after a delivery has ended whose job was killed.

        Raises ConfigurationError where the subscription is not set up, FencedError where another delivery goes on.
        """
        ...

    def watermark(self) -> bytes:
        """Return the last transaction up to which all is applied. Raises ConfigurationError where it is not set up."""
        ...

    def move_watermark(self, expected: bytes, xact_seqno: bytes) -> None:
        """Move the watermark to where an administrator wants the next delivery to begin; forget what streams have
        applied past it. Raises FencedError where a delivery was faster."""
        ...

    def find_watermark(self) -> bytes | None:
        """Return the last transaction applied; None where the subscription is not set up."""
        ...

    def definitions(self) -> dict[str, int]:
        """Return by article (source) the `article_id` of the definition that its table and procedures stand at; an
        article is missing where nobody has recorded it."""
        ...

    def reload_reason(self, change: SchemaChange, old: RegisteredArticle) -> str | None:
        """Return why the log does not say which values the rows of this Subscriber have after a schema change of the
        article, in words; None where it does."""
        ...

    def record_definitions(self, articles: Sequence[RegisteredArticle]) -> None:
        """Record that the tables and procedures of these articles stand at their definitions."""
        ...

    def initialized_articles(self) -> dict[str, bytes]:
        """Return by article (source) the last transaction that is in the snapshot which its table began with, as the
        Subscriber itself has it."""
        ...


@dataclass(frozen=True, slots=True)
class Applied:
    """What applying commands came to, beside the rows."""

    in_bulk: int = 0
    """Commands that went in bulk; all others, serially."""
    fallbacks: Mapping[str, int] = field(default_factory=dict)
    """Why steps that were tried in bulk went serially after all, and how often."""
    stage_seconds: float = 0.0


class Applier(Protocol):
    """Applies commands over one connection, in transactions that begin under the fence of the watermark."""

    @property
    def bulk_operations(self) -> Mapping[int, Operations]:
        """Which operations of which articles (by article_id) may go in bulk; none where the options say so."""
        ...

    def begin(self, watermark: bytes, stream: Stream = ALONE, finishing: UnfinishedBatch | None = None) -> None:
        """Open a transaction. Raises FencedError where the Subscriber does not stand at `watermark`, or streams have
        gone on from there, other than the unfinished batch says."""
        ...

    def apply(self, steps: Sequence[Step]) -> None:
        """Apply commands in order, inside the transaction. What fails in bulk is undone, and goes serially.

        A `SchemaStep` alters the destination, makes the generated procedures of the new definition, and records that
        definition; from there on the applier knows nothing of the old one. `take_schema_changes` tells what was done.
        Where DDL ends the transaction, what came before is committed first with the place that
        `SubscriptionPosition.applied_before` gives back, and a new transaction goes on behind the change.

        A `ScriptStep` runs the script where the database is PostgreSQL; others pass over it, which is told.

        Raises DataError with the failing command's `xact_seqno`, `command_id` and article; ConfigurationError where a
        person must do something before a schema change can be applied, TransientError where its lock is not to be had.
        """
        ...

    def with_text(self, step: Step) -> Step:
        """Return the step with what will be copied for it, as far as that is known already. Another thread calls it."""
        ...

    def take_applied(self) -> Applied:
        """Return what was applied since the last call, also where an error ended it."""
        ...

    def take_skipped(self) -> list[ErrorReport]:
        """Return what the open transaction left out so far, as the options let it; each is given once."""
        ...

    def take_notices(self) -> list[str]:
        """Return warnings that procedures gave since the last call."""
        ...

    def take_schema_changes(self) -> list[str]:
        """Return what schema changes did since the last call, statement by statement, and what they left alone; and
        which scripts ran."""
        ...

    def ready(self) -> None:
        """Let every constraint be checked that waits for the commit. Raises what keeps the transaction from it."""
        ...

    def rollback(self) -> None:
        """Undo the open transaction, whatever state it is in."""
        ...

    def commit(self, xact_seqno: bytes) -> None:
        """Commit, with `xact_seqno` as the watermark."""
        ...

    def commit_stream(self, stream: Stream, record: StreamRecord) -> None:
        """Commit the part of a stream other than 0."""
        ...

    def renew(self) -> None:
        """Read again what decides about bulk, where a schema change was committed. Outside of a transaction."""
        ...

    def flush(self) -> None:
        """Make sure that what was committed survives a crash of the server."""
        ...


class Dialect(Protocol):
    """One kind of database as a Subscriber."""

    @property
    def capabilities(self) -> Capabilities: ...

    def subscriber(
        self, connection: Connection, key: SubscriptionKey, application_name: str
    ) -> AbstractContextManager[Subscriber]:
        """Connect. Raises ConfigurationError where the database refuses us, TransientError where it is not there."""
        ...

    def applier(
        self,
        connection: Connection,
        key: SubscriptionKey,
        articles: Mapping[int, RegisteredArticle],
        options: ApplierOptions = AS_CONFIGURED,
    ) -> AbstractContextManager[Applier]:
        """Connect to apply commands of these articles, by article_id. What is open at the end is rolled back.

        Raises ConfigurationError where the session may not or cannot be what `options` ask.
        """
        ...

    def snapshot(
        self, connection: Connection, key: SubscriptionKey, application_name: str
    ) -> AbstractContextManager[SubscriberSnapshot]:
        """Connect to initialise the subscription."""
        ...

    def loader(
        self, connection: Connection, key: SubscriptionKey, snapshot: str, options: ApplierOptions = AS_CONFIGURED
    ) -> AbstractContextManager[Loader]:
        """Connect to load ranges of a snapshot that has begun."""
        ...

    def teardown(
        self, connection: Connection, key: SubscriptionKey, application_name: str
    ) -> AbstractContextManager[SubscriberTeardown]:
        """Connect to remove what setup made for a publication."""
        ...

    def comparison(
        self, connection: Connection, key: SubscriptionKey, articles: Sequence[RegisteredArticle], sessions: int
    ) -> AbstractContextManager[SubscriberComparison]:
        """Hold the articles' tables as they are now, to be compared; `sessions` is how many may be read at a time.
        Raises ConfigurationError where the rows of this kind of database cannot be compared."""
        ...


def fenced(where: str) -> FencedError:
    return FencedError(f"{where}: another job delivers to this subscription; nothing was done by this one")


def not_set_up(where: str, key: SubscriptionKey, database: str) -> ConfigurationError:
    return ConfigurationError(
        f"{where}: subscription {key.subscription} of publication {key.publication} is not set up in database "
        f"{database}",
        remedy="run `tranrepl setup FILE`",
    )
