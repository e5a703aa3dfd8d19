"""What becomes of a subscription, or an article, that its publication's file names otherwise than before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from conftest import DatabaseFactory, DatabasesFactory
from support.child_job import LOG_READER, ChildJob
from support.observed import ITEM, distribution_rows, insert_transactions
from support.site import Site
from support.spark_here import SparkHere
from tranrepl.admin.status import status
from tranrepl.distributor.database.articles import Articles
from tranrepl.errors import ConfigurationError, DataError
from tranrepl.failpoint import Failpoint
from tranrepl.publisher.postgres import log_range, slot_messages
from tranrepl.publisher.postgres.lsn import lsn_number
from tranrepl.publisher.postgres.oversized_messages import LongMessage

_REPORTING = {"name": "reporting", "connection": "subscriber"}


@pytest.fixture
def site(databases: DatabasesFactory, tmp_path: Path) -> Site:
    site = Site(databases(), tmp_path / "store", ["public.item"], SparkHere())
    site.at_publisher(ITEM)
    site.set_up()
    return site


def _changed(
    site: Site,
    subscriptions: Sequence[Mapping[str, object]] = (_REPORTING,),
    article: Mapping[str, object] | str = "public.item",
) -> Site:
    store = site.publication.distributor.store
    return Site(site.databases, store, [article], site.spark, subscriptions)


def _subscriptions(site: Site) -> list[tuple[Any, ...]]:
    return distribution_rows(site, "SELECT subscription, status FROM mssubscriptions ORDER BY 1")


def test_a_renamed_subscription_is_refused_and_loses_nothing(site: Site) -> None:
    renamed = _changed(site, [{"name": "reports", "connection": "subscriber"}])
    with pytest.raises(ConfigurationError, match="everything stored would be delivered again"):
        renamed.set_up()
    assert _subscriptions(site) == [("reporting", "active")]
    insert_transactions(site, 2)
    site.run()
    assert site.differences() == []


def test_a_subscription_that_is_taken_out_is_deactivated_by_setup(site: Site, database: DatabaseFactory) -> None:
    other = _changed(site, [{"name": "archive", "connection": "archive"}])
    other.connections["archive"] = database("archive")
    assert other.set_up()[-1] == "deactivated subscription reporting, which the file no longer names"
    assert _subscriptions(site) == [("archive", "active"), ("reporting", "inactive")]
    site.set_up()
    with pytest.raises(ConfigurationError, match="must be reinitialized"):
        site.deliver()


def test_what_was_read_before_is_delivered_as_the_article_was(site: Site) -> None:
    changed = _changed(site, article={"source": "public.item", "upd_cmd": "SQL"})
    insert_transactions(site, 1)
    site.at_publisher("UPDATE item SET note = 'before' WHERE id = 1")
    site.read_log().raise_error()
    with pytest.raises(ConfigurationError, match="is not registered as its file describes it"):
        changed.read_log()
    told = status(changed.topology)
    assert told.wrong == ["the log cannot be read on"]
    assert "is not registered as its file describes it" in (told.log_reader.problem or "")
    changed.set_up()
    site.at_publisher("UPDATE item SET note = 'after' WHERE id = 1")
    changed.run()
    assert changed.differences() == []
    commands = distribution_rows(site, "SELECT upd_cmd, status FROM msarticles ORDER BY article_id")
    assert commands == [("SCALL", "inactive"), ("SQL", "active")]


def test_a_file_is_changed_many_times_while_commands_of_before_wait(site: Site) -> None:
    styles = ["SQL", "CALL", "MCALL", "SCALL", "XCALL"]
    changed = [_changed(site, article={"source": "public.item", "upd_cmd": it}) for it in styles]
    insert_transactions(site, 1)
    site.at_publisher("UPDATE item SET note = 'before' WHERE id = 1")
    site.read_log().raise_error()
    for number, it in enumerate(changed):
        it.set_up()
        site.at_publisher(f"UPDATE item SET note = '{number}' WHERE id = 1")
    changed[-1].run()
    assert site.differences() == []
    commands = distribution_rows(site, "SELECT upd_cmd, status FROM msarticles ORDER BY article_id")
    assert commands == [("SCALL", "inactive"), *((it, "inactive") for it in styles[:-1]), ("XCALL", "active")]


def test_a_log_reader_that_reads_while_setup_changes_a_definition_reads_on(site: Site) -> None:
    changed = _changed(site, article={"source": "public.item", "upd_cmd": "CALL"})
    insert_transactions(site, 1)
    site.run()
    site.at_publisher("UPDATE item SET note = 'after' WHERE id = 1")
    with ChildJob(LOG_READER, site, f"{Failpoint.STORED}/stop") as reader:
        reader.wait_until_it_stands_still()
        changed.set_up()
        reader.go_on()
        assert reader.result().error is None
    changed.run()
    assert changed.differences() == []


def test_what_the_log_reader_registers_while_setup_works_stays(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    first = _changed(site, article={"source": "public.item", "upd_cmd": "SQL"})
    second = _changed(site, article={"source": "public.item", "upd_cmd": "SQL", "del_cmd": "SQL"})
    insert_transactions(site, 1)
    site.run()
    first.set_up()
    register = Articles.set_up
    read: list[Any] = []

    def registers(articles: Articles, *arguments: Any) -> Any:
        if not read:
            read.append(first.read_log())
        return register(articles, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(Articles, "set_up", registers)
        second.set_up()
    site.at_publisher("UPDATE item SET note = 'after' WHERE id = 1")
    second.run()
    assert second.differences() == []
    commands = distribution_rows(site, "SELECT upd_cmd, del_cmd, status FROM msarticles ORDER BY article_id")
    assert [it[:2] for it in commands] == [("SCALL", "CALL"), ("SQL", "CALL"), ("SQL", "SQL")]
    assert [it[2] for it in commands] == ["inactive", "inactive", "active"]


def test_an_alteration_that_is_read_while_setup_works_stays(
    databases: DatabasesFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(databases(), tmp_path / "store", ["public.item"], SparkHere(), replicate_ddl=True)
    site.at_publisher(ITEM)
    site.set_up()
    insert_transactions(site, 1)
    site.run()
    register, read = Articles.set_up, list[bool]()

    def registers(articles: Articles, *arguments: Any) -> Any:
        if not read:
            read.append(True)
            site.at_publisher("ALTER TABLE item ADD more int DEFAULT 5")
            site.run()
        return register(articles, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(Articles, "set_up", registers)
        site.set_up()
    site.at_publisher("UPDATE item SET more = 7 WHERE id = 1")
    site.run()
    assert site.at_subscriber("SELECT more FROM item") == [(7,)]


def test_an_article_that_comes_back_is_as_its_file_says(site: Site) -> None:
    """What the log holds of it from before it went means nothing any more."""
    site.at_publisher("CREATE TABLE other (id int PRIMARY KEY)")
    store = site.publication.distributor.store

    def changed(*articles: Mapping[str, object] | str) -> Site:
        return Site(site.databases, store, ["public.other", *articles], site.spark)

    changed({"source": "public.item", "upd_cmd": "SQL"}).set_up()
    changed().set_up()
    again = changed({"source": "public.item", "upd_cmd": "CALL"})
    again.set_up()
    insert_transactions(site, 1)
    site.at_publisher("UPDATE item SET note = 'after' WHERE id = 1")
    again.run()
    assert again.differences() == []
    commands = distribution_rows(
        site, "SELECT upd_cmd FROM msarticles WHERE status = 'active' AND destination_object = 'item'"
    )
    assert commands == [("CALL",)]


_TOO_LONG = "ERROR:  string buffer exceeds maximum allowed length (1073741823 bytes)"


@pytest.mark.parametrize("is_edited", [True, False])
def test_definitions_before_what_is_too_long_are_read(
    databases: DatabasesFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_edited: bool
) -> None:
    site = Site(databases(), tmp_path / "store", ["public.item"], SparkHere(), replicate_ddl=True)
    site.at_publisher(ITEM)
    site.at_subscriber(ITEM)
    site.set_up()
    insert_transactions(site, 1)
    if is_edited:
        settings = {"source": "public.item", "upd_cmd": "SQL"}
        site = Site(site.databases, tmp_path / "store", [settings], SparkHere(), replicate_ddl=True)
        site.set_up()
    else:
        site.at_publisher("ALTER TABLE item ADD more int")
    site.at_publisher("UPDATE item SET note = 'after' WHERE id = 1")
    ((end, table),) = site.at_publisher("SELECT pg_current_wal_insert_lsn()::text, 'item'::regclass::oid::bigint")
    site.at_publisher("UPDATE item SET note = 'too long' WHERE id = 1")
    read_range, readable_to = slot_messages._read_range, lsn_number(end)
    reads: list[int] = []

    def read_up_to(slot: str, copy: str, up_to: int) -> str:
        reads.append(up_to)
        assert len(reads) < 30, "the same is read again and again"
        if up_to > readable_to:
            raise OSError(_TOO_LONG)
        return read_range(slot, copy, up_to)

    long_message = LongMessage(commit_lsn=readable_to + 100, xid=7, read_up_to=readable_to, tables=(table,))
    with monkeypatch.context() as patched:
        patched.setattr(slot_messages, "_read_range", read_up_to)
        patched.setattr(log_range, "find_long_message", lambda *_: long_message)
        with pytest.raises(DataError, match="too long"):
            site.run_log_reader().raise_error()
    site.run()
    assert site.differences() == []
