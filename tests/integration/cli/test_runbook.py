"""What `status` prints after a batch has failed is pasted as it stands: its commands, and the runbook's."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from conftest import DatabasesFactory
from support.checkout import CHECKOUT
from support.equality import differing_rows
from support.observed import distribution_rows
from support.shell import Outcome, publication_file, run_submitted_jobs_here, typed
from support.site import Site
from support.spark_here import SparkHere
from tranrepl.remedies import RUNBOOK

_RUNBOOK = (CHECKOUT / RUNBOOK).read_text(encoding="utf-8")
_FILE_IN_RUNBOOK = "dags/publications/purchasing.yaml"
_SEQNO_IN_RUNBOOK = "0x0000000001a2b3c4"
_MENDED = "DELETE FROM item WHERE note = 'mine'"


@dataclass(frozen=True, slots=True)
class Failed:
    """A subscription whose batch has failed at the second of three transactions, and the shell's output about it."""

    site: Site
    file: Path
    outcome: Outcome

    def paste(self, command: str) -> Outcome:
        """Run a line of a shell that begins with `tranrepl`."""
        name, *arguments = shlex.split(command)
        assert name == "tranrepl"
        return typed(*arguments, environment=self.site.databases.environment)

    @property
    def commands(self) -> dict[str, str]:
        """What is there to paste, by verb."""
        lines = [it.strip() for it in self.outcome.err.splitlines() if it.strip().startswith("tranrepl ")]
        return {it.split()[1]: it for it in lines}


@pytest.fixture
def failed(databases: DatabasesFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Failed:
    folder = tmp_path / "my publications"
    folder.mkdir()
    articles = [{"source": "public.item", "pre_creation_cmd": "delete"}]
    subscriptions = [{"name": "reporting", "connection": "subscriber", "sync_type": "automatic"}]
    site = Site(databases(), folder / "store", articles, SparkHere(), subscriptions)
    file = publication_file(folder, articles, subscriptions=subscriptions)
    run_submitted_jobs_here(site.spark, monkeypatch)
    site.at_publisher("CREATE TABLE item (id int PRIMARY KEY, note text)", "INSERT INTO item VALUES (1, 'first')")
    site.set_up()
    environment = site.databases.environment
    assert typed("run", file, environment=environment).status == 0
    site.at_subscriber("INSERT INTO item VALUES (3, 'mine')")
    site.at_publisher(*(f"INSERT INTO item VALUES ({number}, 'new')" for number in (2, 3, 4)))
    return Failed(site, file, typed("run", file, environment=environment))


def _rows(failed: Failed) -> list[Any]:
    return failed.site.at_subscriber("SELECT * FROM item ORDER BY id")


def test_the_shell_says_where_it_is_and_what_to_paste(failed: Failed) -> None:
    assert failed.outcome.status == 1
    assert re.search(
        r"^  error 2627 \(23505\), transaction 0x[0-9a-f]{16}, command 1, article public\.item, key id = 3$",
        failed.outcome.err,
        re.MULTILINE,
    )
    assert list(failed.commands) == ["browse", "run", "skip", "validate"]
    # What came before it in its commit batch is delivered; what follows waits.
    assert _rows(failed) == [(1, "first"), (2, "new"), (3, "mine")]
    shown = failed.paste(failed.commands["browse"])
    assert (shown.status, shown.out.count("(3, 'new')") + shown.out.count("(3,'new')")) == (0, 1), shown


def test_rows_that_are_mended_let_the_delivery_go_on(failed: Failed) -> None:
    failed.site.at_subscriber(_MENDED)
    assert failed.paste(failed.commands["run"]).status == 0
    assert differing_rows(failed.site) == {}


def test_a_transaction_that_was_skipped_is_repaired(failed: Failed) -> None:
    assert failed.paste(failed.commands["validate"]).status == 1, "it delivers first, and meets the same error"
    assert failed.paste(failed.commands["skip"]).status == 0
    repaired = failed.paste(failed.commands["validate"])
    assert repaired.status == 0, repaired.err
    assert differing_rows(failed.site) == {}


# The runbook


def _blocks(heading: str) -> list[str]:
    """Return the commands below a heading."""
    (section,) = re.findall(rf"^### {re.escape(heading)}\n(.*?)(?=^##|\Z)", _RUNBOOK, re.MULTILINE | re.DOTALL)
    return [line for block in re.findall(r"```sh\n(.*?)```", section, re.DOTALL) for line in block.splitlines()]


def _own(failed: Failed, line: str) -> str:
    seqno = shlex.split(failed.commands["skip"])[-1]
    return line.replace(_FILE_IN_RUNBOOK, shlex.quote(str(failed.file))).replace(_SEQNO_IN_RUNBOOK, seqno)


@pytest.mark.slow_after(2)
@pytest.mark.parametrize(
    "heading", ["Mend the Subscriber's rows", "Skip the transaction, then repair", "Skip an error", "Reinitialize"]
)
def test_each_way_of_the_runbook_leads_on(failed: Failed, heading: str) -> None:
    if heading == "Mend the Subscriber's rows":
        failed.site.at_subscriber(_MENDED)
    if heading == "Skip an error":
        document = yaml.safe_load(failed.file.read_text(encoding="utf-8"))
        document["subscriptions"][0]["skip_errors"] = [2627]
        failed.file.write_text(yaml.safe_dump(document), encoding="utf-8")
    lines = [_own(failed, line) for line in _blocks(heading)]
    assert lines
    outcomes = [failed.paste(line) for line in lines]
    if heading == "Skip an error":
        assert [it.status for it in outcomes] == [0, 1], "the rows differ, as the page says"
        assert distribution_rows(failed.site, "SELECT error_code FROM msrepl_errors WHERE skipped") == [
            ("2627 (23505)",)
        ]
        assert failed.paste(f"{lines[-1]} --repair").status == 0
    else:
        assert [it.status for it in outcomes] == [0] * len(outcomes), outcomes
    assert differing_rows(failed.site) == {}


def test_every_command_of_the_runbook_is_tried_here() -> None:
    ways = re.findall(r"^### (.*)$", _RUNBOOK, re.MULTILINE)
    tried = {line for way in ways for line in _blocks(way)}
    all_of_them = re.findall(r"^tranrepl .*$", _RUNBOOK, re.MULTILINE)
    assert {it for it in all_of_them if it not in tried} == {
        f"tranrepl browse {_FILE_IN_RUNBOOK} --from {_SEQNO_IN_RUNBOOK} --to {_SEQNO_IN_RUNBOOK}"
    }
