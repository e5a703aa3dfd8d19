"""A part of the Publisher's log, read and made into commands: Arrow batches in commit order.

Reading changes nothing at the Publisher, so it may be repeated at will.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tranrepl.errors import ErrorDetails, ErrorReport, ReplicationError
from tranrepl.failpoint import Failpoint, reach
from tranrepl.log_reader.commands_of_changes import CommandsOfChanges
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.command_rows import require_order, xact_seqno_numbers
from tranrepl.model.commands import Operation
from tranrepl.model.schema_change import SchemaChange
from tranrepl.model.script import Script
from tranrepl.model.tracer_token import TracerToken
from tranrepl.publisher.changes import Changes, RefusedChange
from tranrepl.publisher.log_range import LogPart, LogRange, LogReadError, Refusal, RowFilters
from tranrepl.publisher.log_read import LogRead, ReadSchemaChange, ReadScript, ReadToken


def read_commands(log: LogRange, report: Callable[[LogRead], None]) -> Iterator[pa.RecordBatch]:
    """Yield commands (row layout); at the end, pass an account of the read to `report`. Errors are in it, never
    raised."""
    yield from _reported(read_log(log), report)


def read_part(
    log: LogRange, filters: RowFilters | None, part: LogPart, report: Callable[[LogRead], None]
) -> Iterator[pa.RecordBatch]:
    """Yield a part's commands, as `read_commands` does. The part begins and ends with a transaction."""
    yield from _reported(_read(log, filters, iter([part])), report)


def _reported(
    reading: Generator[pa.RecordBatch, None, LogRead], report: Callable[[LogRead], None]
) -> Iterator[pa.RecordBatch]:
    account = LogRead()
    try:
        account = yield from reading
    except LogReadError as stopped:
        account = account.model_copy(update={"error": stopped.error.report, "failure": stopped.failure})
    except ReplicationError as error:
        account = account.model_copy(update={"error": error.report})
    report(account)


def read_log(log: LogRange) -> Generator[pa.RecordBatch, None, LogRead]:
    """Yield commands; return the account of the read. Raises LogReadError, and ReplicationError of a row filter."""
    with log.row_filters() as filters:
        return (yield from _read(log, filters, log.changes()))


def _read(
    log: LogRange, filters: RowFilters | None, parts: Iterator[LogPart]
) -> Generator[pa.RecordBatch, None, LogRead]:
    commands_of, account, tally = CommandsOfChanges(log.positions, filters), _Account(), _Tally()
    while (part := account.next_of(parts)) is not None:
        reach(Failpoint.FETCHED)
        started = time.perf_counter()
        try:
            commands = _commands(commands_of, part)
        except RefusedChange as refused:
            account.refuse(_refusal(log, refused), _commit_before(part.changes, refused.place))
            break
        account.add(part, time.perf_counter() - started)
        tally.add_definitions(part)
        if commands is not None:
            tally.add(commands)
            yield commands
        if part.refusal is not None or part.limit_reached:
            break
    return account.read(log, tally)


def _commands(commands_of: CommandsOfChanges, part: LogPart) -> pa.RecordBatch | None:
    """Return the part's commands. Raises RefusedChange where a change cannot become one."""
    if part.unreadable is not None:
        raise part.unreadable
    return None if part.changes is None else commands_of(part.changes)


def _refusal(log: LogRange, refused: RefusedChange) -> Refusal:
    error = refused.error
    if refused.lacks_old_row:
        article = next(it for it in log.articles if str(it.source) == error.report.article)
        error.add(ErrorDetails(remedy=log.old_rows_remedy(article)))
    return Refusal(error.report, refused.lacks_old_row, refused.rows_unknown)


def _commit_before(changes: Changes | None, place: int) -> bytes | None:
    """Return the transaction before that of `place`; None where that began in an earlier part."""
    if changes is None:
        return None
    index = int(changes.transactions.of(np.array([place]))[0])
    return None if index == 0 else changes.transactions.xact_seqno(index - 1)


@dataclass(slots=True)
class _Account:
    """What was read so far."""

    last: LogPart | None = None
    """The last part in which a transaction ends."""
    last_commit: bytes | None = None
    transactions: int = 0
    message_bytes: int = 0
    complete: bool = True
    refusal: Refusal | None = None
    needs_definitions: bool = False
    redefinition: str | None = None
    ends_in_transaction: bool = False
    read_seconds: float = 0.0
    decode_seconds: float = 0.0
    transform_seconds: float = 0.0

    def next_of(self, parts: Iterator[LogPart]) -> LogPart | None:
        started = time.perf_counter()
        part = next(parts, None)
        decoding = 0.0 if part is None else part.decode_seconds
        self.read_seconds += time.perf_counter() - started - decoding
        if part is not None:
            self.decode_seconds += decoding
            self.transactions += part.transactions
            self.message_bytes += part.message_bytes
        return part

    def add(self, part: LogPart, transform_seconds: float) -> None:
        self.transform_seconds += transform_seconds
        if part.last_commit is not None:
            self.last, self.last_commit = part, part.last_commit
        self.refusal = part.refusal
        self.needs_definitions, self.ends_in_transaction = part.needs_definitions, part.ends_in_transaction
        self.redefinition = part.redefinition
        self.complete = part.refusal is None and not part.limit_reached

    def refuse(self, refusal: Refusal, last_commit: bytes | None) -> None:
        self.complete, self.refusal = False, refusal
        self.last_commit = last_commit or self.last_commit

    def read(self, log: LogRange, tally: _Tally) -> LogRead:
        end = None if self.last is None else self.last.end
        report: ErrorReport | None = None if self.refusal is None else self.refusal.error
        return LogRead(
            transactions=self.transactions,
            message_bytes=self.message_bytes,
            changed_transactions=tally.transactions,
            commands_by_article=tally.by_article,
            first_xact_seqno=tally.first_xact_seqno,
            last_xact_seqno=tally.last_xact_seqno,
            first_commit_time=tally.first_commit_time,
            last_commit_time=tally.last_commit_time,
            last_commit=None if self.last_commit is None else self.last_commit.hex(),
            end=max(log.up_to, end or log.up_to) if self.complete else end,
            complete=self.complete,
            read_seconds=self.read_seconds,
            decode_seconds=self.decode_seconds,
            transform_seconds=self.transform_seconds,
            refusal=report,
            lacks_old_rows=self.refusal is not None and self.refusal.lacks_old_rows,
            rows_unknown=None if self.refusal is None else self.refusal.rows_unknown,
            schema_changes=tuple(tally.schema_changes),
            scripts=tuple(tally.scripts),
            tokens=tuple(tally.tokens),
            definitions=tuple(tally.definitions.values()),
            notices=tuple(tally.notices),
            unsigned=tally.unsigned,
            needs_definitions=self.needs_definitions,
            redefinition=self.redefinition,
            ends_in_transaction=self.ends_in_transaction,
        )


@dataclass(slots=True)
class _Tally:
    """What the account says of the commands."""

    transactions: int = 0
    by_article: dict[int, int] = field(default_factory=dict)
    first_xact_seqno: str | None = None
    last_xact_seqno: str | None = None
    first_commit_time: int | None = None
    last_commit_time: int | None = None
    schema_changes: list[ReadSchemaChange] = field(default_factory=list)
    scripts: list[ReadScript] = field(default_factory=list)
    tokens: list[ReadToken] = field(default_factory=list)
    definitions: dict[int, RegisteredArticle] = field(default_factory=dict)
    """By `article_id`, the latest of each."""
    notices: list[str] = field(default_factory=list)
    unsigned: str | None = None
    _last: tuple[int, int] = (-1, 0)

    def add_definitions(self, part: LogPart) -> None:
        self.definitions |= {it.article_id: it for it in part.definitions}
        self.notices += part.notices
        self.unsigned = self.unsigned or part.unsigned

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
        operations = commands["operation"].to_numpy()
        self._add_schema_changes(commands, np.flatnonzero(operations == Operation.SCHEMA).tolist())
        self._add_scripts(commands, np.flatnonzero(operations == Operation.SCRIPT).tolist())
        self._add_tokens(commands, np.flatnonzero(operations == Operation.TRACER_TOKEN).tolist())

    def _add_schema_changes(self, commands: pa.RecordBatch, places: Sequence[int]) -> None:
        self.schema_changes += [
            ReadSchemaChange(
                xact_seqno=commands["xact_seqno"][at].as_py().hex(),
                command_id=commands["command_id"][at].as_py(),
                change=SchemaChange.model_validate_json(commands["after"][at].as_py()),
            )
            for at in places
        ]

    def _add_scripts(self, commands: pa.RecordBatch, places: Sequence[int]) -> None:
        scripts = [(at, Script.model_validate_json(commands["after"][at].as_py())) for at in places]
        self.scripts += [
            ReadScript(
                xact_seqno=commands["xact_seqno"][at].as_py().hex(),
                command_id=commands["command_id"][at].as_py(),
                name=script.name,
                digest=script.digest,
            )
            for at, script in scripts
        ]

    def _add_tokens(self, commands: pa.RecordBatch, places: Sequence[int]) -> None:
        times = commands["commit_time"].cast(pa.int64())
        self.tokens += [
            ReadToken(
                xact_seqno=commands["xact_seqno"][at].as_py().hex(),
                command_id=commands["command_id"][at].as_py(),
                token=TracerToken.model_validate_json(commands["after"][at].as_py()).token,
                commit_time=times[at].as_py(),
            )
            for at in places
        ]
