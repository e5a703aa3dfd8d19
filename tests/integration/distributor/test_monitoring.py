"""What Replication Monitor's page shows of a publication, held against the publication itself."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

import pytest
import sqlalchemy as sa

from conftest import DatabasesFactory
from support.site import Site
from support.spark_here import SparkHere
from tranrepl.admin.trace import post_token
from tranrepl.connections import Connection
from tranrepl.distributor.database import DistributionDatabase, UnknownRows
from tranrepl.distributor.database.errors import newest_errors
from tranrepl.distributor.monitoring.charts import charts
from tranrepl.distributor.monitoring.period import Period
from tranrepl.distributor.monitoring.publication import MonitoredRecord, find_publication
from tranrepl.distributor.monitoring.published_articles import published_articles
from tranrepl.distributor.monitoring.registered_settings import registered_settings
from tranrepl.distributor.monitoring.runs import Agent, ChosenRuns, newest_runs
from tranrepl.distributor.monitoring.schema_changes import newest_changes
from tranrepl.distributor.monitoring.snapshots import newest_snapshots
from tranrepl.settings.publication import Publication

Answer = TypeVar("Answer")
_ARTICLES = ("public.item", "public.part")


@pytest.fixture
def site(databases: DatabasesFactory, tmp_path: Path) -> Site:
    """Two articles, one subscription that begins with a snapshot, and one that does not."""
    subscriptions = [
        {"name": "reporting", "connection": "subscriber", "sync_type": "automatic"},
        {"name": "audit", "connection": "subscriber"},
    ]
    site = Site(databases(), tmp_path / "store", _ARTICLES, SparkHere(), subscriptions, replicate_ddl=True)
    site.at_publisher("CREATE TABLE item (id int PRIMARY KEY, note text)", "CREATE TABLE part (id int PRIMARY KEY)")
    site.at_publisher("INSERT INTO item VALUES (1, 'one'), (2, 'two')")
    site.set_up()
    return site


def _ask(connection: Connection, name: str, question: Callable[[sa.Connection, MonitoredRecord], Answer]) -> Answer:
    with DistributionDatabase(connection) as database, database.transaction() as session:
        record = find_publication(session, name)
        assert record is not None
        return question(session, record)


def _of(site: Site, question: Callable[[sa.Connection, MonitoredRecord], Answer]) -> Answer:
    return _ask(site.databases.distribution, "purchasing", question)


def test_a_snapshot_is_shown_from_its_wait_to_its_end(site: Site) -> None:
    waiting = _of(site, newest_snapshots)
    assert [(it.subscription, str(it.registered), it.status) for it in waiting] == [("reporting", "subscribed", None)]
    site.read_log().raise_error()
    site.take_snapshot()
    (taken,) = _of(site, newest_snapshots)
    assert (taken.status, list(taken.waiting)) == ("succeed", [])
    assert {it.article: (it.rows, it.share) for it in taken.tables} == {
        "public.item": (2, 1.0),
        "public.part": (0, 1.0),
    }
    assert taken.registered == "active"
    runs = _of(site, lambda session, record: newest_runs(session, record, ChosenRuns(10, Agent.SNAPSHOT)))
    assert [it.subscription for it in runs] == ["reporting"]


def test_an_article_that_is_to_begin_again_waits_with_its_reason(site: Site) -> None:
    site.read_log().raise_error()
    site.take_snapshot()
    with DistributionDatabase(site.databases.distribution) as database:
        subscription = database.subscriptions.get(database.publications.get("purchasing"), "reporting")
        database.snapshots.stop_article(subscription, "public.part", UnknownRows("its row filter changed"))
    (found,) = _of(site, newest_snapshots)
    assert [(it.article, str(it.status), it.reason) for it in found.waiting] == [
        ("public.part", "inactive", "its row filter changed")
    ]
    waits = {it.article: [at.subscription for at in it.waiting] for it in _of(site, published_articles)}
    assert waits == {"public.item": [], "public.part": ["reporting"]}


def test_a_schema_change_waits_until_each_subscription_has_it(site: Site) -> None:
    site.read_log().raise_error()
    site.take_snapshot()
    site.at_publisher("ALTER TABLE item ADD COLUMN price int", "ALTER TABLE item RENAME note TO remark")
    site.read_log().raise_error()
    changes = _of(site, lambda session, record: newest_changes(session, record, 10))
    assert [list(it.what) for it in changes] == [["ADD COLUMN price integer"], ["RENAME COLUMN note TO remark"]]
    assert {(tuple(it.delivered), tuple(it.waits_for)) for it in changes} == {((), ("audit", "reporting"))}
    site.deliver("reporting").raise_error()
    changes = _of(site, lambda session, record: newest_changes(session, record, 10))
    assert {(tuple(it.delivered), tuple(it.waits_for)) for it in changes} == {(("reporting",), ("audit",))}


def test_delivered_commands_are_counted_as_the_status_counts_them(site: Site) -> None:
    site.read_log().raise_error()
    site.take_snapshot()
    for id_ in (3, 4):
        site.at_publisher(f"INSERT INTO item VALUES ({id_}, 'more')", f"INSERT INTO part VALUES ({id_})")
        site.read_log().raise_error()
        site.deliver("reporting").raise_error()
    with DistributionDatabase(site.databases.distribution) as database:
        record = database.publications.get("purchasing")
        subscription = database.subscriptions.get(record, "reporting")
        counted = database.history.delivered_commands(record, subscription)
        database.history.remove(record, timedelta(0))
    found = {it.article: dict(it.delivered_commands) for it in _of(site, published_articles)}
    assert found == {name: {"reporting": counted[name]} for name in _ARTICLES}


def test_an_error_has_its_key_and_command_and_is_healed_by_a_good_run(site: Site) -> None:
    site.read_log().raise_error()
    site.take_snapshot()
    site.at_subscriber("DELETE FROM item WHERE id = 2")
    site.at_publisher("UPDATE item SET note = 'other' WHERE id = 2")
    site.read_log().raise_error()
    assert site.deliver("reporting").error is not None
    (error,) = _of(site, lambda session, record: newest_errors(session, record.publication_id, 10))
    report = error.report
    assert (report.number, report.article, report.key, error.healed) == ("20598", "public.item", "id = 2", False)
    assert "'other'" in (report.command or "")
    site.at_subscriber("INSERT INTO item VALUES (2, 'two')")
    site.deliver("reporting").raise_error()
    found = _of(site, lambda session, record: newest_errors(session, record.publication_id, 10))
    assert [it.healed for it in found] == [True]


def test_a_tracer_token_is_shown_by_its_legs(site: Site) -> None:
    site.read_log().raise_error()
    site.take_snapshot()
    post_token(site.topology)
    site.read_log().raise_error()
    (on_its_way,) = _of(site, lambda session, record: charts(session, record, _last_hour(), "reporting")).tokens
    assert (on_its_way.delivered_ms, on_its_way.arrived) == (None, 0)
    site.deliver("reporting").raise_error()
    (arrived,) = _of(site, lambda session, record: charts(session, record, _last_hour(), "reporting")).tokens
    assert arrived.delivered_ms is not None
    assert 0 <= arrived.registered_ms <= arrived.delivered_ms < 60_000


def test_what_the_file_says_otherwise_is_marked(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    document = site.publication.model_dump(mode="json")
    monkeypatch.setattr("tranrepl.distributor.monitoring.registered_settings._MOST_ALIKE", 1)
    same = _of(site, lambda session, record: registered_settings(session, record, site.publication))
    assert not same.differing
    assert ([it.article for it in same.articles], same.left_out) == (["public.item"], 1)
    assert not [it for it in same.publication if it.differs]
    document["articles"] = [{**document["articles"][0], "upd_cmd": "SQL", "filter": "id > 1"}, {"source": "public.new"}]
    document["subscriptions"] = [document["subscriptions"][0], {**document["subscriptions"][1], "name": "later"}]
    changed = Publication.model_validate(document)
    found = _of(site, lambda session, record: registered_settings(session, record, changed))
    assert {it.setting for it in found.publication if it.differs} == {"subscription audit", "subscription later"}
    assert {it.article: [at.setting for at in it.settings if at.differs] for it in found.differing} == {
        "public.item": ["upd_cmd", "filter"],
        "public.new": [],
        "public.part": [],
    }


def test_a_column_that_was_renamed_since_is_no_difference(site: Site) -> None:
    document = site.publication.model_dump(mode="json")
    document["articles"][0]["columns"] = ["id", "note"]
    site.publication = Publication.model_validate(document)
    site.set_up()
    site.at_publisher("ALTER TABLE item RENAME note TO remark")
    site.read_log().raise_error()
    found = _of(site, lambda session, record: registered_settings(session, record, site.publication))
    assert not found.differing


def _last_hour() -> Period:
    return Period(timedelta(minutes=1), 60, datetime.now(UTC))
