"""A part of a PostgreSQL log: fetched, cut at the ends of transactions, and decoded into changes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise

import pyarrow as pa

from tranrepl.connections import Connection
from tranrepl.error_numbers import Codes
from tranrepl.errors import ConfigurationError, ReplicationError, TransientError
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.position import Position
from tranrepl.postgres.rights import quoted_role
from tranrepl.postgres.session import connect
from tranrepl.publisher.log_range import Limits, LogPart, LogReadError, Refusal, SchemaReading, TooLong
from tranrepl.publisher.log_read import ReadFailure
from tranrepl.publisher.messages import ScriptMessages, TokenMessages
from tranrepl.publisher.postgres.free_slots import ALL_IN_USE, MORE_SLOTS, is_all_in_use
from tranrepl.publisher.postgres.logged_tables import SchemaMessages, SchemaStop
from tranrepl.publisher.postgres.lsn import LsnPositions, lsn_of, position_of, seqno_of
from tranrepl.publisher.postgres.message_secret import MessageSecret
from tranrepl.publisher.postgres.old_rows import LACKS_OLD_ROWS_REMEDY
from tranrepl.publisher.postgres.oversized_messages import (
    find_long_message,
    long_message_error,
    reaches_the_limit,
)
from tranrepl.publisher.postgres.partition_changes import PublishedRelations
from tranrepl.publisher.postgres.pgoutput import PgOutputDecoder
from tranrepl.publisher.postgres.relations import RelationMismatch
from tranrepl.publisher.postgres.row_filters import PostgresRowFilters
from tranrepl.publisher.postgres.slot_messages import (
    HELD_BYTES,
    LARGEST_RANGE,
    FetchError,
    range_ends,
    slot_messages,
    whole_transactions,
)
from tranrepl.publisher.postgres.unconverted_text import first_unreadable

_LEAST_RANGE = 4 * 1024 * 1024
_LOG_OF_A_TRANSACTION = 1024
_LOG_OF_A_MESSAGE_BYTE = 2
_MANY_TABLES = 1000
_BYTES_PER_ARTICLE = 128 * 1024
_BYTES_FOR_MANY_ARTICLES = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class PostgresLogRange:
    """From `first`, where the slot stands or later, to the last of `ends`. So many sessions at most take turns at the
    ranges that `ends` make. LSNs as integers."""

    connection: Connection
    slot: str
    articles: Sequence[RegisteredArticle]
    first: int
    ends: Sequence[int]
    limits: Limits
    sessions: int = 2
    schema: SchemaReading | None = None
    """None: schema changes are not captured, and a table that is another one stops the reading."""
    scripts: Sequence[str] = ()
    """Digests of scripts that may be in the log."""
    secrets: Sequence[MessageSecret] = ()
    """What messages in the log may be signed with."""
    converted: bool = False
    """The server knows the encoding of its text, and so checks it."""
    by_table: Mapping[int, RegisteredArticle] = field(default_factory=dict)
    """The article of each table that the log may name, by oid: an article's own, and the partitions of it."""

    @property
    def where(self) -> str:
        return f"Publisher {self.connection.database}"

    @property
    def positions(self) -> LsnPositions:
        return LsnPositions()

    @property
    def start(self) -> Position:
        return position_of(self.first)

    @property
    def up_to(self) -> Position:
        return position_of(self.ends[-1])

    def side_by_side(self) -> list[PostgresLogRange]:
        return [replace(self, first=first, ends=[last]) for first, last in pairwise([self.first, *self.ends])]

    def between(self, start: Position, up_to: Position) -> PostgresLogRange:
        """Return one range, also where it ends after a message that is too long: that fails as a whole."""
        first, schema = lsn_of(start), self.schema
        if schema is not None and first != self.first:
            schema = replace(schema, begins_with=())
        return replace(self, first=first, ends=[lsn_of(up_to)], schema=schema)

    @contextmanager
    def row_filters(self) -> Iterator[PostgresRowFilters | None]:
        if all(article.filter is None for article in self.articles):
            yield None
            return
        with connect(self.connection, "tranrepl row filters", autocommit=True) as session:
            session.execute("SET default_transaction_read_only = on")
            captured = self.schema is not None and self.schema.follows
            yield PostgresRowFilters.of(session, self.articles, captured=captured)

    def changes(self) -> Iterator[LogPart]:
        try:
            yield from self._parts()
        except FetchError as error:
            translated = _translate(self, error)
            raise LogReadError(translated, _failure(translated, error)) from error
        except ReplicationError as error:
            raise LogReadError(error, _failure(error, None)) from error

    def find_too_long(self) -> TooLong | None:
        found = find_long_message(self.connection, self.slot, self.first, self.ends[-1])
        if found is None:
            return None
        readable_to = None if found.read_up_to is None else position_of(found.read_up_to)
        return TooLong(readable_to, long_message_error(self.where, self.by_table, found))

    def old_rows_remedy(self, article: RegisteredArticle) -> str:
        return LACKS_OLD_ROWS_REMEDY.format(article.source)

    def _parts(self) -> Iterator[LogPart]:
        decoder = self.decoder(self.limits)
        for batch in whole_transactions(self._messages(), HELD_BYTES, _least_bytes(len(self.articles))):
            yield self.part(decoder, batch)

    def decoder(self, limits: Limits) -> PgOutputDecoder:
        """Return what decodes messages of this part of the log in their order, from its beginning."""
        relations = PublishedRelations(self.articles, self.by_table)
        readers = (ScriptMessages(self.slot, self.scripts), TokenMessages(self.slot))
        return PgOutputDecoder(relations, limits, self._schema_messages(), readers, self.secrets)

    def part(self, decoder: PgOutputDecoder, batch: pa.BinaryArray) -> LogPart:
        before, started = decoder.message_bytes, time.perf_counter()
        decoded = decoder.decode(batch)
        unreadable = None if self.converted else first_unreadable(decoded.changes)
        seconds, commit = time.perf_counter() - started, decoded.last_commit
        return LogPart(
            decoded.changes,
            last_commit=seqno_of(commit.lsn) if commit else None,
            end=position_of(commit.end_lsn) if commit else None,
            transactions=decoded.transactions,
            message_bytes=decoder.message_bytes - before,
            decode_seconds=seconds,
            limit_reached=decoded.limit_reached,
            refusal=_refusal(self, decoded.problem) if decoded.problem is not None else None,
            unreadable=unreadable,
            definitions=decoded.definitions,
            notices=decoded.notices,
            unsigned=None if decoded.unsigned is None else f"{self.where}: {decoded.unsigned}",
            needs_definitions=decoded.needs_definitions,
            redefinition=decoded.redefinition,
            ends_in_transaction=decoded.ends_in_transaction,
        )

    def _schema_messages(self) -> SchemaMessages | None:
        if self.schema is None:
            return None
        return SchemaMessages(self.slot, self.connection, self.schema)

    def _messages(self) -> Iterator[pa.BinaryArray]:
        many = len(self.articles) >= _MANY_TABLES
        return slot_messages(self.connection, self.slot, self.first, self.ends, self.sessions, many_tables=many)


def cut(start: int, up_to: int, limits: Limits) -> list[int]:
    """Return the ends of the ranges to read this part of the log in."""
    return range_ends(start, up_to, largest_range(limits))


def largest_range(limits: Limits) -> int:
    """Return a size in bytes of log. What a range holds beyond its batch's end is decoded in vain."""
    wanted = min(_LOG_OF_A_MESSAGE_BYTE * limits.message_bytes, _LOG_OF_A_TRANSACTION * limits.transactions)
    return min(max(wanted, _LEAST_RANGE), LARGEST_RANGE)


def _least_bytes(articles: int) -> int:
    """Return how many bytes a batch should hold at least: with many articles more, for each article of a batch costs
    what thousands of its changes do."""
    return min(articles * _BYTES_PER_ARTICLE, _BYTES_FOR_MANY_ARTICLES)


def _failure(error: ReplicationError, cause: Exception | None) -> ReadFailure | None:
    if cause is not None and reaches_the_limit(cause):
        return ReadFailure.TOO_LONG
    return ReadFailure.TOO_MANY_READERS if error.report.code == ALL_IN_USE else None


def _translate(log: PostgresLogRange, error: Exception) -> ReplicationError:
    message = f"{log.where}: {str(error).splitlines()[0]}"
    state = getattr(error, "sqlstate", None)
    # Its SQLSTATE says no more than that some limit is reached; this name is in the message of every language.
    if "temp_file_limit" in message:
        role = quoted_role(log.connection.login)
        remedy = f"decoded messages are kept in a temporary file there: ALTER ROLE {role} SET temp_file_limit = -1"
        return ConfigurationError(message, remedy=remedy, **Codes.POSTGRES.value.numbered(state))
    if is_all_in_use(error):
        message = f"{message}: reading the log needs one while it lasts"
        return TransientError(message, remedy=f"wait for other jobs; or {MORE_SLOTS}", database_code=ALL_IN_USE)
    if state is None or state[:2] in ("08", "40", "53", "57", "58") or state == "55006":
        return TransientError(message, **Codes.POSTGRES.value.numbered(state))
    return ConfigurationError(message, **Codes.POSTGRES.value.numbered(state))


def _refusal(log: PostgresLogRange, problem: RelationMismatch | SchemaStop) -> Refusal:
    if isinstance(problem, RelationMismatch):
        return _mismatch(log, problem)
    return Refusal(problem.error.report)


def _mismatch(log: PostgresLogRange, mismatch: RelationMismatch) -> Refusal:
    remedy = "make the Subscriber's table fit, change the article's columns if need be, and run `tranrepl setup FILE`"
    if mismatch.rows_unknown is not None:
        remedy = "run `tranrepl setup FILE`; then `tranrepl run FILE` reinitializes the article"
    elif mismatch.lacks_old_rows:
        remedy = LACKS_OLD_ROWS_REMEDY.format(mismatch.table)
    error = ConfigurationError(
        f"{log.where}: table {mismatch.table} was altered: {mismatch.problem}. "
        "Everything committed before that is stored; nothing after it is read.",
        remedy=remedy,
        article=str(mismatch.article.source),
    )
    return Refusal(error.report, mismatch.lacks_old_rows, mismatch.rows_unknown)
