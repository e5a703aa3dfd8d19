"""The commands of how-to/restore.md, typed after what the page names has happened to a server."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from conftest import DatabaseFactory, DatabasesFactory
from support.checkout import CHECKOUT, shell_blocks
from support.databases import Databases
from support.embedded_postgres import PostgresServer
from support.equality import differing_rows
from support.kept_sessions import end_kept_sessions
from support.observed import stored_commands
from support.server_copies import back_up, restore
from support.shell import Outcome, publication_file, run_submitted_jobs_here, typed
from support.site import Site
from support.spark_here import SparkHere

_PAGE = CHECKOUT / "docs" / "how-to" / "restore.md"
_TABLE = "CREATE TABLE item (id bigint PRIMARY KEY, note text)"
_ARTICLES = [{"source": "public.item", "pre_creation_cmd": "truncate"}]
_SUBSCRIPTIONS = [{"name": "reporting", "connection": "subscriber", "sync_type": "automatic"}]


@dataclass
class _Shell:
    """A publication that has delivered rows 1 to 3, and what is typed about it."""

    site: Site
    file: Path
    places: dict[str, str] = field(default_factory=dict)
    """Words of the page, and what stands for them here."""

    def type(self, command: str) -> Outcome:
        name, *arguments = shlex.split(command)
        assert name == "tranrepl"
        places = {"dags/publications/shop.yaml": str(self.file), "FILE": str(self.file), **self.places}
        return typed(*(places.get(it, it) for it in arguments), environment=self.site.databases.environment)

    def must(self, command: str) -> None:
        outcome = self.type(command)
        assert outcome.status == 0, (command, outcome)

    def run_is_refused(self, *said: str) -> None:
        outcome = self.type("tranrepl run FILE")
        assert outcome.status == 1, outcome
        for it in said:
            assert it in outcome.err, outcome.err

    def write(self, **changes: object) -> None:
        publication_file(self.file.parent, _ARTICLES, subscriptions=_SUBSCRIPTIONS, **changes)

    def insert(self, *ids: int) -> None:
        self.site.at_publisher(*(f"INSERT INTO item (id, note) VALUES ({it}, 'new')" for it in ids))

    def assert_replicates(self, number: int) -> None:
        self.insert(number)
        self.must("tranrepl run FILE")
        assert differing_rows(self.site) == {}


def _shell(databases: Databases, folder: Path, monkeypatch: pytest.MonkeyPatch) -> _Shell:
    site = Site(databases, folder / "store", _ARTICLES, SparkHere(), _SUBSCRIPTIONS, replicate_ddl=True)
    run_submitted_jobs_here(site.spark, monkeypatch)
    shell = _Shell(site, folder / "purchasing.yaml", {"NAME": "reporting"})
    shell.write()
    site.at_publisher(_TABLE)
    shell.must("tranrepl setup FILE")
    shell.insert(1, 2, 3)
    shell.must("tranrepl run FILE")
    return shell


# After the log went back


@pytest.mark.parametrize("section", ["Take the Publisher's rows", "Correct only what differs"])
def test_a_publisher_of_an_older_backup_is_taken_as_it_is(
    section: str,
    own_server: PostgresServer,
    databases: DatabasesFactory,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    others = databases()
    here = replace(others, publisher=own_server.connection("publisher", "publisher"))
    shell = _shell(here, tmp_path, monkeypatch)
    backup = back_up(own_server, tmp_path / "backup")
    shell.insert(4, 5)
    shell.must("tranrepl run FILE")
    restore(own_server, backup)
    shell.insert(6)
    named = " ".join(shell.type("tranrepl status FILE").out.split())
    assert "`tranrepl reinitialize" in named
    shell.run_is_refused("18846")
    blocks = {block.commands[-1]: block.commands for block in shell_blocks(_PAGE)}
    last = {"Take the Publisher's rows": "reinitialize", "Correct only what differs": "validate"}[section]
    (commands,) = [it for end, it in blocks.items() if f"tranrepl {last} " in end]
    for command in commands:
        shell.must(command)
    assert differing_rows(shell.site) == {}
    shell.assert_replicates(7)


# The table of other cases, row by row


def _lose_the_distribution_database(shell: _Shell, database: DatabaseFactory, _: PostgresServer) -> None:
    shell.site.databases = replace(shell.site.databases, distribution=database("distribution"))
    shell.write(distributor={"connection": "distribution", "store": str(shell.file.parent / "empty")})
    shell.site.connections["distribution"] = shell.site.databases.distribution


def _lose_the_stores_mark(shell: _Shell, _: DatabaseFactory, __: PostgresServer) -> None:
    (shell.file.parent / "store" / "_tranrepl_store.json").unlink()
    shell.insert(4)
    shell.run_is_refused("_tranrepl_store.json")


def _restore_a_backup_that_is_too_old(shell: _Shell, _: DatabaseFactory, server: PostgresServer) -> None:
    name = shell.site.databases.subscriber.database
    _at(server, f'CREATE DATABASE "{name}_backup" TEMPLATE "{name}"')
    shell.insert(4)
    shell.must("tranrepl run FILE")
    shell.must("tranrepl cleanup FILE")
    _at(server, f'DROP DATABASE "{name}" WITH (FORCE)', f'ALTER DATABASE "{name}_backup" RENAME TO "{name}"')
    shell.run_is_refused("21074")


def _at(server: PostgresServer, *statements: str) -> None:
    end_kept_sessions()
    with server.connect() as session:
        for it in statements:
            session.execute(it.encode())


def _lose_the_watermark(shell: _Shell, _: DatabaseFactory, __: PostgresServer) -> None:
    shell.site.at_subscriber("DELETE FROM msreplication_subscriptions")
    shell.insert(4)
    shell.run_is_refused()


def _put_rows_back(shell: _Shell, _: DatabaseFactory, __: PostgresServer) -> None:
    shell.insert(4, 5)
    shell.must("tranrepl run FILE")
    shell.places["X"] = f"0x{stored_commands(shell.site)[-2].xact_seqno}"
    shell.site.at_subscriber("DELETE FROM item WHERE id > 3")


def _put_rows_back_of_before_a_schema_change(shell: _Shell, database: DatabaseFactory, server: PostgresServer) -> None:
    _put_rows_back(shell, database, server)
    shell.site.at_publisher("ALTER TABLE item ADD COLUMN added int", "INSERT INTO item VALUES (6, 'new', 1)")
    shell.must("tranrepl run FILE")
    refused = shell.type("tranrepl retry FILE -s NAME --from-xact-seqno X")
    assert refused.status == 1, refused


_CASES: Mapping[str, Callable[[_Shell, DatabaseFactory, PostgresServer], None]] = {
    "the distribution database is lost": _lose_the_distribution_database,
    "the store was restored without": _lose_the_stores_mark,
    "a Subscriber was restored from a backup that is too old": _restore_a_backup_that_is_too_old,
    "a Subscriber's watermark is gone": _lose_the_watermark,
    "a Subscriber's rows were put back by hand": _put_rows_back,
    "they are of before a schema change": _put_rows_back_of_before_a_schema_change,
}


def _rows_of_the_page() -> dict[str, list[str]]:
    """Return the commands of the table's second column, by its first."""
    rows = re.findall(r"^\| (.*?) \| (.*?) \|$", _PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return {what: re.findall(r"`(tranrepl [^`]+)`", todo) for what, todo in rows if "`tranrepl" in todo}


def test_every_case_of_the_page_is_typed() -> None:
    assert [it for it in _rows_of_the_page() if not it.startswith(tuple(_CASES))] == []


@pytest.mark.parametrize("case", _CASES)
def test_the_commands_of_a_case_bring_the_rows_back(
    case: str,
    databases: DatabasesFactory,
    database: DatabaseFactory,
    postgres: PostgresServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shell = _shell(databases(), tmp_path, monkeypatch)
    _CASES[case](shell, database, postgres)
    (commands,) = [todo for what, todo in _rows_of_the_page().items() if what.startswith(case)]
    for command in commands:
        shell.must(command)
    shell.must("tranrepl run FILE")
    assert differing_rows(shell.site) == {}
    shell.assert_replicates(20)
