"""Recorded streams of both families decode to the groups that they were recorded with."""

from __future__ import annotations

import base64
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tranrepl.errors import DataError
from tranrepl.model.article import PublishedColumn, RegisteredArticle
from tranrepl.model.names import TableName
from tranrepl.model.position import SEQNOS_PER_PLACE
from tranrepl.publisher.changes import Buffer, Cells, Changes, RefusedChange
from tranrepl.publisher.mysql.charsets import Charsets
from tranrepl.publisher.mysql.decoding import Decoder
from tranrepl.publisher.mysql.events import (
    COMPRESSED,
    HEADER_BYTES,
    OFFSET_BITS,
    EventBlock,
    EventType,
    LogCursor,
    inflated,
)
from tranrepl.publisher.mysql.groups import Groups, PreparedTransactions, find_groups
from tranrepl.publisher.mysql.row_places import LogBytes
from tranrepl.publisher.mysql.table_maps import Flavor, read_table_map

_HERE = Path(__file__).parent
_LATIN1 = [bytes([it]).decode("cp1252", "replace") for it in range(256)]
_COLLATIONS = {8: "latin1", 13: "sjis", 35: "ucs2", 47: "latin1", 48: "latin1", 63: "binary"}
_CHARSETS = Charsets({**dict.fromkeys(range(3000), "utf8mb4"), **_COLLATIONS}, {"latin1": _LATIN1})
_MYSQL_VALUES = (_HERE / "mysql_values.json").read_text()
STREAMS = ("mariadb_stream.json", "mysql_stream.json")
Row = dict[str, str | None] | None
Change = tuple[str, str, Row, Row]


def stream_of(file: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((_HERE / file).read_text())
    return found


_PACKET = b"12345"
"""What is before an event in a server's stream."""


def block_of(stream: dict[str, Any]) -> EventBlock:
    return _block([bytes.fromhex(it) for it in stream["events_hex"]])


def _block(events: list[bytes]) -> EventBlock:
    starts = np.cumsum([0, *(len(it) + len(_PACKET) for it in events)])[:-1] + len(_PACKET)
    data = np.frombuffer(b"".join(_PACKET + it for it in events), dtype=np.uint8)
    return LogCursor(0, 0).block(data, starts)


@pytest.mark.parametrize("file", STREAMS)
def test_an_event_that_is_damaged_anywhere_is_an_error_and_no_other_row(file: str) -> None:
    events = [bytes.fromhex(it) for it in stream_of(file)["events_hex"]]
    for at, event in enumerate(events):
        for place in (6, len(event) - 1):
            damaged = event[:place] + bytes([event[place] ^ 0x10]) + event[place + 1 :]
            with pytest.raises(DataError, match=r"file 0000\d\d,? .*offset \d+.* is damaged"):
                _block([*events[:at], damaged, *events[at + 1 :]])


@pytest.mark.parametrize("kind", [250, next(it["event_type"] for it in json.loads(_MYSQL_VALUES) if "refuse" in it)])
@pytest.mark.parametrize("file", STREAMS)
def test_an_event_of_a_kind_that_is_not_known_is_an_error(file: str, kind: int) -> None:
    """One that is known and refused has parts of JSON documents."""
    events = [bytes.fromhex(it) for it in stream_of(file)["events_hex"]]
    events[-2] = events[-2][:4] + bytes([kind]) + events[-2][5:]
    with pytest.raises(DataError, match=f"an event of type {kind}, which cannot be read"):
        _block(events)


def _articles(block: EventBlock) -> dict[TableName, RegisteredArticle]:
    """Return an article of all columns for each table that the block describes."""
    found = {}
    for at in np.flatnonzero(block.types == EventType.TABLE_MAP).tolist():
        table = read_table_map(block.event(at)[HEADER_BYTES + 6 :], block.flavor)
        found[table.name] = article(table.name, [it.name for it in table.columns])
    return found


def article(table: TableName, columns: list[str]) -> RegisteredArticle:
    fields: list[dict[str, Any]] = [{"name": it, "ordinal": at, "type_name": ""} for at, it in enumerate(columns, 1)]
    published = tuple(PublishedColumn.model_construct(**it) for it in fields)
    registered: dict[str, Any] = {"article_id": 1, "source": table, "columns": published}
    return RegisteredArticle.model_construct(**registered)


def _place(text: str) -> int:
    file, _, offset = text.rpartition(":")
    return int(file.rpartition(".")[2]) << OFFSET_BITS | int(offset)


def _expected(group: dict[str, Any]) -> list[Change]:
    found: list[Change] = []
    for it in group["events"]:
        if it.get("rolled_back"):
            continue
        if "op" in it:
            found.append((it["table"], it["op"], _as_doubles(it.get("before")), _as_doubles(it.get("after"))))
        for row in it.get("rows", ()):
            operation = {"WRITE": "INSERT"}.get(it["operation"], it["operation"])
            found.append((it["table"], operation, _as_doubles(row["before"]), _as_doubles(row["after"])))
    return found


def _as_doubles(row: Row) -> Row:
    """Return a recorded row with its FLOAT, of the shortest digits, as 8 bytes have it, and its VECTOR as bytes."""
    if row is None:
        return None
    vectors = {name: of_vector(row[name] or "") for name in ("v", "vec") if (row.get(name) or "").startswith("[")}
    return {**row, **vectors, **({"fl": "0.10000000149011612"} if row.get("fl") == "0.1" else {})}


def of_vector(text: str) -> str:
    """Return the bytes of a VECTOR, in hexadecimal, of the text that was recorded."""
    return np.array(json.loads(text), dtype="<f4").tobytes().hex().upper()


def _rows(changes: Changes) -> list[Change]:
    placed = []
    for it in changes.sets:
        names = [column.name for column in it.article.columns]
        for at, place in enumerate(it.places.tolist()):
            before, after = (_row(changes.buffer, image, at, names) for image in (it.before, it.after))
            placed.append((place, (str(it.article.source), it.operation.name, before, after)))
    return [it for _, it in sorted(placed, key=lambda one: one[0])]


def _row(buffer: Buffer, cells: Cells | None, at: int, names: list[str]) -> Row:
    if cells is None:
        return None
    values = zip(names, cells.starts[at].tolist(), cells.lengths[at].tolist(), strict=True)
    return {
        name: None if length < 0 else buffer.bytes[start : start + length].tobytes().decode()
        for name, start, length in values
    }


def _each_group(block: EventBlock, groups: Groups) -> list[EventBlock]:
    prepared, found = PreparedTransactions(), []
    for begin, end in zip(groups.begins.tolist(), groups.ends.tolist(), strict=True):
        one = block.chosen(slice(begin, end + 1))
        found.append(prepared.plain(one, find_groups(one)))
    return found


def _committed(stream: dict[str, Any]) -> list[list[Change]]:
    """Return the groups' changes, those of prepared transactions where they are committed."""
    found: list[list[Change]] = []
    prepared: list[Change] = []
    for group in stream["groups"]:
        changes = _expected(group)
        statement = str(group.get("statement", {}).get("sql", "")) + "".join(
            it.get("sql", "") for it in group["events"]
        )
        if group["ended_by"] == "XA_PREPARE":
            prepared, changes = changes, []
        elif "XA COMMIT" in statement:
            prepared, changes = [], prepared
        elif group["ended_by"] == "QUERY ROLLBACK":
            changes = []
        found.append(changes)
    return found


@pytest.mark.parametrize("file", STREAMS)
def test_the_groups_are_where_they_were(file: str) -> None:
    stream = stream_of(file)
    block = block_of(stream)
    groups = find_groups(block)
    sizes = block.data.numbers(block.starts[groups.begins] + 9, "<u4")
    found = list(zip((block.places[groups.begins] - sizes).tolist(), block.places[groups.ends].tolist(), strict=True))
    assert found == [(_place(it["position"]), _place(it["end_position"])) for it in stream["groups"]]
    assert groups.open_from is None


@pytest.mark.parametrize("file", STREAMS)
def test_each_group_decodes_to_what_was_committed(file: str) -> None:
    stream = stream_of(file)
    block = block_of(stream)
    for group, one, expected in zip(
        stream["groups"], _each_group(block, find_groups(block)), _committed(stream), strict=True
    ):
        articles = _articles(one)
        decoder = Decoder(articles, _CHARSETS)
        whole = {str(name): len(it.columns) for name, it in articles.items()}
        if any(len(image) < whole[table] for table, _, *images in expected for image in images if image):
            with pytest.raises(RefusedChange, match="without all its columns"):
                decoder.changes(one)
            continue
        changes = decoder.changes(one)
        assert _rows(changes) == expected
        assert changes.transactions.seqno.tolist() == [0, _place(group["position"]) * SEQNOS_PER_PLACE]
        time = group.get("commit_microseconds") or group["commit_time"] * 1_000_000
        assert changes.transactions.time.tolist()[1] == time


def _event(kind: int, body: bytes) -> bytes:
    return bytes(4) + bytes([kind]) + bytes(4) + (HEADER_BYTES + len(body)).to_bytes(4, "little") + bytes(6) + body


_KINDS = {"WRITE1": 23, "UPDATE1": 24, "DELETE1": 25, "WRITE_Z": 166, "UPDATE_Z": 167}


def _events_of(entry: dict[str, Any]) -> list[bytes]:
    """Return a group of one rows event, as the entry has it."""
    kind = entry.get("event_type") or _KINDS[entry["event"]]
    bodies = [(33, bytes(60)), (19, _unpacked(entry, "table_map")), (kind, _unpacked(entry, "rows")), (16, bytes(8))]
    events = [_event(number, body) for number, body in bodies]
    return [inflated(it) if it[4] in COMPRESSED else it for it in events]


def _unpacked(entry: dict[str, Any], key: str) -> bytes:
    packed = entry.get(f"{key}_zlib_base64")
    return zlib.decompress(base64.b64decode(packed)) if packed else bytes.fromhex(entry[f"{key}_hex"])


def _entries() -> list[Any]:
    return [
        pytest.param(flavor, it, id=f"{flavor.name}-{it['what'][:50]}")
        for flavor, file in ((Flavor.MARIADB, "mariadb_values.json"), (Flavor.MYSQL, "mysql_values.json"))
        for it in json.loads((_HERE / file).read_text())
        if it["type"] == "row" and "rows" in it
    ]


@pytest.mark.parametrize(("flavor", "entry"), _entries())
def test_rows_of_all_kinds_of_tables(flavor: Flavor, entry: dict[str, Any]) -> None:
    events = _events_of(entry)
    sizes = np.array([len(it) for it in events])
    starts = np.cumsum(sizes) - sizes
    data = LogBytes(np.frombuffer(b"".join(events), dtype=np.uint8))
    block = EventBlock(data, starts, starts + sizes, data.numbers(starts + 4, "u1"), np.zeros(4, np.int64), flavor)
    articles = _articles(block)
    expected = [(_as_doubles(row.get("before")), _as_doubles(row.get("after"))) for row in entry["rows"]]
    whole = len(next(iter(articles.values())).columns)
    refusal = "without all its columns|does not name its columns"
    if articles[next(iter(articles))].columns[0].name == "" or any(
        len(image) < whole for images in expected for image in images if image
    ):
        with pytest.raises(RefusedChange, match=refusal):
            Decoder(articles, _CHARSETS).changes(block)
        return
    assert [(before, after) for _, _, before, after in _rows(Decoder(articles, _CHARSETS).changes(block))] == expected


def _table_map(number: int, name: str, rest: bytes) -> tuple[int, bytes]:
    named = bytes([1]) + b"s\0" + bytes([len(name)]) + name.encode() + b"\0"
    return EventType.TABLE_MAP, number.to_bytes(6, "little") + b"\1\0" + named + rest


def _block_of_bodies(*bodies: tuple[int, bytes]) -> EventBlock:
    """Return events without checksums."""
    events = [_event(kind, body) for kind, body in bodies]
    sizes = np.array([len(it) for it in events])
    starts = np.cumsum(sizes) - sizes
    data = LogBytes(np.frombuffer(b"".join(events), dtype=np.uint8))
    return EventBlock(
        data, starts, starts + sizes, data.numbers(starts + 4, "u1"), np.zeros(len(events), np.int64), Flavor.MARIADB
    )


def test_a_block_may_end_with_a_small_table_after_a_large_one() -> None:
    maps = _table_map(1, "wide", bytes(2000)), _table_map(2, "small", bytes(20))
    assert not Decoder({}, _CHARSETS).has_published(_block_of_bodies(*maps))


def test_a_transaction_that_the_server_did_not_write_to_its_end_is_none_with_the_next() -> None:
    began = EventType.GTID, bytes(19)
    row = EventType.WRITE_V1, bytes(20)
    for events in ([began, row, began, row], [began, row, began, row, (EventType.XID, bytes(8))]):
        with pytest.raises(DataError, match="the beginning of a transaction and not its end") as torn:
            find_groups(_block_of_bodies(*events))
        assert torn.value.report.remedy is not None


def test_columns_of_another_collation_than_most_have_their_own() -> None:
    varchars = bytes([15]) * 13
    # Of thirteen columns the third has number 47, all others 45: the server lists it as an exception.
    exceptions = bytes([45, 2, 47])
    body = b"\1\0\1s\0\1t\0" + bytes([13]) + varchars + bytes([26]) + b"\x28\0" * 13 + bytes(2)
    table = read_table_map(body + bytes([2, len(exceptions)]) + exceptions, Flavor.MARIADB)
    assert [it.collation for it in table.columns] == [45, 45, 47, *[45] * 10]
