"""Every `tranrepl` command of these pages is pasted in the page's order, and must end well."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from conftest import DatabasesFactory
from support.checkout import CHECKOUT, shell_blocks
from support.equality import differing_rows
from support.shell import publication_file, run_submitted_jobs_here, typed
from support.site import Site
from support.spark_here import SparkHere

_PAGES_THAT_DELIVER = (
    "how-to/snapshot.md",
    "how-to/validate.md",
    "how-to/schema-changes.md",
)
_PAGES_THAT_DELIVER_NOTHING = ("how-to/change-a-file.md", "how-to/remove-a-publication.md", "reference/status.md")
_TABLES = (
    "CREATE TABLE customer (customer_id int PRIMARY KEY, name text)",
    "CREATE TABLE orders (order_id int PRIMARY KEY, customer_id int, total numeric(9, 2))",
    "INSERT INTO customer VALUES (1, 'Ada'), (2, 'Grace')",
    "INSERT INTO orders VALUES (10, 1, 99.50), (11, 2, 12.00)",
)
_CHANGES = ("INSERT INTO customer VALUES (3, 'Edgar')", "UPDATE orders SET total = 15 WHERE order_id = 11")
_ASKED = ["--yes"]
"""What a person would answer to teardown, whose question has tests of its own."""


@pytest.mark.parametrize("page", [*_PAGES_THAT_DELIVER, *_PAGES_THAT_DELIVER_NOTHING])
def test_the_commands_of_a_page_do_what_it_says(
    page: str, databases: DatabasesFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, file = _running_publication(databases, tmp_path, monkeypatch)
    for block in shell_blocks(CHECKOUT / "docs" / page):
        for command in block.commands if block.reason is None else ():
            site.at_publisher(*(it for it in _CHANGES if "INSERT" not in it))
            outcome = typed(*_here(command, file), environment=site.databases.environment)
            assert outcome.status == 0, (command, outcome)
    assert (differing_rows(site) == {}) == (page in _PAGES_THAT_DELIVER)


def _running_publication(
    databases: DatabasesFactory, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Site, Path]:
    """Return `shop`, set up and run once, with a change that waits."""
    monkeypatch.chdir(folder)
    publications = folder / "publications"
    publications.mkdir()
    articles = [{"source": f"public.{it}", "pre_creation_cmd": "delete"} for it in ("customer", "orders")]
    subscriptions = [{"name": "reporting", "connection": "subscriber", "sync_type": "automatic"}]
    site = Site(databases(), publications / "store", articles, SparkHere(), subscriptions)
    file = publication_file(publications, articles, subscriptions=subscriptions)
    run_submitted_jobs_here(site.spark, monkeypatch)
    site.at_publisher(*_TABLES)
    site.set_up()
    assert typed("run", file, environment=site.databases.environment).status == 0
    site.at_publisher(*_CHANGES)
    return site, file


def _here(command: str, file: Path) -> list[str]:
    name, verb, *arguments = shlex.split(command, comments=True)
    assert name == "tranrepl"
    places = {"dags/publications/shop.yaml": str(file), "dags/publications": str(file.parent)}
    answered = _ASKED if verb == "teardown" and "--dry-run" not in arguments else []
    return [verb, *(places.get(it, it) for it in arguments), *answered]
