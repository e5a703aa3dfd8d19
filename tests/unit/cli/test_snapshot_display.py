"""What a shell shows of a snapshot that goes on."""

from __future__ import annotations

import re
from io import StringIO

import pytest
from rich.console import Console

from tranrepl.cli.snapshot_display import showing, table_bars
from tranrepl.jobs.results import TableProgress

_TABLES = [
    TableProgress(article="public.done", rows=5, bytes=1000, share=1.0, seconds=2.0),
    TableProgress(article="public.waits", rows=0, bytes=0, share=0.0, seconds=0.0),
    TableProgress(
        article="public.a_table_whose_name_is_longer_than_there_is_room_for",
        rows=99_000_000,
        bytes=9_900_000_000,
        share=0.99,
        seconds=99.0,
    ),
    TableProgress(article="public.on_its_way", rows=1_234_567, bytes=123_400_000, share=0.25, seconds=10.0),
]


def _rendered(width: int, most: int) -> list[str]:
    out = StringIO()
    Console(file=out, width=width, color_system=None).print(table_bars("reporting", _TABLES, width, most))
    return out.getvalue().splitlines()


@pytest.mark.parametrize("width", [80, 100, 160])
def test_a_bar_for_each_table_is_a_line_that_fits(width: int) -> None:
    lines = _rendered(width, most=4)
    assert lines.pop(0).split() == ["reporting", "rows", "size", "rate", "left"]
    assert lines.pop().split() == ["4", "tables", "100,234,572", "10.0", "GB"]
    assert len(lines) == len(_TABLES)
    assert all(len(line.rstrip()) <= width for line in lines)
    numbers = (
        r"public\.done +━+ +100% +5 +1\.0 kB +500 B/s +done",
        r"public\.waits +waits",
        r"public\.a_t\S*(…|for) +━+.* 99% +99,000,000 +9\.9 GB +100\.0 MB/s +1\.0 s",
        r"public\.on_its_way +━+.* 25% +1,234,567 +123\.4 MB +12\.3 MB/s +30 s",
    )
    for line, wanted in zip(lines, numbers, strict=True):
        assert re.fullmatch(wanted, line.rstrip()), line


def test_where_tables_are_more_than_lines_those_on_their_way_come_first() -> None:
    lines = [line.split()[0] for line in _rendered(100, most=3)[1:-1]]
    assert lines[0].startswith("public.a_")
    assert lines[1:] == ["public.on_its_way", "and"]


def test_without_a_terminal_a_table_has_its_line_when_it_is_whole() -> None:
    out = StringIO()
    with showing(Console(file=out, width=80), "reporting") as display:
        display.show([], "The snapshot waits for a transaction.")
        display.show([], "The snapshot waits for a transaction.")
        for tables in (_TABLES[1:], _TABLES, _TABLES):
            display.show(tables)
    assert out.getvalue().splitlines() == [
        "snapshot for reporting: The snapshot waits for a transaction.",
        "snapshot for reporting: public.done: 100%, 5 rows, 1.0 kB, 500 B/s, in 2.0 s",
    ]
