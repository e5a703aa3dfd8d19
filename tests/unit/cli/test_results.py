"""The tables with which `run` ends."""

from __future__ import annotations

import re
from io import StringIO

import pytest
from rich.console import Console

from tranrepl.cli import results
from tranrepl.errors import ErrorKind, ErrorReport
from tranrepl.jobs.results import JobResult, TableChange, TableProgress

_COPIED = TableProgress(article="public.orders", rows=6_172_839, bytes=1_200_000_000, share=1.0, seconds=61.0)


def _lines(told: dict[str, JobResult], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    out = StringIO()
    monkeypatch.setattr(results, "out", Console(file=out, width=80, color_system=None))
    results.report(told, as_json=False)
    return out.getvalue().splitlines()


def _cells(lines: list[str]) -> list[list[str]]:
    return [re.split(r"\s{2,}|(?<=g) (?=I|S)", line.strip()) for line in lines if line.strip(" ─")]


def test_rows_of_a_snapshot_stand_apart_from_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {
        "log reader": JobResult(seconds=0.24),
        "reporting snapshot": JobResult(snapshot=(_COPIED, _COPIED), seconds=100.0),
        "reporting": JobResult(transactions=1_234_567, commands=2_345_678, seconds=50.0),
    }
    lines = _lines(told, monkeypatch)
    assert max(map(len, lines)) <= 80
    assert _cells(lines) == [
        ["snapshot", "run", "tables", "rows", "size", "seconds", "rows/s"],
        ["reporting", "Succeeded", "2", "12,345,678", "2.4 GB", "100.0", "123,457"],
        ["agent", "run", "transactions", "commands", "seconds", "commands/s"],
        ["log reader", "Idle", "0", "0", "0.2"],
        ["reporting", "Succeeded", "1,234,567", "2,345,678", "50.0", "46,914"],
    ]


def test_what_failed_fits_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = ErrorReport(kind=ErrorKind.CONFIGURATION, message="table public.orders holds rows")
    told = {
        "log reader": JobResult(transactions=1_234_567, commands=2_345_678, seconds=50.0),
        "reporting snapshot": JobResult(error=refused),
        "reporting": JobResult(seconds=0.24),
    }
    cells = _cells(_lines(told, monkeypatch))
    assert [row[:2] for row in cells] == [
        ["snapshot", "run"],
        ["reporting", "Failed"],
        ["agent", "run"],
        ["log reader", "Succeeded"],
        ["reporting", "Idle"],
    ]


def test_a_schema_change_is_one_line_that_says_what_the_file_needs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    renamed = TableChange(article="shop.line", what="column note renamed to remark")
    added = TableChange(article="shop.line", what="column price added")
    other = TableChange(article="shop.orders", what="column a added")
    statements = ('Subscriber mart: ALTER TABLE "shop"."line" ADD COLUMN price', "created procedure p at Subscriber x")
    by_another = (
        "Subscriber lake: table shop.line: ADD COLUMN price longtext",
        "Subscriber lake: ran ALTER TABLE `shop`.`line` ADD COLUMN `price` LONGTEXT NULL",
        "created procedures sp_MSins_shopline, sp_MSupd_shopline at Subscriber lake",
        "created 24 procedures at Subscriber lake",
    )
    yours = "Subscriber mart: procedure put_line is your own, and stays"
    done = JobResult(
        commands=3,
        table_changes=(renamed, added),
        applied_schema_changes=(*statements, yours),
        notices=(*statements, yours),
    )
    told = {
        "log reader": JobResult(
            commands=3,
            table_changes=(renamed, added, other),
            file_edits={"shop.line": "write `columns: [id, remark]` into the file"},
            notices=("shop.line: column note renamed to remark",),
        ),
        "reporting": done,
        "lake": done.model_copy(update={"notices": by_another, "applied_schema_changes": by_another}),
    }
    lines = " ".join(" ".join(_lines(told, monkeypatch)).partition("agent ")[0].split())
    assert lines == (
        "shop.line: column note renamed to remark, column price added (2 Subscribers); "
        "write `columns: [id, remark]` into the file shop.orders: column a added (captured)"
    )
    assert capsys.readouterr().err == f"warning: reporting: {yours}\n"


def test_a_snapshot_that_was_not_due_has_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = ErrorReport(kind=ErrorKind.CONFIGURATION, message="Subscriber mart does not answer")
    cells = _cells(_lines({"mart snapshot": JobResult(error=refused), "mart": JobResult(error=refused)}, monkeypatch))
    assert [row[:2] for row in cells] == [["agent", "run"], ["mart", "Failed"]]


def test_a_snapshot_by_itself_is_one_table(monkeypatch: pytest.MonkeyPatch) -> None:
    cells = _cells(_lines({"reporting": JobResult(snapshot=(_COPIED,), seconds=1.0)}, monkeypatch))
    assert [row[0] for row in cells] == ["snapshot", "reporting"]


def test_a_rate_below_one_is_not_0(monkeypatch: pytest.MonkeyPatch) -> None:
    (_, row) = _cells(_lines({"reporting": JobResult(commands=1, seconds=3.0)}, monkeypatch))
    assert row[-1] == "0.33"
