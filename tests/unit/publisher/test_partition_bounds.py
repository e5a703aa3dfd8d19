"""Limits of partitions are read as PostgreSQL formats them."""

from __future__ import annotations

import pytest

from tranrepl.model.partition_rows import Edge, PartitionLimits
from tranrepl.publisher.postgres.partition_bounds import read_key_columns, read_limits


def _edge(*values: str, included: bool) -> Edge:
    return Edge(values=values, included=included)


@pytest.mark.parametrize(
    ("bound", "limits"),
    [
        (
            "FOR VALUES FROM ('-5') TO (10)",
            PartitionLimits(lower=_edge("-5", included=True), upper=_edge("10", included=False)),
        ),
        (
            "FOR VALUES FROM (1, 'it''s, (a)') TO (1, MAXVALUE)",
            PartitionLimits(lower=_edge("1", "it's, (a)", included=True), upper=_edge("1", included=True)),
        ),
        (
            "FOR VALUES FROM (1, MAXVALUE) TO (2, MINVALUE)",
            PartitionLimits(lower=_edge("1", included=False), upper=_edge("2", included=False)),
        ),
        ("FOR VALUES FROM (1, MINVALUE) TO (MAXVALUE, MAXVALUE)", PartitionLimits(lower=_edge("1", included=True))),
        ("FOR VALUES FROM (MINVALUE) TO (MAXVALUE)", PartitionLimits()),
        ("FOR VALUES IN ('a', 'NULL', NULL, true)", PartitionLimits(listed=("a", "NULL", "true"))),
        ("DEFAULT", PartitionLimits(is_default=True)),
        ("FOR VALUES WITH (modulus 2, remainder 0)", None),
    ],
)
def test_a_bound_is_read_as_limits(bound: str, limits: PartitionLimits | None) -> None:
    assert read_limits(bound) == limits


@pytest.mark.parametrize(
    ("key", "columns"),
    [
        ("RANGE (id)", ("id",)),
        ('LIST ("Odd ""name"", (1)")', ('Odd "name", (1)',)),
        ("RANGE (id, kind)", ("id", "kind")),
        ('RANGE (kind COLLATE "C")', None),
        ("RANGE (kind text_pattern_ops)", None),
        ("HASH (id)", None),
        (None, None),
    ],
)
def test_a_key_of_plain_columns_is_read(key: str | None, columns: tuple[str, ...] | None) -> None:
    assert read_key_columns(key) == columns
