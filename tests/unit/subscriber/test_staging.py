"""COPY text against one that writes value after value."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, given, settings, strategies as st

from support.example_counts import examples
from support.registered import unused_fields
from tranrepl.model.article import PublishedColumn, RegisteredArticle
from tranrepl.model.call_syntax import Argument, Image, arguments
from tranrepl.model.command_rows import ROW_LAYOUT
from tranrepl.model.commands import Operation
from tranrepl.model.names import TableName
from tranrepl.settings.publication import Article
from tranrepl.subscriber.batching.staging import (
    WORTH_A_STATEMENT,
    Kind,
    StagingLayout,
    census_of,
    copy_text,
    frequent_masks,
    staging_layout,
)

Row = dict[str, Any]
TYPES = ("integer", "text", "public.mood", "numeric")
_SCALL = Article(source=TableName("public", "t"))


def _article(number: int, types: list[str], key: list[int]) -> RegisteredArticle:
    return RegisteredArticle(
        article_id=number,
        source=TableName("public", f"t{number}"),
        destination=TableName("public", f"t{number}"),
        source_object_id=number,
        columns=tuple(
            PublishedColumn(
                name=f"c{at}",
                ordinal=at + 1,
                type_oid=1,
                type_modifier=-1,
                type_name=type_name,
                key_ordinal=key.index(at) + 1 if at in key else None,
            )
            for at, type_name in enumerate(types)
        ),
        ins_cmd=_SCALL.ins_cmd,
        upd_cmd=_SCALL.upd_cmd,
        del_cmd=_SCALL.del_cmd,
        **unused_fields(TableName("public", f"t{number}")),
    )


@st.composite
def _articles(draw: st.DrawFn) -> list[RegisteredArticle]:
    articles = []
    for number in draw(st.lists(st.integers(1, 9), min_size=1, max_size=3, unique=True)):
        types = draw(st.lists(st.sampled_from(TYPES), min_size=1, max_size=5))
        key = draw(st.lists(st.integers(0, len(types) - 1), min_size=1, max_size=2, unique=True))
        articles.append(_article(number, types, key))
    return articles


_special = st.sampled_from(
    ["", "\\N", "\\.", "\t", "\n", "\r", "\r\n", "\\", "\\\\t", "'", '"', "NULL", "\x01", "𝄞", "x" * 40]
)
_texts = st.one_of(_special, st.text(max_size=8), st.lists(_special, max_size=3).map("".join))


@st.composite
def _rows(draw: st.DrawFn, article: RegisteredArticle) -> Row:
    image = st.lists(st.none() | _texts, min_size=len(article.columns), max_size=len(article.columns))
    operation = draw(st.sampled_from([Operation.INSERT, Operation.UPDATE, Operation.DELETE, Operation.TRUNCATE]))
    return {
        "xact_seqno": bytes(8),
        "command_id": 1,
        "article_id": article.article_id,
        "operation": int(operation),
        "before": draw(image) if operation in (Operation.UPDATE, Operation.DELETE) else None,
        "after": draw(image) if operation in (Operation.INSERT, Operation.UPDATE) else None,
        "changed": draw(st.binary(min_size=1, max_size=2)) if operation is Operation.UPDATE else None,
    }


@st.composite
def _commands(draw: st.DrawFn) -> tuple[list[RegisteredArticle], list[Row]]:
    articles = draw(_articles())
    return articles, draw(st.lists(st.sampled_from(articles).flatmap(_rows), min_size=1, max_size=8))


def _layout(articles: list[RegisteredArticle], kinds: Collection[Kind]) -> StagingLayout:
    known = {article.article_id: article for article in articles}
    return staging_layout(kinds, known, _types(known, kinds))


def _types(articles: Mapping[int, RegisteredArticle], kinds: Collection[Kind]) -> dict[tuple[Kind, Argument], str]:
    return {
        (kind, argument): "bytea"
        if argument.position is None
        else articles[kind.article_id].columns[argument.position].type_name
        for kind in kinds
        for argument in arguments(articles[kind.article_id], kind.operation)
    }


def _value(row: Row, argument: Argument) -> str | None:
    if argument.image is Image.CHANGED:
        return f"\\x{row['changed'].hex()}"
    assert argument.position is not None
    value: str | None = row[argument.image.value][argument.position]
    return value


def _field(value: str | None) -> str:
    """Return a value in COPY's text format ("COPY", section "Text Format")."""
    if value is None:
        return "\\N"
    return value.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")


def _line(image: list[str | None] | None) -> str | None:
    return None if image is None else "\t".join(map(_field, image))


def _expected(articles: list[RegisteredArticle], rows: list[Row], layout: StagingLayout) -> str:
    known = {article.article_id: article for article in articles}
    lines = []
    for seq, row in enumerate(rows):
        kind = Kind(row["article_id"], Operation(row["operation"]))
        fields = ["\\N"] * len(layout.slots)
        for argument in arguments(known[kind.article_id], kind.operation):
            fields[layout.places[kind][argument]] = _field(_value(row, argument))
        lines.append("\t".join([str(seq), str(layout.kinds.index(kind)), *fields]) + "\n")
    return "".join(lines)


@settings(deadline=None, max_examples=examples(300), suppress_health_check=[HealthCheck.too_slow])
@given(_commands(), st.integers(0, 3), st.integers(1, 4))
def test_copy_text_holds_every_value_in_its_slot(
    commands: tuple[list[RegisteredArticle], list[Row]], before: int, chunk: int
) -> None:
    articles, rows = commands
    # A slice of a larger table, in chunks: what a piece of a commit batch is.
    stored = [{**row, "before": _line(row["before"]), "after": _line(row["after"])} for row in rows]
    padded = [*(stored[:1] * before), *stored, *stored[:1]]
    parts = [pa.RecordBatch.from_pylist(padded[at : at + chunk], ROW_LAYOUT) for at in range(0, len(padded), chunk)]
    table = pa.Table.from_batches(parts).slice(before, len(rows))
    kinds = census_of(table).kinds
    assert kinds == {Kind(row["article_id"], Operation(row["operation"])) for row in rows}
    more = {Kind(article.article_id, Operation.INSERT) for article in articles}
    layout = _layout(articles, kinds | more)
    assert bytes(copy_text(table, layout)).decode() == _expected(articles, rows, layout)


_masked = st.tuples(st.integers(1, 3), st.sampled_from(Operation), st.none() | st.binary(max_size=2))


@given(st.lists(st.tuples(_masked, st.sampled_from([1, 60, 490, 600])), max_size=6), st.integers(1, 4))
def test_masks_are_frequent_among_those_of_their_kind(
    repeated: list[tuple[tuple[int, Operation, bytes | None], int]], parts: int
) -> None:
    rows = [row for row, times in repeated for _ in range(times)]
    names = ("article_id", "operation", "changed")
    columns = [pa.array([row[at] for row in rows], ROW_LAYOUT.field(name).type) for at, name in enumerate(names)]
    table, size = pa.table(columns, names=list(names)), len(rows) // parts + 1
    table = pa.concat_tables([table.slice(at, size) for at in range(0, len(rows) + 1, size)])
    counts: dict[Kind, Counter[bytes]] = defaultdict(Counter)
    for article_id, operation, mask in rows:
        if mask is not None:
            counts[Kind(article_id, operation)][mask] += 1
    assert frequent_masks(table) == {
        kind: {mask for mask, count in masks.items() if 8 * count >= masks.total()}
        for kind, masks in counts.items()
        if masks.total() >= WORTH_A_STATEMENT
    }


@given(_articles())
def test_every_argument_has_a_slot_of_its_type_and_no_slot_is_left_over(articles: list[RegisteredArticle]) -> None:
    operations = [Operation.INSERT, Operation.UPDATE, Operation.DELETE, Operation.TRUNCATE]
    kinds = {Kind(article.article_id, operation) for article in articles for operation in operations}
    known = {article.article_id: article for article in articles}
    types, layout = _types(known, kinds), _layout(articles, kinds)
    assert set(layout.kinds) == kinds
    widths: dict[str, int] = {}
    for kind in kinds:
        places = layout.places[kind]
        assert len(set(places.values())) == len(places)
        needed: dict[str, int] = {}
        for argument, place in places.items():
            assert layout.slots[place].type_name == types[kind, argument]
            needed[types[kind, argument]] = needed.get(types[kind, argument], 0) + 1
        widths = {name: max(widths.get(name, 0), needed.get(name, 0)) for name in {*widths, *needed}}
    assert len(layout.slots) == sum(widths.values())
    assert len({slot.name for slot in layout.slots}) == len(layout.slots)
