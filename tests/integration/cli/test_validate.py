"""`tranrepl validate`: its exit status, and its report at the terminal, in JSON and in the history."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import DatabasesFactory
from support.shell import Outcome, publication_file, typed
from support.site import Site, execute
from support.spark_here import SparkHere
from support.validated_site import COLUMNS, validated_site
from tranrepl.validation import job


@pytest.fixture
def site(databases: DatabasesFactory, tmp_path: Path) -> Site:
    return validated_site(databases(), tmp_path, SparkHere())


@pytest.fixture
def shell(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    """Return `tranrepl validate` with its job on the shared Spark session instead of one of its own."""
    monkeypatch.setattr(
        "tranrepl.cli.validate.submit", lambda request, _: job.run(site.spark, request, site.connections)
    )
    file = publication_file(tmp_path, [{"source": "public.item", "filter": "region <> 0"}])
    site.at_publisher(f"CREATE TABLE item ({COLUMNS})")
    site.set_up()
    site.at_publisher("INSERT INTO item SELECT g, 1, 'name' FROM generate_series(1, 50) g")
    site.run()
    environment = {**site.databases.environment, "COLUMNS": "100"}
    return lambda *arguments: typed("validate", file, *arguments, environment=environment)


def test_the_shell_tells_what_differs_and_what_was_repaired(
    site: Site, shell: Callable[..., Outcome], tmp_path: Path
) -> None:
    equal = shell()
    assert (equal.status, equal.err) == (0, "")
    assert re.search(r"public.item +50 +0 +0 +0 +equal", equal.out)
    assert _history(site) == [(2, None, "Validation passed")]
    site.at_subscriber("UPDATE item SET name = 'wrong' WHERE id = 7")
    only_counted = shell("--rowcount-only")
    assert only_counted.status == 0
    assert re.search(r"public.item +50 +counts equal; contents not compared +$", only_counted.out, re.MULTILINE)
    assert (" equal " in only_counted.out, "different" in only_counted.out) == (False, False)
    assert _history(site)[0] == (2, None, "Counts equal")

    site.at_subscriber("UPDATE item SET name = NULL WHERE id = 7", "DELETE FROM item WHERE id > 20")
    differs = shell("--article", "public.item")
    assert differs.status == 1
    assert differs.errors[0].startswith(
        "Subscriber reporting: data validation failed: article public.item: 30 missing, 1 different\n"
    )
    assert "  public.item id = 7  different: name\n" in differs.out
    assert "public.item: 11 more; --json names them" in differs.out
    assert "public.item id = 40  missing" not in differs.out
    assert _history(site)[0] == (2, "20574", "Subscriber reporting")

    counted = shell("--rowcount-only", "--json")
    assert counted.status == 1
    (article,) = json.loads(counted.out)["reporting"]["validation"]["articles"]
    assert (article["publisher_rows"], article["subscriber_rows"], article["rows"]) == (50, 20, [])

    script = tmp_path / "repair.sql"
    assert shell("--repair-script", script).status == 1
    assert script.read_text().count("\nINSERT INTO ") == 30
    again = shell("--repair-script", script)
    assert (again.status, again.errors[0].split(":")[0]) == (1, "--repair-script")

    repaired = shell("--repair")
    assert (repaired.status, repaired.err) == (0, "")
    assert "31 rows repaired" in repaired.out
    assert shell().status == 0


def test_what_cannot_be_asked_is_refused(shell: Callable[..., Outcome]) -> None:
    asked = {
        ("--repair", "--repair-script", "out.sql"): "--repair and --repair-script",
        ("--repair", "--rowcount-only"): "--rowcount-only does not find which rows differ",
        ("--article", "public.other"): "publication purchasing has no article 'public.other'",
        ("-s", "other"): "publication purchasing has no subscription 'other'",
    }
    for arguments, message in asked.items():
        outcome = shell(*arguments)
        assert (outcome.status, outcome.out) == (1, "")
        assert outcome.errors[0].startswith(message)


def _history(site: Site) -> list[tuple[int, str | None, str]]:
    """Return the validations, newest first: status, error number, the first words."""
    rows = execute(
        site.databases.distribution,
        "SELECT runstatus, error_code, substring(comments from '^\\w+ \\w+') FROM msdistribution_history h "
        "LEFT JOIN msrepl_errors e ON e.id = h.error_id WHERE comments ~ 'alidation|^Counts' ORDER BY h.id DESC",
    )
    return [(status, number, words) for status, number, words in rows]
