"""The ways on after an error, as commands that can be pasted."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from tranrepl.cli.verbs import app
from tranrepl.errors import (
    ConfigurationError,
    DataError,
    InternalError,
    ReplicationError,
    TransientError,
)
from tranrepl.remedies import (
    COMMANDS,
    FINISH_BATCH,
    LONGEST_COMMAND,
    REINITIALIZE,
    RUN_SETUP,
    RUNBOOK,
    Place,
    error_block,
    named,
    next_steps,
    reinitialize_subscription,
)

PLACE = Place("dags/my publications/purchasing.yaml", "reporting")
FILE = "'dags/my publications/purchasing.yaml'"
DUPLICATE = DataError(
    "Subscriber reporting: duplicate key",
    number="2627",
    database_code="23505",
    xact_seqno="00ab",
    command_id=7,
    article='sales."Order Details"',
    key="id = 5",
    command="{CALL [sp_MSins_salesorder] (5)}",
)


def test_the_block_says_all_there_is_and_ends_with_the_commands() -> None:
    assert error_block(DUPLICATE.report, PLACE) == "\n".join(
        [
            "Subscriber reporting: duplicate key",
            "  error        2627 (23505)",
            "  transaction  0x00ab",
            "  command      7",
            '  article      sales."Order Details"',
            "  key          id = 5",
            "  stored as    {CALL [sp_MSins_salesorder] (5)}",
            "",
            "# look at the transaction",
            f"tranrepl browse {FILE} --from 0x00ab --to 0x00ab",
            "# mend the Subscriber's rows or table, then deliver again",
            f"tranrepl run {FILE} -s reporting",
            "# or skip the transaction, then correct the rows that it would have changed",
            f"tranrepl skip {FILE} -s reporting --xact-seqno 0x00ab",
            f"tranrepl validate {FILE} -s reporting --article 'sales.\"Order Details\"' --repair",
            f"# when to take which: {RUNBOOK}",
        ]
    )


@pytest.mark.parametrize(
    ("error", "verbs"),
    [
        (DUPLICATE, ["browse", "run", "skip", "validate"]),
        (DataError("raised", xact_seqno="00ab", not_repaired="ins_cmd calls own_ins"), ["browse", "run", "skip"]),
        (DataError("does not fit", xact_seqno="00ab", schema_change=True), ["browse", "run"]),
        (DataError("rows differ", number="20574"), []),
        (ConfigurationError("no procedure", xact_seqno="00ab"), ["browse"]),
        (ConfigurationError("no table"), []),
        (TransientError("lost", xact_seqno="00ab"), ["run"]),
        (InternalError("never"), []),
    ],
)
def test_only_what_makes_sense_for_an_error_is_offered(error: ReplicationError, verbs: list[str]) -> None:
    assert [it.command.split()[1] for it in next_steps(error.report, PLACE)] == verbs


def test_nothing_is_skipped_where_no_subscription_is_known() -> None:
    assert [it.command.split()[1] for it in next_steps(DUPLICATE.report, Place("a.yaml"))] == ["browse"]


def test_a_long_command_is_cut_and_says_so() -> None:
    report = DUPLICATE.report.model_copy(update={"command": "x" * 5000})
    line = next(it for it in error_block(report, PLACE).splitlines() if "stored as" in it)
    assert line.endswith(f"{'x' * 100}… (the first 1,000 characters; browse shows all)")
    assert line.count("x") == LONGEST_COMMAND


def test_a_long_key_is_cut_in_the_message_too() -> None:
    key = f"url = {'x' * 5000}"
    report = DUPLICATE.report.model_copy(update={"message": f"no row with {key}", "key": key})
    block = error_block(report, PLACE)
    assert block.count("x… (5,006 characters)\n") == 2
    assert block.count("x" * 195) == 0


@pytest.mark.parametrize(
    ("remedy", "filled"),
    [
        ("run `tranrepl setup FILE`", f"run `tranrepl setup {FILE}`"),
        ("`tranrepl run FILE`, then `tranrepl setup FILE`", f"`tranrepl run {FILE}`, then `tranrepl setup {FILE}`"),
        (
            "`tranrepl reinitialize FILE -s NAME --article ARTICLE`",
            f"`tranrepl reinitialize {FILE} -s reporting --article public.item`",
        ),
        ("a FILE that is no command", "a FILE that is no command"),
        (r"`tranrepl validate FILE -s FILE_1`", rf"`tranrepl validate {FILE} -s FILE_1`"),
    ],
)
def test_a_remedys_commands_name_what_is_known(remedy: str, filled: str) -> None:
    assert named(remedy, PLACE, "public.item") == filled


def test_what_is_not_known_stays_as_it_is() -> None:
    text = "`tranrepl reinitialize FILE -s NAME --article ARTICLE`"
    assert named(text, Place()) == text


_TREE = Path(__file__).parents[2]
_SOURCES = ("spark_jobs/tranrepl", "plugins/tranrepl_airflow")
_NO_MESSAGES = ("distributor/tables.py", "distributor/migrations", "plugins/tranrepl_airflow/provider.py")
"""Comments of columns, and the package's description."""
_NAMED = re.compile(r"`(tranrepl [^`]*)`|\b(tranrepl [a-z-]+ FILE(?: --?[a-z-]+(?: [A-Z_.]+)?)*)")
_NAMED_IN_PART = re.compile(r"`tranrepl |\btranrepl [a-z-]+ FILE")
_PLACEHOLDERS = (
    (r"(?<= -s )\{[^}]*\}", "NAME"),
    (r"(?<= --article )\{[^}]*\}", "ARTICLE"),
    (r"(--(?:from|to|xact-seqno)) (0x)?\{[^}]*\}", r"\1 XACT_SEQNO"),
    (r"^(tranrepl \S+) \{[^}]*\}", r"\1 FILE"),
    (r"\{[^}]*\}$", ""),
)


def _texts(tree: ast.AST) -> Iterator[str]:
    """Yield the texts of a module that are no docstrings; those with values have {…} in their places."""
    passed_over = {id(it.value) for it in ast.walk(tree) if isinstance(it, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            passed_over |= {id(it) for it in node.values}
            yield "".join(str(it.value) if isinstance(it, ast.Constant) else "{…}" for it in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in passed_over:
            yield node.value


def _commands_of_messages() -> set[str]:
    found = set()
    for source in _SOURCES:
        for path in sorted((_TREE / source).rglob("*.py")):
            code = path.read_text(encoding="utf-8")
            no_message = path.name == "remedies.py" or any(it in str(path) for it in _NO_MESSAGES)
            if no_message or not _NAMED_IN_PART.search(code):
                continue
            for text in _texts(ast.parse(code)):
                for it in _NAMED.finditer(text):
                    command = it[1] or it[2]
                    for pattern, word in _PLACEHOLDERS:
                        command = re.sub(pattern, word, command)
                    found.add(command)
    return found


def _commands_of_steps() -> set[str]:
    place, errors = Place("FILE", "NAME"), [DUPLICATE, TransientError("lost")]
    reports = [it.report.model_copy(update={"article": "ARTICLE"}) for it in errors]
    return {it.command.replace("0x00ab", "XACT_SEQNO") for report in reports for it in next_steps(report, place)}


def test_the_known_commands_are_those_of_messages() -> None:
    ours = re.findall(
        "`(tranrepl [^`]*)`", f"{REINITIALIZE} {RUN_SETUP} {FINISH_BATCH} {reinitialize_subscription('NAME')}"
    )
    assert {*_commands_of_messages(), *_commands_of_steps(), *ours} == COMMANDS.keys()


def test_the_shell_takes_every_known_command() -> None:
    verbs: Any = typer.main.get_command(app)
    for command in COMMANDS:
        _, verb, *words = shlex.split(command)
        options = [it for it in verbs.commands[verb].params if it.param_type_name == "option"]
        named_ones = {it for it in words if it.startswith("-")}
        assert named_ones <= {name for it in options for name in it.opts}, command
        assert all(named_ones.intersection(it.opts) for it in options if it.required), command
