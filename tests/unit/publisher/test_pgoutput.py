"""The vectorised decoder against one that reads message by message."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from support import pgoutput_reference as pgoutput
from support.example_counts import examples
from support.pgoutput_reference import UNCHANGED, Cell, Columns, ReferenceDecoder, Row
from support.registered import unused_fields
from tranrepl.model.article import PublishedColumn, RegisteredArticle
from tranrepl.model.bitmask import bitmask
from tranrepl.model.commands import Method, Operation, Propagation
from tranrepl.model.names import TableName
from tranrepl.publisher.changes import Buffer, Cells, Changes
from tranrepl.publisher.log_range import Limits
from tranrepl.publisher.postgres.partition_changes import PublishedRelations
from tranrepl.publisher.postgres.pgoutput import DecodedBatch, PgOutputDecoder
from tranrepl.publisher.postgres.relations import RelationMismatch

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NO_LIMITS = Limits(transactions=1_000_000, message_bytes=1_000_000_000)


@dataclass(frozen=True)
class Table:
    """A table as the log shows it; an article for those that are published."""

    object_id: int
    columns: Columns
    article: RegisteredArticle | None = None

    @property
    def key(self) -> list[str]:
        if self.article is None:
            return []
        return [column.name for column in self.article.columns if column.key_ordinal is not None]


@dataclass(frozen=True)
class Log:
    articles: list[RegisteredArticle]
    messages: list[bytes]


def _article(number: int, columns: Columns, key: Sequence[int]) -> RegisteredArticle:
    statement = Propagation(Method.STATEMENT)
    return RegisteredArticle(
        article_id=100 + number,
        source=TableName("public", f"t{number}"),
        destination=TableName("public", f"t{number}"),
        source_object_id=4_000_000_000 + number,
        columns=tuple(
            PublishedColumn(
                name=name,
                ordinal=at + 1,
                type_oid=type_oid,
                type_modifier=modifier,
                type_name="text",
                key_ordinal=key.index(at) + 1 if at in key else None,
            )
            for at, (name, type_oid, modifier) in enumerate(columns)
        ),
        ins_cmd=statement,
        upd_cmd=statement,
        del_cmd=statement,
        **unused_fields(TableName("public", f"t{number}")),
    )


# Values: around 12 bytes Arrow's string views, on which the decoder rests, change their form.
_lengths = st.one_of(st.sampled_from([0, 1, 4, 11, 12, 13, 16]), st.integers(0, 40))
_texts = _lengths.map(lambda length: "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"[:length])
_cells: st.SearchStrategy[Cell] = st.one_of(_texts, st.none(), st.text(max_size=6))
_key_cells: st.SearchStrategy[Cell] = _texts


@st.composite
def _published_tables(draw: st.DrawFn, number: int) -> Table:
    count = draw(st.integers(1, 10))
    columns = [(f"ü{at}" if at == 3 else f"c{at}", 25 + at, -1 if at % 2 else 70_000) for at in range(count)]
    key = draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=3, unique=True))
    article = _article(number, columns, key)
    return Table(article.source_object_id, draw(_announced(columns)), article)


@st.composite
def _announced(draw: st.DrawFn, columns: Columns) -> Columns:
    """Return the columns in any order, among others that are not published."""
    more = [(f"unpublished{at}", 16, -1) for at in range(draw(st.integers(0, 2)))]
    return draw(st.permutations([*columns, *more]))


@st.composite
def _new_cell(draw: st.DrawFn, old: Cell) -> Cell:
    """Return what becomes of a value: often nothing, sometimes one byte of it."""
    if draw(st.booleans()) or not isinstance(old, str):
        return old if draw(st.booleans()) else draw(_cells)
    if old and draw(st.booleans()):
        at = draw(st.integers(0, len(old) - 1))
        return f"{old[:at]}_{old[at + 1 :]}"
    return draw(_cells)


@st.composite
def _rows(draw: st.DrawFn, table: Table) -> Row:
    return [draw(_key_cells if name in table.key else _cells) for name, *_ in table.columns]


@st.composite
def _updates(draw: st.DrawFn, table: Table) -> bytes:
    old = draw(_rows(table))
    new = [draw(_new_cell(cell)) for cell in old]
    for at, (name, *_) in enumerate(table.columns):
        if name in table.key and new[at] is None:
            new[at] = old[at]
    kind = draw(st.sampled_from(["O", "K", ""]))
    for at, (name, *_) in enumerate(table.columns):
        # Where the log leaves a key value out, it has sent the old key.
        if new[at] == old[at] and (kind or name not in table.key) and draw(st.booleans()):
            new[at] = UNCHANGED
    if kind == "K":
        return pgoutput.update(table.object_id, kind, _only_key(table, old), new)
    return pgoutput.update(table.object_id, kind, old if kind else None, new)


def _only_key(table: Table, row: Row) -> Row:
    return [cell if name in table.key else None for (name, *_), cell in zip(table.columns, row, strict=True)]


@st.composite
def _deletes(draw: st.DrawFn, table: Table) -> bytes:
    old = draw(_rows(table))
    if draw(st.booleans()):
        return pgoutput.delete(table.object_id, "K", _only_key(table, old))
    return pgoutput.delete(table.object_id, "O", old)


@st.composite
def _changes(draw: st.DrawFn, tables: list[Table]) -> bytes:
    table = draw(st.sampled_from(tables))
    match draw(st.integers(0, 9)):
        case 0 | 1 | 2:
            return pgoutput.insert(table.object_id, draw(_rows(table)))
        case 3 | 4 | 5 | 6:
            return draw(_updates(table))
        case 7 | 8:
            return draw(_deletes(table))
        case _:
            chosen = draw(st.lists(st.sampled_from(tables), min_size=1, unique_by=lambda it: it.object_id))
            return pgoutput.truncate([it.object_id for it in chosen])


def _announcement(table: Table) -> bytes:
    return pgoutput.relation(table.object_id, "public", f"t{table.object_id}", table.columns)


@st.composite
def _logs(draw: st.DrawFn) -> Log:
    published = [draw(_published_tables(number)) for number in range(draw(st.integers(1, 3)))]
    tables = [*published, Table(50, [("a", 25, -1), ("b", 25, -1)])]
    messages: list[bytes] = []
    announced: set[int] = set()
    for number in range(draw(st.integers(0, 5))):
        lsn, time = 1000 * (number + 1) + (1 << 33), draw(st.integers(-(10**15), 10**15))
        messages.append(pgoutput.begin(lsn, time))
        for _ in range(draw(st.integers(0, 5))):
            at = draw(st.integers(0, len(published)))
            if at < len(published) and draw(st.integers(0, 3)) == 0:
                article = published[at].article
                assert article is not None
                columns = [(column.name, column.type_oid, column.type_modifier) for column in article.columns]
                published[at] = tables[at] = Table(published[at].object_id, draw(_announced(columns)), article)
                announced.discard(at)
            missing = [it for it in range(len(tables)) if it not in announced]
            messages += [_announcement(tables[it]) for it in missing]
            announced.update(missing)
            if draw(st.integers(0, 9)) == 0:
                messages.append(draw(st.sampled_from([pgoutput.origin("o"), pgoutput.data_type(9, "s", "mood")])))
            messages.append(draw(_changes(tables)))
        messages.append(pgoutput.commit(lsn, lsn + 48, time))
    return Log([it.article for it in published if it.article is not None], messages)


def _arrays(messages: Sequence[bytes], cuts: Sequence[int]) -> Iterator[pa.BinaryArray]:
    """Yield the messages in batches that are slices of larger arrays."""
    whole = pa.array([b"before", *messages, b"after"], pa.binary())
    bounds = [0, *sorted(min(cut, len(messages)) for cut in cuts), len(messages)]
    for start, end in pairwise(bounds):
        yield whole.slice(start + 1, end - start)


@dataclass
class _Read:
    """The changes read so far, as the reference writes them: unread values as None."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    ordinals: Counter[int] = field(default_factory=Counter)

    def add(self, changes: Changes) -> None:
        placed = [(int(place), it, at) for it in changes.sets for at, place in enumerate(it.places)]
        transactions = changes.transactions
        for place, it, at in sorted(placed, key=lambda one: one[0]):
            transaction = int(transactions.of(np.array([place]))[0])
            lsn = int(transactions.seqno[transaction])
            self.ordinals[lsn] += 1
            changed = [] if it.changed is None else (np.flatnonzero(it.changed[at]) + 1).tolist()
            self.rows.append(
                {
                    "xact_seqno": lsn.to_bytes(8, "big"),
                    "command_id": self.ordinals[lsn],
                    "commit_time": EPOCH + timedelta(microseconds=int(transactions.time[transaction])),
                    "article_id": it.article.article_id,
                    "operation": int(it.operation),
                    "before": _texts_of(changes.buffer, it.before, at),
                    "after": _texts_of(changes.buffer, it.after, at),
                    "changed": None if it.changed is None else bitmask(changed, len(it.article.columns)),
                }
            )


def _texts_of(buffer: Buffer, image: Cells | None, at: int) -> list[str | None] | None:
    if image is None:
        return None
    cells = zip(image.starts[at].tolist(), image.lengths[at].tolist(), strict=True)
    return [buffer.bytes[start : start + length].tobytes().decode() if length >= 0 else None for start, length in cells]


def _decoded(decoder: PgOutputDecoder, arrays: Iterator[pa.BinaryArray]) -> tuple[list[dict[str, Any]], DecodedBatch]:
    """Return all changes, and the last batch with the last commit of all."""
    read = _Read()
    last = decoder.decode(pa.array([], pa.binary()))
    commit = None
    for array in arrays:
        last = decoder.decode(array)
        read.add(last.changes)
        commit = last.last_commit or commit
        if last.limit_reached or last.problem is not None:
            break
    return read.rows, DecodedBatch(last.changes, commit, 0, last.problem, last.limit_reached)


def _hold_together(log: Log, cuts: Sequence[int], limits: Limits) -> ReferenceDecoder:
    reference = ReferenceDecoder(log.articles, limits)
    for message in log.messages:
        reference.read(message)
    decoder = PgOutputDecoder(PublishedRelations(log.articles), limits)
    changes, last = _decoded(decoder, _arrays(log.messages, cuts))
    assert changes == reference.changes
    assert (decoder.transactions, decoder.message_bytes) == (reference.transactions, reference.message_bytes)
    assert (last.last_commit.lsn if last.last_commit else None) == reference.last_commit_lsn
    assert last.limit_reached == (reference.stopped == "limit")
    assert (last.problem is not None) == (reference.stopped == "mismatch")
    return reference


_PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
_cuts = st.lists(st.integers(0, 60), max_size=6)


@settings(_PATIENT, max_examples=examples(250))
@given(_logs(), _cuts)
def test_changes_are_those_of_the_message_by_message_decoder(log: Log, cuts: list[int]) -> None:
    _hold_together(log, cuts, NO_LIMITS)


@settings(_PATIENT, max_examples=examples(120))
@given(_logs(), _cuts, st.integers(1, 6), st.integers(1, 3000), st.none() | st.integers(0, 6))
def test_a_batch_ends_with_the_transaction_that_reaches_a_limit(
    log: Log, cuts: list[int], transactions: int, message_bytes: int, last: int | None
) -> None:
    bound = (last * 1000 + (1 << 33)).to_bytes(8, "big") if last is not None else None
    _hold_together(log, cuts, Limits(transactions, message_bytes, bound))


@settings(_PATIENT, max_examples=examples(100))
@given(_logs(), _cuts, st.data())
def test_reading_stops_where_an_altered_table_is_announced(log: Log, cuts: list[int], data: st.DataObject) -> None:
    article = data.draw(st.sampled_from(log.articles))
    columns = [(column.name, column.type_oid, column.type_modifier) for column in article.columns]
    victim = data.draw(st.integers(0, len(columns) - 1))
    name, type_oid, modifier = columns[victim]
    altered = data.draw(st.sampled_from([None, (name, 9999, modifier), (name, type_oid, 5), ("renamed", type_oid, -1)]))
    columns[victim : victim + 1] = [altered] if altered else []
    at = data.draw(st.integers(0, len(log.messages)))
    message = pgoutput.relation(article.source_object_id, "public", "t", columns)
    reference = _hold_together(Log(log.articles, [*log.messages[:at], message, *log.messages[at:]]), cuts, NO_LIMITS)
    assert reference.stopped == "mismatch"


# Cases by hand: what the reference itself is held to.

_COLUMNS = [("id", 23, -1), ("name", 25, -1), ("note", 1043, 14)]
_ARTICLE = _article(1, _COLUMNS, [0])
_ID = _ARTICLE.source_object_id


def _changes_of(*messages: bytes, columns: Columns = _COLUMNS) -> list[tuple[object, ...]]:
    announced = [pgoutput.begin(16, 1), pgoutput.relation(_ID, "public", "t1", columns), *messages]
    log = Log([_ARTICLE], [*announced, pgoutput.commit(16, 24, 1)])
    _hold_together(log, [], NO_LIMITS)
    changes, _ = _decoded(PgOutputDecoder(PublishedRelations(log.articles), NO_LIMITS), _arrays(log.messages, []))
    return [
        (it["command_id"], it["operation"], it["before"], it["after"], it["changed"] and it["changed"].hex())
        for it in changes
    ]


@pytest.mark.parametrize(
    ("message", "change"),
    [
        (pgoutput.insert(_ID, ["1", None, ""]), (Operation.INSERT, None, ["1", None, ""], None)),
        (pgoutput.delete(_ID, "K", ["1", None, None]), (Operation.DELETE, ["1", None, None], None, None)),
        (pgoutput.truncate([77, _ID]), (Operation.TRUNCATE, None, None, None)),
        (
            pgoutput.update(_ID, "O", ["1", "a", "b"], ["1", None, UNCHANGED]),
            (Operation.UPDATE, ["1", "a", "b"], ["1", None, "b"], "02"),
        ),
        (
            pgoutput.update(_ID, "", None, ["1", "a", UNCHANGED]),
            (Operation.UPDATE, ["1", None, None], ["1", "a", None], "02"),
        ),
        (
            pgoutput.update(_ID, "K", ["1", None, None], ["2", None, "b"]),
            (Operation.UPDATE, ["1", None, None], ["2", None, "b"], "07"),
        ),
    ],
    ids=["insert", "delete", "truncate", "update with old row", "update without", "update with old key"],
)
def test_a_message_becomes_its_change(message: bytes, change: tuple[object, ...]) -> None:
    assert _changes_of(message) == [(1, *change)]


def test_an_update_that_changed_no_published_column_is_no_change() -> None:
    rows: tuple[Row, Row] = (["1", "a", "b", "x"], ["1", "a", UNCHANGED, "y"])
    update = pgoutput.update(_ID, "O", *rows)
    insert = pgoutput.insert(_ID, ["2", None, None, None])
    assert [it[:2] for it in _changes_of(update, insert, columns=[*_COLUMNS, ("other", 25, -1)])] == [(1, 1)]


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        (_COLUMNS[:2], "column note was dropped or renamed"),
        ([*_COLUMNS[:2], ("note", 25, -1)], "column note is no longer text"),
        ([*_COLUMNS[:2], ("note", 1043, 34)], "column note is no longer text"),
    ],
)
def test_a_mismatch_names_the_column(columns: Columns, problem: str) -> None:
    decoder = PgOutputDecoder(PublishedRelations([_ARTICLE]), NO_LIMITS)
    decoded = decoder.decode(pa.array([pgoutput.relation(_ID, "public", "t1", columns)], pa.binary()))
    assert isinstance(decoded.problem, RelationMismatch)
    assert (decoded.problem.problem, decoded.problem.article) == (problem, _ARTICLE)


def test_a_type_that_the_column_had_before_is_still_read() -> None:
    columns = list(_ARTICLE.columns)
    columns[2] = columns[2].model_copy(update={"type_oid": 25, "type_modifier": -1, "earlier_types": ((1043, 14),)})
    article = _ARTICLE.model_copy(update={"columns": tuple(columns)})
    decoder = PgOutputDecoder(PublishedRelations([article]), NO_LIMITS)
    assert decoder.decode(pa.array([pgoutput.relation(_ID, "public", "t1", _COLUMNS)], pa.binary())).problem is None


def test_a_tuple_of_another_width_than_its_relation_is_refused() -> None:
    messages = [pgoutput.relation(_ID, "public", "t1", _COLUMNS), pgoutput.insert(_ID, ["1", "2"])]
    with pytest.raises(ValueError, match="another number of columns"):
        PgOutputDecoder(PublishedRelations([_ARTICLE]), NO_LIMITS).decode(pa.array(messages, pa.binary()))
