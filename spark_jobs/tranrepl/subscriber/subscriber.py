"""One subscription's end, as jobs and setup use it: the interface that every database implements."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from enum import Enum, auto
from typing import Protocol

from tranrepl.errors import ConfigurationError, CustomProcedureError
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.catalogue import TableDescription
from tranrepl.model.names import TableName
from tranrepl.model.schema_change import SchemaChange
from tranrepl.settings.publication import Article, Subscription
from tranrepl.settings.registration import PublishedTables
from tranrepl.subscriber.constraints import Constraints
from tranrepl.subscriber.foreign_keys import ForeignKey
from tranrepl.subscriber.sequences import SubscriberSequences
from tranrepl.subscriber.shared_tables import Claim
from tranrepl.subscriber.subscription import SubscriptionPosition
from tranrepl.subscriber.tables_version import TablesVersion


class Scripted(Enum):
    """Which procedures of an article are scripted."""

    GENERATED = auto()
    CUSTOM = auto()
    """Skeletons of the custom ones: the right signature, and a body that does what the generated one would do."""


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

    def article_problems(
        self, article: Article, source: TableDescription, known: RegisteredArticle | None = None
    ) -> Iterator[ConfigurationError]:
        """Yield what keeps this Subscriber from taking the article, each with its remedy. `known` is the article as it
        is delivered; None where nothing is."""
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

    def lacking_partitions(self, article: Article, source: TableDescription) -> Mapping[TableName, TableName]:
        """Return the Publisher's partitions that setup would make here, each with the name it would give it."""
        ...

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
        alone."""
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

    def find_durable_watermark(self) -> bytes | None:
        """Return the same, where what was applied survives a crash of the server: what comes before is not needed any
        more."""
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

    def release_tables(self, kept: Sequence[str]) -> None:
        """Record that tables of other articles than these (by source) are delivered to no more."""
        ...

    def claims(self) -> list[Claim]:
        """Return what other publications deliver to the same database. The model's tables must be of this version."""
        ...

    def initialized_articles(self) -> dict[str, bytes]:
        """Return by article (source) the last transaction that is in the snapshot which its table began with, as the
        Subscriber itself has it."""
        ...
