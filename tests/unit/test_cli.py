"""How the shell explains itself, and how it tells of an error."""

from __future__ import annotations

import re

import pytest
from typer.testing import CliRunner

from tranrepl import cli
from tranrepl.errors import ConfigurationError, DataError, ReplicationError


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


VERBS = ["check", "setup", "script", "run", "log-reader", "distribute", "browse", "status"]
VERBS += ["cleanup", "reinitialize", "schema"]


def _words(text: str) -> str:
    """Without what a terminal draws, and with single spaces."""
    return " ".join(re.sub(r"[^\w\s.,:;/{}()\[\]'\"<>=|%-]", " ", text).split())


def _help(*verb: str) -> str:
    result = CliRunner().invoke(cli.app, [*verb, "--help"])
    assert (result.exit_code, result.stderr) == (0, "")
    return _words(result.stdout)


@pytest.mark.parametrize("verb", VERBS)
def test_help_shows_an_example(verb: str) -> None:
    help_text = _help(verb)
    assert f"Usage: tranrepl {verb}" in help_text
    assert f"Example: tranrepl {verb}" in help_text


def test_help_lists_every_verb_and_tells_of_connections() -> None:
    text = _help()
    assert all(f" {verb} " in text for verb in VERBS)
    assert "AIRFLOW_CONN_<ID>" in text


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
