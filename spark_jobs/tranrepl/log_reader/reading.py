"""The Publisher's log, read, decoded and made into commands: Arrow batches in commit order.

Reading peeks: it changes nothing at the Publisher, so it may be repeated at will.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tranrepl.connections import Connection
from tranrepl.error_numbers import Codes
from tranrepl.errors import ConfigurationError, DataError, ErrorReport, ReplicationError, TransientError
from tranrepl.failpoint import Failpoint, reach
from tranrepl.log_reader.commands_of_changes import CommandsOfChanges
from tranrepl.log_reader.refusal import LACKS_OLD_ROWS_REMEDY, RefusedChange, refused_net_changes
from tranrepl.log_reader.text_encoding import refuse_unreadable
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.commands import require_order, xact_seqno_numbers
from tranrepl.postgres.session import connect
from tranrepl.publisher.changes import Changes
from tranrepl.publisher.log_read import LogRead
from tranrepl.publisher.postgres.binary_messages import TextForm, TooLongError
from tranrepl.publisher.postgres.free_slots import ALL_IN_USE, MORE_SLOTS, says_all_in_use
from tranrepl.publisher.postgres.log_messages import LARGEST_RANGE, FetchError, ValueForm, log_messages
from tranrepl.publisher.postgres.long_messages import reaches_the_limit
from tranrepl.publisher.postgres.pgoutput import Commit, Limits, PgOutputDecoder
from tranrepl.publisher.postgres.relations import RelationMismatch
from tranrepl.publisher.postgres.row_filters import RowFilters
from tranrepl.publisher.postgres.whole_transactions import HELD_BYTES, HeldTooLongError, whole_transactions

_LEAST_RANGE = 4 * 1024 * 1024
_LOG_OF_A_TRANSACTION = 1024
_LOG_OF_A_MESSAGE_BYTE = 2
_BYTES_PER_ARTICLE = 128 * 1024
_BYTES_FOR_MANY_ARTICLES = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Reading:
    """What to read: from `start`, where the slot stands or later, to the last of `ends`, in whole transactions, within
    the limits. So many sessions at most take turns at the ranges that `ends` make.

    It travels pickled inside the function that Spark runs, password and all: options of a data source would show it
    in Spark's plans and UI.
    """

    connection: Connection
    slot: str
    articles: Sequence[RegisteredArticle]
    start: int
    ends: Sequence[int]
    limits: Limits
    form: ValueForm = ValueForm.TEXT
    """In which the server gives values; what becomes of them is the same."""
    sessions: int = 2
    converted: bool = False
    """The server knows the encoding of its text, and so checks it."""

    @property
    def up_to(self) -> int:
        return self.ends[-1]

    def by_range(self) -> list[Reading]:
        """Return a reading for each range, to be read side by side."""
        return [replace(self, start=first, ends=[last]) for first, last in pairwise([self.start, *self.ends])]

    def commands(self, tell: Callable[[LogRead], None]) -> Iterator[pa.RecordBatch]:
        """Yield commands (row layout); at the end, pass an account of the read to `tell`. Errors are in it, never
        raised."""
        account = LogRead()
        try:
            account = yield from read_log(self)
        except FetchError as error:
            account = _with_error(account, _translate(self, error), too_long=reaches_the_limit(error))
        except TooLongError:
            error_of_text = DataError(f"Publisher {self.connection.database}: a changed row is too long for any buffer")
            account = _with_error(account, error_of_text, too_long=True)
        except ReplicationError as error:
            account = _with_error(account, error)
        tell(account)


def _with_error(account: LogRead, error: ReplicationError, *, too_long: bool = False) -> LogRead:
    return account.model_copy(update={"error": error.report, "too_long": too_long})


def read_log(plan: Reading) -> Generator[pa.RecordBatch, None, LogRead]:
    """Yield commands; return the account of the read."""
    with _filters_at_publisher(plan) as filters:
        return (yield from _read(plan, filters))


@contextmanager
def _filters_at_publisher(plan: Reading) -> Iterator[RowFilters | None]:
    """Open a session at the Publisher for the articles' filters; yield None where there are none."""
    if all(article.filter is None for article in plan.articles):
        yield None
        return
    with connect(plan.connection, "tranrepl row filters", autocommit=True) as session:
        session.execute("SET default_transaction_read_only = on")
        yield RowFilters.of(session, plan.articles)


def _read(plan: Reading, filters: RowFilters | None) -> Generator[pa.RecordBatch, None, LogRead]:
    decoder, commands_of = PgOutputDecoder(plan.articles, plan.limits), CommandsOfChanges(filters)
    # A net change is that of a whole transaction.
    held = {article.source_object_id: article for article in plan.articles if article.deferrable}
    last_commit: Commit | None = None
    read_seconds, decode_seconds, transform_seconds = 0.0, 0.0, 0.0
    complete, mismatch, refusal, tally = True, None, None, _Tally()
    lacks_old_rows = False
    asked = time.perf_counter()
    batches = whole_transactions(_messages(plan), HELD_BYTES, _least_bytes(len(plan.articles)), held)
    while True:
        try:
            batch = next(batches, None)
        except HeldTooLongError:
            complete, refusal = False, refused_net_changes(held.values(), decoder.open_lsn).report
            break
        if batch is None:
            read_seconds += time.perf_counter() - asked
            break
        reach(Failpoint.FETCHED)
        decode_started = time.perf_counter()
        read_seconds += decode_started - asked
        decoded = decoder.decode(batch)
        decoded_at = time.perf_counter()
        try:
            if not plan.converted:
                refuse_unreadable(decoded.changes)
            commands = commands_of(decoded.changes)
        except RefusedChange as refused:
            complete, refusal, lacks_old_rows = False, refused.error.report, refused.lacks_old_row
            last_commit = _commit_before(decoded.changes, refused.place) or last_commit
            break
        decode_seconds += decoded_at - decode_started
        transform_seconds += time.perf_counter() - decoded_at
        last_commit = decoded.last_commit or last_commit
        mismatch = decoded.mismatch
        tally.add(commands)
        yield commands
        if mismatch is not None or decoded.limit_reached:
            complete = False
            break
        asked = time.perf_counter()
    end_lsn = last_commit.end_lsn if last_commit else None
    return LogRead(
        transactions=decoder.transactions,
        message_bytes=decoder.message_bytes,
        changed_transactions=tally.transactions,
        commands_by_article=tally.by_article,
        first_xact_seqno=tally.first_xact_seqno,
        last_xact_seqno=tally.last_xact_seqno,
        first_commit_time=tally.first_commit_time,
        last_commit_time=tally.last_commit_time,
        last_commit_lsn=last_commit.lsn if last_commit else None,
        end_lsn=max(plan.up_to, end_lsn or 0) if complete else end_lsn,
        complete=complete,
        read_seconds=read_seconds,
        decode_seconds=decode_seconds,
        transform_seconds=transform_seconds,
        refusal=_mismatch_error(plan, mismatch) if mismatch else refusal,
        lacks_old_rows=mismatch.lacks_old_rows if mismatch else lacks_old_rows,
    )


def _messages(plan: Reading) -> Iterator[pa.BinaryArray]:
    batches = log_messages(plan.connection, plan.slot, plan.start, plan.ends, plan.form, plan.sessions)
    return batches if plan.form is ValueForm.TEXT else _in_text_form(plan, batches)


def _in_text_form(plan: Reading, batches: Iterator[pa.BinaryArray]) -> Iterator[pa.BinaryArray]:
    with connect(plan.connection, "tranrepl log reader", autocommit=True) as session:
        # As where the log is read: names in values come qualified.
        session.execute("SET search_path = pg_catalog")
        yield from TextForm(session)(batches)


def largest_range(limits: Limits) -> int:
    """Return how many bytes of log a range may hold: what lies beyond its batch's end is decoded in vain. What a range
    holds beyond its batch's end is decoded in vain."""
    wanted = min(_LOG_OF_A_MESSAGE_BYTE * limits.message_bytes, _LOG_OF_A_TRANSACTION * limits.transactions)
    return min(max(wanted, _LEAST_RANGE), LARGEST_RANGE)


def _least_bytes(articles: int) -> int:
    """Return how many bytes a batch should hold at least: with many articles more, for each article of a batch costs
    what thousands of its changes do."""
    return min(articles * _BYTES_PER_ARTICLE, _BYTES_FOR_MANY_ARTICLES)


def _commit_before(changes: Changes, place: int) -> Commit | None:
    """Return the commit before the transaction of `place`; None where that began in an earlier batch."""
    transactions = changes.transactions
    index = int(transactions.of(np.array([place]))[0])
    if index == 0 or transactions.lsn[index - 1] == 0:
        return None
    lsn = int(transactions.lsn[index - 1])
    return Commit(lsn, lsn, int(transactions.time[index - 1]))


@dataclass(slots=True)
class _Tally:
    """What the account says of the commands."""

    transactions: int = 0
    by_article: dict[int, int] = field(default_factory=dict)
    first_xact_seqno: str | None = None
    last_xact_seqno: str | None = None
    first_commit_time: int | None = None
    last_commit_time: int | None = None
    _last: tuple[int, int] = (-1, 0)

    def add(self, commands: pa.RecordBatch) -> None:
        if len(commands) == 0:
            return
        seqnos = commands["xact_seqno"]
        # What came twice or out of order is found before the log is given up.
        numbers = xact_seqno_numbers(seqnos)
        self._last = require_order(numbers, commands["command_id"].to_numpy(), self._last)
        self.first_xact_seqno = self.first_xact_seqno or seqnos[0].as_py().hex()
        self.last_xact_seqno = seqnos[-1].as_py().hex()
        times = pc.min_max(commands["commit_time"].cast(pa.int64()))
        earliest, latest = times["min"].as_py(), times["max"].as_py()
        self.first_commit_time = earliest if self.first_commit_time is None else min(earliest, self.first_commit_time)
        self.last_commit_time = latest if self.last_commit_time is None else max(latest, self.last_commit_time)
        self.transactions += pc.sum(pc.equal(commands["command_id"], 1)).as_py()
        for count in pc.value_counts(commands["article_id"]).to_pylist():
            article = count["values"]
            self.by_article[article] = self.by_article.get(article, 0) + count["counts"]


def _translate(plan: Reading, error: Exception) -> ReplicationError:
    message = f"Publisher {plan.connection.database}: {str(error).splitlines()[0]}"
    state = getattr(error, "sqlstate", None)
    # Its SQLSTATE says no more than that some limit is reached; this name is in the message of every language.
    if "temp_file_limit" in message:
        remedy = f'its messages wait in a file there: ALTER ROLE "{plan.connection.login}" SET temp_file_limit = -1'
        return ConfigurationError(message, remedy=remedy, **Codes.POSTGRES.value.numbered(state))
    if says_all_in_use(error):
        message = f"{message}: reading the log takes one for its length"
        return TransientError(message, remedy=f"wait for other jobs; or {MORE_SLOTS}", database_code=ALL_IN_USE)
    if state is None or state[:2] in ("08", "40", "53", "57", "58") or state == "55006":
        return TransientError(message, **Codes.POSTGRES.value.numbered(state))
    return ConfigurationError(message, **Codes.POSTGRES.value.numbered(state))


def _mismatch_error(plan: Reading, mismatch: RelationMismatch) -> ErrorReport:
    return ConfigurationError(
        f"Publisher {plan.connection.database}: table {mismatch.article.source} was altered: {mismatch.problem}. "
        "Everything committed before that is stored; nothing after it is read.",
        remedy=LACKS_OLD_ROWS_REMEDY.format(mismatch.article.source)
        if mismatch.lacks_old_rows
        else "make the Subscriber's table fit, change the article's columns if need be, and run `tranrepl setup FILE`",
        article=str(mismatch.article.source),
    ).report
