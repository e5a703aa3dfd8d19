"""A publication's page and its JSON: who sees what, which task a run was, and how fast it is with a long history."""

from __future__ import annotations

import json
import os
import shutil
import socket
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
import sqlalchemy as sa
from airflow.dag_processing.bundles.manager import DagBundlesManager
from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db
from airflow.models.taskinstance import TaskInstance
from airflow.sdk import DAG
from airflow.utils.session import create_session

from conftest import DatabaseFactory
from support.checkout import CHECKOUT
from support.databases import connection_environment
from support.large_history import ROW_KEY, Size, make_large_history, store_commands
from support.monitor_here import api_schema, assert_fits
from support.site import execute
from tranrepl.connections import Connection
from tranrepl.distributor.database import DistributionDatabase, PublicationRecord
from tranrepl.distributor.store import store_at
from tranrepl.errors import DataError
from tranrepl.jobs.results import JobResult
from tranrepl.jobs.validation_report import ArticleValidation, Difference, DifferingRow, SubscriptionValidation

# What they import warns of its own dependencies' future.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from airflow.api_fastapi.app import create_auth_manager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
    from airflow.api_fastapi.core_api.security import get_user
    from starlette.testclient import TestClient

    from tranrepl_airflow.monitor.access import Reader, reader_of
    from tranrepl_airflow.monitor.app import monitor_app
    from tranrepl_airflow.monitor.rendering import PARTS
    from tranrepl_airflow.monitor.triggering import OUR_HEADER

if TYPE_CHECKING:
    from airflow.conftest import FakeSpark, PublicationWriter

NAME = "purchasing"
ADMIN, VIEWER = "ADMIN", "VIEWER"
SCHEMA = Path(__file__).with_name("monitor_api_schema.json")
_API = [f"/{it}" if it else "" for it in (*PARTS, "charts")]
_PAGES = [f"/{it}" if it else "" for it in PARTS]
_ADDRESSES = [*(("/publication", it) for it in _PAGES), *(("/api/publication", it) for it in _API)]
_SUBSCRIPTION = "shop_001"
_MOST_CPU_SECONDS = 0.25
"""What a page takes of the API server, whoever else is at work."""
_MOST_SECONDS = 1.5
"""Other processes may be at work: a third of it is what a page takes at most on a machine of its own."""
_MOST_QUERIES = 20
_LONG_CHARTS = ("?range=24h", "?range=7d", f"?range=30d&subscription={_SUBSCRIPTION}")
_COMMANDS = ("/commands", "/commands?from=0x0000000000000320", "/commands?article=public.item_2", "/commands?article=x")
_STORED_BATCHES = 50
_SMALL = Size(articles=3, subscriptions=2, runs=40)


@pytest.fixture
def distribution(database: DatabaseFactory, monkeypatch: pytest.MonkeyPatch) -> Connection:
    """Let Airflow's connection lead to a distribution database with a publication that has a short history."""
    connection = database("monitored")
    _lead_to(connection, monkeypatch)
    make_large_history(connection, _SMALL, NAME)
    return connection


def _lead_to(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_DISTRIBUTION", next(iter(connection_environment([connection]).values())))


@pytest.fixture
def dags(publications: Path, write_publication: PublicationWriter, airflow_home: Path) -> Iterator[dict[str, DAG]]:
    """Let Airflow know the publication's DAGs."""
    copied = [publications.parent / it for it in ("validation.py", "reinitialization.py")]
    for path in copied:
        shutil.copy(CHECKOUT / "dags" / path.name, path)
    yield _known_dags(publications, write_publication, "*/5 * * * *")
    for path in copied:
        path.unlink()


def _known_dags(publications: Path, write_publication: PublicationWriter, schedule: str) -> dict[str, DAG]:
    write_publication(subscriptions=[{"name": _SUBSCRIPTION, "connection": "subscriber"}], schedule=schedule)
    bundles = DagBundlesManager()  # type: ignore[no-untyped-call]
    bundles.sync_bundles_to_db()
    bag = DagBag(publications.parent, bundle_name="dags-folder")
    sync_bag_to_db(bag, "dags-folder", None)
    return bag.dags


@contextmanager
def _client(role: str, reader: Reader | None = None) -> Iterator[TestClient]:
    create_auth_manager()
    app = monitor_app()
    app.dependency_overrides[get_user] = lambda: SimpleAuthManagerUser(username="somebody", role=role)
    if reader is not None:
        app.dependency_overrides[reader_of] = lambda: reader
    with TestClient(app, root_path="/monitor", raise_server_exceptions=False) as client:
        yield client


def _ask(role: str, part: str) -> Any:
    with _client(role) as client:
        return client.get(f"/api/publication/{NAME}{part}").raise_for_status().json()


@pytest.mark.usefixtures("dags")
def test_every_part_is_answered_as_its_schema_says(distribution: Connection) -> None:
    with _client(ADMIN) as client:
        schema = api_schema(client.app)
        for part in _API:
            answer = client.get(f"/api/publication/{NAME}{part}")
            assert answer.status_code == 200, answer.text
            assert_fits(schema, "answers", part.strip("/") or "state", answer.json())
        assert_fits(schema, "answers", "overview", client.get("/api/overview").json())


def test_the_schema_is_the_one_that_is_written_down() -> None:
    """Write it down again, after a change that is meant, with TRANREPL_WRITE_SCHEMA=1."""
    schema = api_schema(monitor_app())
    if os.environ.get("TRANREPL_WRITE_SCHEMA"):
        SCHEMA.write_text(json.dumps(schema, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    assert json.loads(SCHEMA.read_text(encoding="utf-8")) == schema


@pytest.mark.usefixtures("dags")
def test_early_warnings_that_stand_are_shown(distribution: Connection) -> None:
    mine = "subscription_id = (SELECT min(subscription_id) FROM mssubscriptions)"
    execute(distribution, f"UPDATE msdistribution_history SET time = time - interval '1 hour' WHERE {mine}")
    with _client(VIEWER) as client:
        (found,) = client.get("/api/overview").json()
        assert [(it["kind"], it["subscription"]) for it in found["warnings"]] == [("no run", _SUBSCRIPTION)]
        assert "no run" in client.get("/?state=attention").text
        page = client.get(f"/publication/{NAME}").text
    assert f"the delivery to subscription {_SUBSCRIPTION} has not run for 60 minutes" in page
    assert "look in Airflow whether the DAG is paused" in page


_FAILED = """
INSERT INTO msrepl_errors (publication_id, subscription, time, error_type, error_code, error_text, article, xact_seqno,
                           command_id)
SELECT publication_id, 'shop_001', now() + interval '1 s' * n, 'data', '20598', 'The row was not found.',
       'public.item_1', decode('0000000000000f04', 'hex'), 1
  FROM mspublications, generate_series(1, 3) n
"""
_DAMAGED = """
INSERT INTO msrepl_errors (publication_id, subscription, time, error_type, error_text, remedy, xact_seqno,
                           damaged_batch)
SELECT publication_id, 'shop_001', now() + interval '1 min', 'configuration', 'store: batch x cannot be read.',
       'restore x; or `tranrepl reinitialize FILE -s NAME` copies the rows again', '\\x0f04', true
  FROM mspublications
"""
_DIFFERING = """
INSERT INTO msrepl_errors (publication_id, subscription, time, error_type, error_code, error_text)
SELECT publication_id, 'shop_001', now() - interval '1 min', 'data', '20574', 'Rows differ.' FROM mspublications
"""
_SKIPPED = """
INSERT INTO msdistribution_history (publication_id, subscription_id, runstatus, start_time, time, duration, comments,
                                    xact_seqno, delivered_transactions, delivered_commands, delivery_rate,
                                    commands_by_article)
SELECT publication_id, subscription_id, 2, now(), now() + interval '1 min', 0,
       'transaction 0x0000000000000f04 was skipped by an administrator',
       decode('0000000000000f04', 'hex'), 0, 0, 0, '{}'
  FROM mssubscriptions WHERE subscription = 'shop_001'
"""


@pytest.mark.usefixtures("dags")
def test_one_failure_is_one_card_with_its_ways_on(distribution: Connection, publications: Path) -> None:
    execute(distribution, _FAILED)
    ways = ("commands?failing=shop_001#marked", "Run again", "repair=1#validate")
    with _client(ADMIN) as admin, _client(VIEWER) as viewer:
        card = admin.get(f"/publication/{NAME}/errors").text.partition("<section")[2].partition("</section>")[0]
        assert [it in card for it in (*ways, "Open", "Failed 3 times, first")] == [True] * 5
        assert f"tranrepl skip {publications / 'purchasing.yaml'} -s shop_001" in card
        execute(distribution, _DIFFERING)
        pages = [admin.get(f"/publication/{NAME}{it}").text for it in ("", "/errors", "/actions")]
        assert ["Errors (2)" in it for it in pages] == [True] * 3, "one failed, and one validation"
        assert (pages[1].count("Open</span>"), pages[1].count("Run again</button>")) == (2, 1)
        assert ("Rows differ." in pages[0], "found rows that differ" in pages[0]) == (True, False), "once"
        assert "/actions?subscription=shop_001&amp;repair=1#validate" in pages[0]
        execute(distribution, "DELETE FROM msrepl_errors WHERE error_code LIKE '20574%'", _DAMAGED)
        pages = [admin.get(it).text for it in ("/", *(f"/publication/{NAME}{it}" for it in ("/errors", "/actions")))]
        assert not any(it in page for page in pages for it in ("failing=shop_001", "ailing command"))
        card = pages[1].partition("<section")[2].partition("</section>")[0]
        assert ("Look at" in card, "Skip" in card, "tranrepl browse" in card) == (False, False, False)
        assert "/actions?subscription=shop_001#reinitialize" in card
        assert "tranrepl reinitialize" in card
        execute(distribution, "DELETE FROM msrepl_errors WHERE damaged_batch")
        form = admin.get(f"/publication/{NAME}/actions?subscription=shop_001&article=public.item_1&repair=1").text
        assert form.count(" selected>") == 2, "to validate and to reinitialize; the file has other articles"
        assert 'name="repair" checked' in form
        assert not any(it in viewer.get(f"/publication/{NAME}/errors").text for it in ways[1:])
        execute(distribution, _SKIPPED)
        card = admin.get(f"/publication/{NAME}/errors").text.partition("<section")[2].partition("</section>")[0]
        assert ("Skipped" in card, "Open" in card, "Run again" in card) == (True, False, False)
        assert "Errors (" not in admin.get(f"/publication/{NAME}").text


@pytest.mark.usefixtures("dags", "distribution")
def test_a_paused_dag_is_told_and_unpaused_by_who_may() -> None:
    address, headers = f"/api/publication/{NAME}/actions/unpause", {OUR_HEADER: "1"}
    with _client(VIEWER) as viewer:
        page = viewer.get(f"/publication/{NAME}").text
        assert ("The DAG is paused" in page, "Unpause</button>" in page) == (True, False)
        assert viewer.post(address, headers=headers).status_code == 403
    with _client(ADMIN) as admin:
        assert "Unpause</button>" in admin.get(f"/publication/{NAME}").text
        assert admin.post(address).status_code == 403, "another site's page could send it"
        assert admin.post(address, headers=headers).json() == {"dag_id": NAME}
        page, overview = admin.get(f"/publication/{NAME}").text, admin.get("/").text
        assert not any("paused" in it for it in (page, overview))
        assert "schedule <code>*/5 * * * *</code>" in page


@pytest.mark.usefixtures("airflow_home")
def test_a_publication_whose_agents_deliver_continuously_says_so(
    publications: Path, write_publication: PublicationWriter, distribution: Connection
) -> None:
    _known_dags(publications, write_publication, "continuous")
    with _client(ADMIN) as client:
        for silent, warnings_told in (("50 minutes", []), ("2 hours", ["agent suspect"])):
            since = f"UPDATE mslogreader_history SET runstatus = 3, time = now() - interval '{silent}'"
            execute(distribution, since)
            (found,) = client.get("/api/overview").json()
            assert [it["kind"] for it in found["warnings"]] == warnings_told
        assert "In progress, last progress <time" in client.get("/").text
        assert "Continuous agents" in client.get(f"/publication/{NAME}/actions").text


@pytest.mark.usefixtures("dags", "distribution")
def test_only_who_may_edit_the_dag_sees_values_of_rows() -> None:
    pages = [f"/publication/{NAME}{part}" for part in _PAGES]
    with _client(ADMIN) as admin, _client(VIEWER) as viewer:
        addresses = [*pages, *(f"/api/publication/{NAME}{part}" for part in _API)]
        seen = {it: admin.get(it).text for it in addresses}
        assert {it for it, text in seen.items() if ROW_KEY in text} == {
            f"/publication/{NAME}/errors",
            f"/api/publication/{NAME}/errors",
        }
        for it in addresses:
            answer = viewer.get(it)
            assert (answer.status_code, ROW_KEY in answer.text) == (200, False), it


@pytest.mark.usefixtures("dags", "distribution")
def test_a_dag_that_one_may_not_read_is_refused() -> None:
    nobody, other = Reader(frozenset(), frozenset()), Reader(frozenset({"other"}), frozenset({"other"}))
    for reader in (nobody, other):
        with _client(VIEWER, reader) as client:
            answers = [client.get(f"{start}/{NAME}{part}") for start, part in _ADDRESSES]
        assert {it.status_code for it in answers} == {403}
        assert not any("shop_00" in it.text for it in answers)
    with _client(VIEWER, other) as client:
        assert "is not the DAG of a publication" in client.get("/publication/other").text


@pytest.mark.usefixtures("dags")
def test_a_publication_that_is_not_set_up_says_what_to_do(
    database: DatabaseFactory, monkeypatch: pytest.MonkeyPatch, publications: Path
) -> None:
    connection = database("monitored")
    _lead_to(connection, monkeypatch)
    with _client(ADMIN) as client:
        assert (
            "is not set up for this version → run <code>tranrepl setup FILE</code>"
            in client.get(f"/publication/{NAME}").text
        )
        make_large_history(connection, _SMALL, "another")
        for part in _PAGES:
            assert "Not set up yet: set it up on" in client.get(f"/publication/{NAME}{part}").text, part
        for part in ("/actions", "/commands"):
            page, command = client.get(f"/publication/{NAME}{part}").text, "<code>tranrepl setup "
            assert f"is not set up → run {command}{publications / 'purchasing.yaml'}</code>" in page, part
        assert client.get(f"/api/publication/{NAME}/history").status_code == 404


@pytest.mark.usefixtures("dags")
def test_a_distribution_database_that_never_answers_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, _client(ADMIN) as client:
        port = silent.getsockname()[1]
        monkeypatch.setenv("AIRFLOW_CONN_DISTRIBUTION", f"postgres://u:p@127.0.0.1:{port}/d?connect_timeout=10")
        began = time.monotonic()
        page, data = client.get(f"/publication/{NAME}"), client.get(f"/api/publication/{NAME}/history")
        assert time.monotonic() - began < 10
    assert "no answer within 3 s" in page.text
    assert (data.status_code, "no answer within 3 s" in data.text) == (503, True)


def test_other_dags_of_a_publication_lead_to_its_page(dags: dict[str, DAG], distribution: Connection) -> None:
    parts = {"validate": "validations", "reinitialize": "snapshots", "setup": "actions", "administer": "actions"}
    with _client(ADMIN) as client:
        for suffix, part in parts.items():
            answer = client.get(f"/publication/purchasing_{suffix}", follow_redirects=False)
            assert answer.headers["location"] == f"/monitor/publication/purchasing/{part}"
            page = client.get(f"/publication/purchasing_{suffix}/runs/manual__1").text
            assert "The history has no entry of this run" in page


def test_a_validation_has_its_tasks_log_and_the_rows_that_differ(
    dags: dict[str, DAG], distribution: Connection, fake_spark: FakeSpark
) -> None:
    fake_spark.answer("validation", _different(), exit_code=1)
    finished = dags["purchasing_validate"].test()
    _record_validation(distribution, _start_of(finished.run_id, f"validate_{_SUBSCRIPTION}"), _different())
    found = _ask(ADMIN, "/validations")
    path = f"dags/purchasing_validate/runs/{quote(finished.run_id, safe='')}/tasks/validate_{_SUBSCRIPTION}"
    assert [it["task_log"] for it in found] == [f"{path}?try_number=1"]
    assert [it["key"] for it in found[0]["result"]["articles"][0]["rows"]] == [{"id": ROW_KEY}]
    assert ROW_KEY not in json.dumps(_ask(VIEWER, "/validations"))
    history = _ask(ADMIN, "/history?agent=validation")["runs"]
    assert [it["task_log"] for it in history] == [f"{path}?try_number=1"]
    with _client(ADMIN) as client:
        run = f"purchasing_validate/{quote(finished.run_id, safe='')}"
        followed = client.get(f"/api/publication/{NAME}/actions/runs/{run}").json()
        assert (followed["state"], followed["log"]) == ("failed", f"{path}?try_number=1")
        assert client.get(f"/api/publication/{NAME}/actions/runs/other/{finished.run_id}").status_code == 403
        page = client.get(f"/publication/purchasing_validate/runs/{quote(finished.run_id)}").text
        assert f'href="/{path}?try_number=1"' in page.replace("&amp;", "&")
        assert "1 missing" in page
        assert "shop_002" not in page.partition("<table>")[2]


def _different() -> JobResult:
    row = DifferingRow(difference=Difference.MISSING, key={"id": ROW_KEY})
    article = ArticleValidation(
        article="public.item_1",
        destination="public.item_1",
        publisher_rows=2,
        subscriber_rows=1,
        missing=1,
        rows=(row,),
    )
    error = DataError("data validation failed: article public.item_1: 1 missing", number="20574", key=f"id = {ROW_KEY}")
    return JobResult(validation=SubscriptionValidation(xact_seqno="00ab", articles=(article,)), error=error.report)


def _start_of(run_id: str, task_id: str) -> datetime:
    with create_session() as session:
        chosen = (TaskInstance.run_id == run_id, TaskInstance.task_id == task_id)
        found = session.scalars(sa.select(TaskInstance.start_date).where(*chosen)).one()
    assert isinstance(found, datetime)
    return found


def _record_validation(connection: Connection, start: datetime, result: JobResult) -> None:
    """Write into the history what the job, which is no real one here, would have written."""
    with DistributionDatabase(connection) as database:
        record = PublicationRecord(1, NAME, store_at("store"), "slot", None, None)
        database.history.record_validation(record, database.subscriptions.get(record, _SUBSCRIPTION), result)
    execute(connection, f"UPDATE msdistribution_history SET start_time = '{start}' WHERE error_id IS NOT NULL")


@pytest.mark.slow
@pytest.mark.usefixtures("dags")
def test_a_long_history_of_many_articles_is_shown_at_once(
    database: DatabaseFactory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    connection = database("monitored")
    _lead_to(connection, monkeypatch)
    monkeypatch.setenv("AIRFLOW_CONN_SUBSCRIBER", next(iter(connection_environment([connection]).values())))
    make_large_history(connection, Size(articles=200, subscriptions=50, runs=100_000), NAME)
    store_commands(connection, NAME, tmp_path, _STORED_BATCHES)
    with _client(ADMIN) as client:
        pages = [*_PAGES, *_LONG_CHARTS, "/actions", *_COMMANDS]
        for address in ["/", *(f"/publication/{NAME}{it}" for it in pages)]:
            _assert_is_shown_at_once(client, address)
        assert "Next page" in client.get(f"/publication/{NAME}/commands").text
        assert "None of the commands" in client.get(f"/publication/{NAME}{_COMMANDS[-1]}").text
    with _client(VIEWER) as client:
        _assert_is_shown_at_once(client, f"/publication/{NAME}/commands")


def _assert_is_shown_at_once(client: TestClient, address: str) -> None:
    with _counted_queries() as queries:
        client.get(address)
    seconds, cpu_seconds = map(min, zip(*(_timed(client, address) for _ in range(3)), strict=True))
    assert cpu_seconds < _MOST_CPU_SECONDS, address
    assert seconds < _MOST_SECONDS, address
    assert len(queries) <= _MOST_QUERIES, address


def _timed(client: TestClient, address: str) -> tuple[float, float]:
    began, cpu = time.perf_counter(), time.process_time()
    assert client.get(address).status_code == 200
    return time.perf_counter() - began, time.process_time() - cpu


@contextmanager
def _counted_queries() -> Iterator[list[str]]:
    """Count what is asked of any database, Airflow's too."""
    queries: list[str] = []

    def count(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        queries.append(statement)

    sa.event.listen(sa.Engine, "before_cursor_execute", count)
    yield queries
    sa.event.remove(sa.Engine, "before_cursor_execute", count)
