"""A part of the Publisher's log, read and made into commands: Arrow batches in commit order.

Reading changes nothing at the Publisher, so it may be repeated at will.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tranrepl.errors import ErrorDetails, ReplicationError
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

_MESSAGES = (Operation.SCHEMA, Operation.SCRIPT, Operation.TRACER_TOKEN)
"""Operations that are of no row."""


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
    commands_of, account = CommandsOfChanges(log.positions, filters), _Account()
    while (part := account.next_of(parts)) is not None:
        reach(Failpoint.FETCHED)
        started = time.perf_counter()
        try:
            commands = _commands(commands_of, part)
        except RefusedChange as refused:
            account.refuse(_refusal(log, refused), _commit_before(part.changes, refused.place))
            break
        account.add(part, time.perf_counter() - started)
        if commands is not None:
            account.add_commands(commands)
            yield commands
        if part.refusal is not None or part.limit_reached:
            break
    return account.read(log)


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

    latest: LogPart | None = None
    """The last part of which all commands can be made."""
    last: LogPart | None = None
    """The last part in which a transaction ends."""
    last_commit: bytes | None = None
    transactions: int = 0
    message_bytes: int = 0
    refusal: Refusal | None = None
    read_seconds: float = 0.0
    decode_seconds: float = 0.0
    transform_seconds: float = 0.0
    changed_transactions: int = 0
    commands_by_article: dict[int, int] = field(default_factory=dict)
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
    _last_command: tuple[int, int] = (-1, 0)

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
        self.latest, self.refusal = part, part.refusal
        self.definitions |= {it.article_id: it for it in part.definitions}
        self.notices += part.notices
        self.unsigned = self.unsigned or part.unsigned

    def refuse(self, refusal: Refusal, last_commit: bytes | None) -> None:
        self.refusal = refusal
        self.last_commit = last_commit or self.last_commit

    def add_commands(self, commands: pa.RecordBatch) -> None:
        if len(commands) == 0:
            return
        seqnos = commands["xact_seqno"]
        # What came twice or out of order is found before the log is given up.
        numbers = xact_seqno_numbers(seqnos)
        self._last_command = require_order(numbers, commands["command_id"].to_numpy(), self._last_command)
        self.first_xact_seqno = self.first_xact_seqno or seqnos[0].as_py().hex()
        self.last_xact_seqno = seqnos[-1].as_py().hex()
        commit_times = commands["commit_time"].cast(pa.int64())
        times = pc.min_max(commit_times)
        earliest, latest = times["min"].as_py(), times["max"].as_py()
        self.first_commit_time = earliest if self.first_commit_time is None else min(earliest, self.first_commit_time)
        self.last_commit_time = latest if self.last_commit_time is None else max(latest, self.last_commit_time)
        self.changed_transactions += pc.sum(pc.equal(commands["command_id"], 1)).as_py()
        for count in pc.value_counts(commands["article_id"]).to_pylist():
            article = count["values"]
            self.commands_by_article[article] = self.commands_by_article.get(article, 0) + count["counts"]
        for at in np.flatnonzero(np.isin(commands["operation"].to_numpy(), _MESSAGES)).tolist():
            self._add_message(commands, at, commit_times[at].as_py())

    def _add_message(self, commands: pa.RecordBatch, at: int, commit_time: int) -> None:
        seqno, command_id = commands["xact_seqno"][at].as_py().hex(), commands["command_id"][at].as_py()
        text = commands["after"][at].as_py()
        match commands["operation"][at].as_py():
            case Operation.SCHEMA:
                change = SchemaChange.model_validate_json(text)
                self.schema_changes.append(ReadSchemaChange(xact_seqno=seqno, command_id=command_id, change=change))
            case Operation.SCRIPT:
                script = Script.model_validate_json(text)
                self.scripts.append(
                    ReadScript(xact_seqno=seqno, command_id=command_id, name=script.name, digest=script.digest)
                )
            case Operation.TRACER_TOKEN:
                token = TracerToken.model_validate_json(text).token
                self.tokens.append(
                    ReadToken(xact_seqno=seqno, command_id=command_id, token=token, commit_time=commit_time)
                )

    def read(self, log: LogRange) -> LogRead:
        end = None if self.last is None else self.last.end
        latest, refusal = self.latest, self.refusal
        complete = refusal is None and not (latest is not None and latest.limit_reached)
        return LogRead(
            transactions=self.transactions,
            message_bytes=self.message_bytes,
            changed_transactions=self.changed_transactions,
            commands_by_article=self.commands_by_article,
            first_xact_seqno=self.first_xact_seqno,
            last_xact_seqno=self.last_xact_seqno,
            first_commit_time=self.first_commit_time,
            last_commit_time=self.last_commit_time,
            last_commit=None if self.last_commit is None else self.last_commit.hex(),
            end=max(log.up_to, end or log.up_to) if complete else end,
            complete=complete,
            read_seconds=self.read_seconds,
            decode_seconds=self.decode_seconds,
            transform_seconds=self.transform_seconds,
            refusal=None if refusal is None else refusal.error,
            lacks_old_rows=refusal is not None and refusal.lacks_old_rows,
            rows_unknown=None if refusal is None else refusal.rows_unknown,
            schema_changes=tuple(self.schema_changes),
            scripts=tuple(self.scripts),
            tokens=tuple(self.tokens),
            definitions=tuple(self.definitions.values()),
            notices=tuple(self.notices),
            unsigned=self.unsigned,
            needs_definitions=latest is not None and latest.needs_definitions,
            redefinition=None if latest is None else latest.redefinition,
            ends_in_transaction=latest is not None and latest.ends_in_transaction,
        )
