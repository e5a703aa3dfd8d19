"""Shell examples of the pages: a test runs them or they say why not, and no command or option in them is invented."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup, TyperOption

from support.checkout import CHECKOUT, PAGES, shell_blocks
from tranrepl.cli.verbs import app

_HOW_TOS = "tests/integration/cli/test_examples_of_how_tos.py"
_SCHEDULER = "tests/airflow/test_scheduler.py"
_RUN_BY = {
    "docs/tutorial.md": ("tests/integration/end_to_end/test_tutorial.py", "tutorial.md"),
    "docs/how-to/from-mysql.md": ("tests/integration/end_to_end/test_tutorial.py", '"from-mysql.md"'),
    "docs/how-to/a-batch-failed.md": ("tests/integration/cli/test_runbook.py", "RUNBOOK"),
    "docs/how-to/install.md": ("tests/integration/end_to_end/test_wheel.py", '"install.md"'),
    "docs/how-to/snapshot.md": (_HOW_TOS, "how-to/snapshot.md"),
    "docs/how-to/restore.md": ("tests/integration/cli/test_restoring.py", '"restore.md"'),
    "docs/how-to/backfill.md": (_SCHEDULER, "backfill.md"),
    "docs/how-to/alerts.md": (_SCHEDULER, "alerts.md"),
    "docs/how-to/metrics.md": ("tests/integration/cli/test_metrics.py", '"metrics.md"'),
    "docs/how-to/validate.md": (_HOW_TOS, "how-to/validate.md"),
    "docs/how-to/schema-changes.md": (_HOW_TOS, "how-to/schema-changes.md"),
    "docs/how-to/change-a-file.md": (_HOW_TOS, "how-to/change-a-file.md"),
    "docs/how-to/move-to-the-subscriber.md": (
        "tests/integration/cli/test_move_to_the_subscriber.py",
        "how-to/move-to-the-subscriber.md",
    ),
    "docs/how-to/publisher-failover.md": ("tests/integration/publisher/test_failover.py", "publisher-failover.md"),
    "docs/how-to/remove-a-publication.md": (_HOW_TOS, "how-to/remove-a-publication.md"),
    "docs/reference/status.md": (_HOW_TOS, "reference/status.md"),
}
"""Pages whose examples are run: by which test, and how it names the page."""
_VERBS = typer.main.get_command(app)
assert isinstance(_VERBS, TyperGroup)


def _name(page: Path) -> str:
    return str(page.relative_to(CHECKOUT))


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_a_shell_example_is_run_by_a_test_or_says_why_not(page: Path) -> None:
    unexplained = [it.text for it in shell_blocks(page) if it.reason is None]
    assert unexplained == [] or _name(page) in _RUN_BY


def test_the_test_that_runs_a_page_names_it() -> None:
    for page, (test, word) in _RUN_BY.items():
        assert (CHECKOUT / page).exists()
        assert word in (CHECKOUT / test).read_text(encoding="utf-8"), page


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_every_block_of_a_page_says_its_language(page: Path) -> None:
    fences = re.findall(r"^ *```(.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert [it for it in fences[::2] if it not in ("sh", "sql", "yaml", "python", "text")] == []


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_a_page_names_no_verb_or_option_that_is_not_there(page: Path) -> None:
    assert [it for it in _commands(page) if not _exists(it)] == []


def test_a_message_names_no_verb_or_option_that_is_not_there() -> None:
    sources = [*(CHECKOUT / "spark_jobs").rglob("*.py"), *(CHECKOUT / "plugins").rglob("*.py")]
    named = {
        words for source in sources for text in _texts(source) for words in re.findall(r"`tranrepl ([\w-][^`]*)`", text)
    }
    assert len(named) > 30
    assert [it for it in sorted(named) if not _exists(it.split())] == []


def _texts(source: Path) -> Iterator[str]:
    """Yield the strings of a module; what is filled in stands as X."""
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(it.value) if isinstance(it, ast.Constant) else "X" for it in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _commands(page: Path) -> Iterator[list[str]]:
    """Yield the words after `tranrepl`, of examples and of code within a sentence."""
    for block in shell_blocks(page):
        for line in block.commands:
            if line.startswith("tranrepl "):
                yield shlex.split(line, comments=True)[1:]
    for words in re.findall(r"(?<!`)`tranrepl ([^`\n]+)`", page.read_text(encoding="utf-8")):
        yield re.sub(r"[\[\]|]", " ", words).split()


def _exists(words: list[str]) -> bool:
    verb, *rest = words
    assert isinstance(_VERBS, TyperGroup)
    if verb.startswith("-"):
        return verb in ("--version", "--help", "--install-completion", "--show-completion")
    if verb.isupper():
        # What stands for a name, as in the name of a session.
        return True
    if verb not in _VERBS.commands:
        return False
    known = {name for it in _VERBS.commands[verb].params if isinstance(it, TyperOption) for name in it.opts}
    return all(it.partition("=")[0] in {*known, "--help"} for it in rest if it.startswith("-"))
