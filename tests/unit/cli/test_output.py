"""How the shell formats help and errors."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest
import typer
from rich.table import Table
from rich.text import Text
from typer.core import TyperGroup
from typer.testing import CliRunner

from tranrepl.cli import verbs as cli
from tranrepl.cli.output import out, remember_file
from tranrepl.cli.results import report
from tranrepl.errors import ConfigurationError, DataError, ErrorKind, ErrorReport, ReplicationError
from tranrepl.jobs.results import JobResult
from tranrepl.printable import one_line, printable
from tranrepl.spark.entry_point import EventFormatter


def _told(error: ReplicationError, monkeypatch: pytest.MonkeyPatch) -> str:
    def refuse(_: object) -> None:
        raise error

    monkeypatch.setattr("tranrepl.cli.arguments.load_publication", refuse)
    result = CliRunner().invoke(cli.app, ["check", "purchasing.yaml"])
    assert (result.exit_code, result.stdout) == (1, "")
    return result.stderr


def test_an_error_is_told_with_its_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    error = ConfigurationError("[bold]not[/] markup: column [x] " + "w" * 200, remedy="mend [red]it")
    assert _told(error, monkeypatch) == f"error: [bold]not[/] markup: column [x] {'w' * 200}\n  → mend [red]it\n"


def test_control_characters_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    hostile = "a\x1b]0;x\x07\x1b[2J\x9b1m\u202e\x7f\rb\n\tc"
    shown = "a\\x1b]0;x\\x07\\x1b[2J\\x9b1m\\u202e\\x7f\\rb"
    assert printable(hostile) == f"{shown}\n\tc"
    assert one_line(hostile) == f"{shown}\\n\tc"
    error = ConfigurationError(hostile, remedy=hostile, article=hostile, xact_seqno="00ab")
    printed = _told(error, monkeypatch)
    assert printed.count(shown) == 3
    table = Table("name")
    table.add_row(hostile)
    with out.capture() as captured:
        out.print(table)
        out.print(Text("a\x1bb"))
    written = EventFormatter("%(message)s").format(logging.makeLogRecord({"msg": hostile}))
    for text in (printed, captured.get(), written):
        assert not set(text) & {chr(it) for it in (*range(9), *range(11, 32), *range(127, 160), 0x202E)}


def test_a_failing_command_is_told_with_the_call_that_shows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    error = DataError("no row", number="20598", xact_seqno="00ab", command_id=7, article="sales.customer")
    assert _told(error, monkeypatch) == (
        "error: no row\n"
        "  error 20598, transaction 0x00ab, command 7, article sales.customer\n"
        "  # look at the transaction\n"
        "  tranrepl browse purchasing.yaml --from 0x00ab --to 0x00ab\n"
    )


def test_a_remedy_names_the_file_that_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    told = _told(ConfigurationError("not set up", remedy="run `tranrepl setup FILE`"), monkeypatch)
    assert told == "error: not set up\n  → run `tranrepl setup purchasing.yaml`\n"


VERBS = ["init", "check", "setup", "script", "run", "log-reader", "distribute", "browse", "status"]
VERBS += ["cleanup", "reinitialize", "schema"]


def _words(text: str) -> str:
    """Return the text without what a terminal draws, and with single spaces."""
    return " ".join(re.sub(r"[^\w\s.,:;/{}()\[\]'\"<>=|%-]", " ", text).split())


_REQUIRED = {
    "init": " FOLDER",
    "exec": " FILE --sql FILE.sql [OPTIONS]",
    "skip": " FILE --subscription NAME --xact-seqno XACT_SEQNO",
    "status": " FILE... [OPTIONS]",
    "teardown": " [FILE] [OPTIONS]",
    **dict.fromkeys(("class-archive", "schema"), " [OPTIONS]"),
}
"""What the first line of the help asks for, where that is not the file alone."""


def _help(*verb: str) -> str:
    result = CliRunner().invoke(cli.app, [*verb, "--help"])
    assert (result.exit_code, result.stderr) == (0, "")
    return _words(result.stdout)


@pytest.mark.parametrize("verb", VERBS)
def test_help_shows_an_example(verb: str) -> None:
    help_text = _help(verb)
    assert f"Usage: tranrepl {verb}{_REQUIRED.get(verb, ' FILE')}" in help_text
    assert f"Example: tranrepl {verb}" in help_text


def test_no_line_of_a_help_text_is_broken_at_80_columns() -> None:
    # The paragraphs after the first are shown as they are written.
    verbs = typer.main.get_command(cli.app)
    assert isinstance(verbs, TyperGroup)
    lines = [line for verb in verbs.commands.values() for line in (verb.help or "").splitlines()]
    assert [line for line in lines if len(line) > 78] == []


def test_help_lists_every_verb_and_tells_of_connections() -> None:
    text = _help()
    assert all(f" {verb} " in text for verb in VERBS)
    assert "AIRFLOW_CONN_<ID>" in text
    groups = [text.index(f" {it} ") for it in ("Set up", "Run", "Look", "Mend", "Remove")]
    assert groups == sorted(groups)
    assert [it for it in ([], ["run"], ["status"]) if "<bool>" in _help(*it) or "list[Path]" in _help(*it)] == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "Usage: tranrepl"),
        (("chekc",), "No such command 'chekc'"),
        (("check",), "Missing argument 'FILE'"),
        (("check", "a.yaml", "b.yaml"), "Got unexpected extra argument"),
        (("run", "a.yaml", "--masterr", "x"), "No such option"),
        (("browse", "a.yaml", "--limit", "0"), "Invalid value for '--limit'"),
        (("distribute", "a.yaml", "--committed-before", "noon"), "Invalid value for '--committed-before'"),
    ],
)
def test_a_wrong_use_ends_with_status_2(arguments: tuple[str, ...], said: str) -> None:
    result = CliRunner().invoke(cli.app, arguments)
    assert result.exit_code == 2
    assert said in result.output


def test_skipped_commands_stand_in_the_table_of_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    remember_file(Path("p.yaml"))
    delivered = JobResult(transactions=1, commands=3, seconds=1.0)
    report({"log reader": delivered, "reporting": delivered}, as_json=False)
    assert "skipped" not in capsys.readouterr().out
    first = ErrorReport(
        kind=ErrorKind.DATA,
        message="not found",
        number="20598",
        xact_seqno="00ab",
        command_id=7,
        article="sales.customer",
        key="id = 1",
    )
    skipping = delivered.model_copy(update={"skipped": 1200, "first_skipped": (first,)})
    report({"log reader": delivered, "reporting": skipping}, as_json=False)
    shown = capsys.readouterr()
    heading, _, *rows = (it.split() for it in shown.out.splitlines())
    assert (heading[-1], [it[-1] for it in rows]) == ("skipped", ["3", "1,200"])
    assert shown.err == (
        "warning: reporting: 1,200 commands were skipped, as skip_errors says: subscription reporting lacks what they "
        "change: first error 20598, article sales.customer (id = 1), command 7 of 0x00ab. "
        "`tranrepl browse p.yaml --from 0x00ab --to 0x00ab` shows the first one, msrepl_errors has all of them "
        "(skipped = true), and `tranrepl validate p.yaml -s reporting` finds the rows that differ\n"
    )
