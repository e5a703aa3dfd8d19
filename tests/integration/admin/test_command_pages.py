"""Stored commands a page at a time: the pages together are what is stored, and no page reads more than it may."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

import pytest

from support.databases import shared_databases
from support.embedded_postgres import PostgresServer
from support.in_process import read_log_into_store
from support.observed import stored_commands
from support.site import Site
from tranrepl.admin import command_pages
from tranrepl.admin.browse import BrowsedCommand
from tranrepl.admin.command_pages import CommandChoice, CommandPlace, StoredCommands

PAIR = "CREATE TABLE pair (a int, b text, note text, PRIMARY KEY (a, b))"


@pytest.fixture(scope="module")
def site(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Yield three batches of two tables: small transactions, and one of forty commands."""
    with shared_databases(postgres, "command_pages") as databases:
        site = Site(databases, tmp_path_factory.mktemp("command_pages") / "store", ["public.item", "public.pair"])
        site.at_publisher("CREATE TABLE item (id bigint PRIMARY KEY, note text)", PAIR)
        site.set_up()
        site.at_publisher(*(f"INSERT INTO item VALUES ({n}, 'note {n}')" for n in range(1, 6)))
        read_log_into_store(site).raise_error()
        site.at_publisher("INSERT INTO pair SELECT n, 'x' || n, 'p' FROM generate_series(1, 40) n")
        read_log_into_store(site).raise_error()
        site.at_publisher("UPDATE item SET id = 77 WHERE id = 5", "DELETE FROM item WHERE id = 4", "DELETE FROM pair")
        read_log_into_store(site).raise_error()
        yield site


@contextmanager
def _stored(site: Site) -> Iterator[StoredCommands]:
    with site.topology.distributor() as database:
        yield StoredCommands(database, "purchasing")


def _pages(site: Site, choice: CommandChoice) -> list[list[BrowsedCommand]]:
    """Page by page, as one who follows each page's link."""
    pages: list[list[BrowsedCommand]] = []
    place: CommandPlace | None = choice.begin
    with _stored(site) as stored:
        while place is not None:
            page = stored.page(CommandChoice(place, choice.article, choice.key, choice.most))
            pages.append(list(page.commands))
            assert page.next is None or page.next > place
            place = page.next
    return pages


@pytest.mark.parametrize("most", [1, 7, 40, 1000])
def test_the_pages_together_are_what_is_stored(site: Site, most: int) -> None:
    pages = _pages(site, CommandChoice(most=most))
    stored = stored_commands(site)
    assert [it for page in pages for it in page] == stored
    assert len(stored) == 5 + 40 + 2 + 1 + 40
    assert all(len(page) == most for page in pages[:-1])


def test_a_page_begins_at_any_command(site: Site) -> None:
    stored = stored_commands(site)
    for at in (0, 4, 20, 47, 87):
        begin = CommandPlace(bytes.fromhex(stored[at].xact_seqno), stored[at].command_id)
        with _stored(site) as opened:
            assert list(opened.page(CommandChoice(begin)).commands) == stored[at:]
            assert opened.command(begin) == stored[at]
            assert opened.command(CommandPlace(begin.xact_seqno, 999)) is None


def test_a_filter_by_article_and_key_finds_both_images(site: Site) -> None:
    stored = stored_commands(site)
    of_item = [it for page in _pages(site, CommandChoice(article="public.item", most=2)) for it in page]
    assert of_item == [it for it in stored if it.article == "public.item"]

    def found(key: str, article: str | None = None) -> list[tuple[str, str]]:
        commands = [it for page in _pages(site, CommandChoice(article=article, key=key, most=3)) for it in page]
        assert all(it in stored for it in commands)
        return [(it.article, it.operation) for it in commands]

    assert found("id = 4") == found("4") == [("public.item", "INSERT"), ("public.item", "DELETE")]
    # An UPDATE of a key goes out as DELETE and INSERT.
    assert found("77") == [("public.item", "INSERT")]
    assert found("5") == [("public.item", "INSERT"), ("public.item", "DELETE")]
    assert found("4, x4") == found("a = 4, b = x4") == [("public.pair", "INSERT"), ("public.pair", "DELETE")]
    assert found("x4") == found("note 4") == found("4", "public.pair") == []


def test_transactions_are_counted_without_a_value(site: Site) -> None:
    stored = stored_commands(site)
    counted: dict[str, Counter[tuple[str, str]]] = {}
    for it in stored:
        counted.setdefault(it.xact_seqno, Counter())[it.article, it.operation] += 1
    found: dict[str, Counter[tuple[str, str]]] = {}
    place = CommandPlace()
    with _stored(site) as opened:
        while True:
            page = opened.transactions(CommandChoice(place, most=3))
            found |= {it.xact_seqno: it.commands for it in page.transactions}
            if page.next is None:
                break
            place = page.next
    assert found == counted
    assert "note" not in str(found)


def test_a_page_looks_at_a_bounded_number_of_commands(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_pages, "MOST_LOOKED_AT", 1)
    monkeypatch.setattr(command_pages, "MOST_BATCHES", 1)
    pages = _pages(site, CommandChoice(key="id = 77", most=100))
    assert len(pages) >= 3
    assert [it.operation for page in pages for it in page] == ["INSERT"]
    everything = [it for page in _pages(site, CommandChoice()) for it in page]
    assert everything == stored_commands(site)
    assert all(first != second for first, second in pairwise(everything))
