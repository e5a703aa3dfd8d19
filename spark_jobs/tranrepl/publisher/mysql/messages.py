"""Messages of ours in a binary log: rows of the table `tranrepl.message` are taken out of the changes, and read as
tracer tokens, scripts and definitions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from pydantic import BaseModel

from tranrepl.model.pending_definitions import DefinitionMessage
from tranrepl.model.script import Script
from tranrepl.model.tracer_token import TracerToken
from tranrepl.publisher.changes import Changes, ChangeSet, PlacedMessage, PlacedSchemaChange, Transactions
from tranrepl.publisher.log_range import SchemaReading
from tranrepl.publisher.messages import (
    Message,
    MessageKind,
    MessageReader,
    ScriptMessages,
    TokenMessages,
    due_definitions,
)
from tranrepl.publisher.mysql.message_table import PUBLICATION

_SECOND = 1_000_000
_MODELS: Mapping[MessageKind, type[BaseModel]] = {
    MessageKind.DEFINITION: DefinitionMessage,
    MessageKind.SCRIPT: Script,
    MessageKind.TRACER: TracerToken,
}


@dataclass(frozen=True, slots=True)
class _Row:
    place: int
    publication: str
    kind: str
    written: int
    content: bytes


@dataclass(slots=True)
class FoundInRows:
    """What the messages' rows say: the changes without them, with the commands that they become."""

    changes: Changes
    notices: list[str] = field(default_factory=list)
    has_others: bool = False
    """Rows are among them that are none of ours."""
    redefinition: str | None = None
    """The digest of setup's message, in the transaction that the changes end before."""


@dataclass(frozen=True)
class MessageReading:
    """How the messages of one publication are read: `publication` is its name in the table, `name` the one that
    messages say."""

    publication: str
    name: str
    schema: SchemaReading | None = None
    """None: definitions are ignored."""
    scripts: Sequence[str] = ()
    """Digests of scripts that may be in the log."""

    def readers(self) -> tuple[MessageReader, ...]:
        """Return the readers of messages that become commands, for one reading of the log."""
        return ScriptMessages(self.name, self.scripts), TokenMessages(self.name)

    def read(self, changes: Changes, rows: Sequence[ChangeSet], readers: Sequence[MessageReader]) -> FoundInRows:
        """Return what the rows, of whole transactions of the changes, say."""
        found = FoundInRows(changes)
        if not rows:
            return found
        ours, written = [], {}
        for it in sorted(_rows_of(changes, rows), key=lambda row: row.place):
            if it.publication != self.publication or it.kind == PUBLICATION:
                continue
            message = _message(it)
            if message is None:
                found.has_others = True
                continue
            ours.append(message)
            written[it.place] = it.written
        end = self._cut(found, ours)
        ours = [it for it in ours if it.index < end]
        read = [it.read(ours) for it in readers]
        placed = [PlacedMessage(it.index, it.operation, it.text) for of in read for it in of.messages]
        placed.sort(key=lambda it: it.place)
        found.notices += [notice for of in read for notice in of.notices]
        times = _times(found.changes.transactions, {it.place: written[it.place] for it in placed})
        found.changes = replace(found.changes, transactions=times, messages=placed)
        return found

    def _cut(self, found: FoundInRows, messages: Sequence[Message]) -> int:
        """Let the changes end before the transaction of setup's message; return the place where they end."""
        for it in messages:
            if it.kind is not MessageKind.DEFINITION or self.schema is None:
                continue
            found.redefinition = due_definitions(it.text, self.name, self.schema)
            if found.redefinition is not None:
                of = found.changes.transactions
                end = int(of.begins[int(of.of(np.array([it.index]))[0]) - 1])
                found.changes = _before(found.changes, end)
                return end
        return found.changes.buffer.length


def begun_with(changes: Changes, reading: SchemaReading | None) -> Changes:
    """Return changes whose first transaction begins with the schema changes that the reading begins with."""
    first = () if reading is None else reading.begins_with
    if not first:
        return changes
    # They come between the beginning of the first transaction and all the rest.
    count, begins = len(first), changes.transactions.begins
    start = int(begins[0])
    return replace(
        changes,
        sets=[replace(it, places=it.places + count) for it in changes.sets],
        messages=[replace(it, place=it.place + count) for it in changes.messages],
        transactions=replace(changes.transactions, begins=np.concatenate([begins[:1], begins[1:] + count])),
        schema_changes=[
            *(PlacedSchemaChange(start + at, it) for at, it in enumerate(first)),
            *(replace(it, place=it.place + count) for it in changes.schema_changes),
        ],
    )


def _rows_of(changes: Changes, sets: Sequence[ChangeSet]) -> Iterator[_Row]:
    data = changes.buffer.bytes
    for it in sets:
        if it.after is None:
            continue
        for place, starts, lengths in zip(it.places.tolist(), it.after.starts, it.after.lengths, strict=True):
            cells = zip(starts.tolist(), lengths.tolist(), strict=True)
            _, publication, kind, written, content = (data[at : at + max(length, 0)].tobytes() for at, length in cells)
            yield _Row(place, publication.decode(), kind.decode(), int(written or 0), content)


def _message(row: _Row) -> Message | None:
    """Return the row as a message; None where it is none that this version writes."""
    try:
        kind = MessageKind(row.kind)
        _MODELS[kind].model_validate_json(row.content)
    except (KeyError, ValueError):
        return None
    return Message(row.place, kind, row.content)


def _times(transactions: Transactions, written: Mapping[int, int]) -> Transactions:
    """Return the transactions with the times of messages, to the microsecond: a log has whole seconds."""
    if not written:
        return transactions
    of, exact = transactions.of(np.array([*written])), np.array([*written.values()], dtype=np.int64)
    times = transactions.time.copy()
    times[of] = np.clip(exact, times[of], times[of] + _SECOND - 1)
    return replace(transactions, time=times)


def _before(changes: Changes, end: int) -> Changes:
    """Return what is before a place at which a transaction begins."""
    of = changes.transactions
    count = int(np.searchsorted(of.begins, end))
    kept = Transactions(of.begins[:count], of.seqno[: count + 1], of.time[: count + 1], of.whole[: count + 1])
    sets = [it.rows(it.places < end) for it in changes.sets]
    return replace(changes, sets=[it for it in sets if len(it.places)], transactions=kept)
