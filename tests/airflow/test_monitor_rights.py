"""Who may see and do what in Replication Monitor, asked of its app in this process."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from airflow.models import Log
from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun
from airflow.utils.session import create_session
from jinja2 import Environment, PackageLoader, StrictUndefined
from sqlalchemy import delete, select

from support.databases import shared_databases
from support.embedded_postgres import PostgresServer
from support.monitor_here import api_schema, assert_fits, monitor_here
from support.observed import ITEM, insert_transactions, stored_commands, wait_until
from support.site import Site
from support.spark_here import SparkHere
from tranrepl_airflow.publication_setup import CheckReport, Problem

# What these import warns of the future of a dependency's dependency.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from airflow.api_fastapi.app import create_auth_manager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
    from airflow.api_fastapi.core_api.security import get_user
    from fastapi.testclient import TestClient

    from tranrepl_airflow.monitor import action_routes, display
    from tranrepl_airflow.monitor.actions import Action
    from tranrepl_airflow.monitor.commands import LONGEST_SHOWN
    from tranrepl_airflow.monitor.compared_rows import ComparedRow, RowAtEnd
    from tranrepl_airflow.monitor.recent_runs import LastCheck
    from tranrepl_airflow.monitor.triggering import OUR_HEADER

if TYPE_CHECKING:
    from fastapi import FastAPI

_HEADERS = {OUR_HEADER: "1"}
_SECRET = "not for everybody"  # noqa: S105 - a value of a row
_KEY = "(id)=(2)"
"""What the error's text has of a row."""
_REST = "x" * 2000
"""What makes the value a long one."""
_ACTIONS = "/api/publication/purchasing/actions"
Asked = Callable[[str], TestClient]


@pytest.fixture(scope="module")
def site(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Let a subscription stand at its second transaction. No test changes anything there."""
    with shared_databases(postgres, "rights") as here, pytest.MonkeyPatch.context() as patch:
        for name, value in here.environment.items():
            patch.setenv(name, value)
        subscription = {"name": "reporting", "connection": "subscriber", "commit_batch_size": 1}
        site = Site(here, tmp_path_factory.mktemp("store"), ["public.item"], SparkHere(), [subscription])
        site.at_publisher(ITEM)
        site.set_up()
        site.at_subscriber("INSERT INTO item VALUES (2, 0, 'mine')")
        insert_transactions(site, 1, 1)
        site.at_publisher(f"INSERT INTO item VALUES (3, 3, '{_SECRET}{_REST}')")
        site.read_log().raise_error()
        assert site.deliver().error is not None
        yield site


@pytest.fixture(scope="module")
def app(site: Site, airflow_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FastAPI]:
    document = site.publication.model_dump(mode="json")
    document["subscriptions"][0]["sync_type"] = "automatic"
    with monitor_here(document, tmp_path_factory.mktemp("dags")) as app:
        yield app


@pytest.fixture
def asked(app: FastAPI) -> Iterator[Asked]:
    """Ask the monitor as a user of a role. What was triggered is gone after the test."""

    def client(role: str) -> TestClient:
        app.dependency_overrides[get_user] = lambda: SimpleAuthManagerUser(username=f"the {role}", role=role)
        return TestClient(app)

    yield client
    with create_session() as session:
        for model in (DagRun, Log):
            session.execute(delete(model))


def _runs() -> list[tuple[str, Mapping[str, Any], str | None]]:
    with create_session() as session:
        return [(it.dag_id, it.conf or {}, it.triggering_user_name) for it in session.scalars(select(DagRun))]


def test_values_of_rows_are_for_those_who_may_edit_the_dag(site: Site, asked: Asked) -> None:
    second = stored_commands(site)[1]
    whole = f"/command?xact_seqno=0x{second.xact_seqno}&command_id={second.command_id}"
    pages = ("/publication/purchasing/commands", "/api/publication/purchasing/commands")
    ones = (f"/publication/purchasing{whole}", f"/api/publication/purchasing{whole}")

    for page in pages:
        shown = asked("USER").get(page)
        assert shown.status_code == 200
        assert _SECRET in shown.text
        assert "(id)=(2)" in shown.text
        withheld = asked("VIEWER").get(page)
        assert withheld.status_code == 200
        assert not any(it in withheld.text for it in (_SECRET, "(id)=(2)", "CALL"))
        assert second.xact_seqno in withheld.text
    for one in ones:
        assert asked("USER").get(one).status_code == 200
        assert asked("VIEWER").get(one).status_code == 403
    key = {"key": "2"}
    assert second.xact_seqno in asked("USER").post(pages[0], data=key).text
    assert asked("USER").post(pages[1], json=key).json()["transactions"][0]["xact_seqno"] == second.xact_seqno
    assert asked("VIEWER").post(pages[0], data=key).status_code == 403
    assert asked("VIEWER").post(pages[1], json=key).status_code == 403


def test_a_long_command_is_cut_and_shown_on_demand(site: Site, asked: Asked) -> None:
    client, long = asked("USER"), stored_commands(site)[-1]
    (shown,) = client.get("/api/publication/purchasing/commands").json()["transactions"][-1]["commands"]
    assert (len(shown["command"]), shown["characters"]) == (LONGEST_SHOWN, len(long.command))
    page = unescape(client.get("/publication/purchasing/commands").text)
    assert _REST not in page
    whole = f"/publication/purchasing/command?xact_seqno=0x{long.xact_seqno}&command_id={long.command_id}"
    assert f'href="{whole}">all {display.number(len(long.command))} characters' in page
    assert _REST in client.get(whole).text


def test_what_publisher_and_store_keep_is_asked_for_beside_the_page(site: Site, asked: Asked) -> None:
    def state() -> Any:
        return asked("VIEWER").get("/api/publication/purchasing").json()

    wait_until(lambda: state()["log_reader"]["retained"] is not None and state()["stored_bytes"] is not None)
    found = state()
    files = Path(site.publication.distributor.store).rglob("*.parquet")
    assert found["stored_bytes"] == sum(it.stat().st_size for it in files) > 0
    retained = found["log_reader"]["retained"]
    assert (retained["status"], retained["endangered"], retained["problem"]) == ("reserved", False, None)
    assert f"(store {display.size(found['stored_bytes'])})" in asked("VIEWER").get("/").text


def test_commands_are_answered_as_their_schema_says(site: Site, asked: Asked) -> None:
    start, second = "/api/publication/purchasing", stored_commands(site)[1]
    one = f"command?xact_seqno=0x{second.xact_seqno}&command_id={second.command_id}"
    schema = api_schema(asked("USER").app)
    for role, address in (("USER", "commands"), ("USER", "commands?failing=reporting"), ("VIEWER", "commands")):
        answer = asked(role).get(f"{start}/{address}").json()
        assert answer["transactions"]
        assert_fits(schema, "answers", "commands", answer)
    assert_fits(schema, "answers", "command", asked("USER").get(f"{start}/{one}").json())
    assert_fits(schema, "posted", "commands", {"key": "2"})
    assert_fits(
        schema, "answers_to_posted", "commands", asked("USER").post(f"{start}/commands", json={"key": "2"}).json()
    )


def test_counts_are_what_is_stored(site: Site, asked: Asked) -> None:
    answer = asked("VIEWER").get("/api/publication/purchasing/commands").json()
    stored = stored_commands(site)
    assert [it["xact_seqno"] for it in answer["transactions"]] == [it.xact_seqno for it in stored]
    assert [it["counts"] for it in answer["transactions"]] == [
        [{"article": "public.item", "operation": "INSERT", "commands": 1}] for _ in stored
    ]
    assert all(it["commands"] is None for it in answer["transactions"])


def test_a_key_is_in_no_address(site: Site, asked: Asked) -> None:
    client = asked("USER")
    form = {"key": "2", "article": "public.item", "from": ""}
    page = client.post("/publication/purchasing/commands", data=form, follow_redirects=False)
    assert page.status_code == 200
    without = client.post("/publication/purchasing/commands", data={**form, "key": " "}, follow_redirects=False)
    assert without.status_code == 303
    assert without.headers["location"] == "commands?article=public.item"
    every = client.get("/api/publication/purchasing/commands?key=2").json()["transactions"]
    assert len(every) == len(stored_commands(site))


def test_who_may_not_trigger_does_nothing(asked: Asked) -> None:
    refused = {it: asked("VIEWER").post(f"{_ACTIONS}/{it}", headers=_HEADERS, json={}) for it in Action}
    assert {it.status_code for it in refused.values()} == {403}
    assert asked("VIEWER").get("/publication/purchasing/skip/reporting").status_code == 403
    page = asked("VIEWER").get("/publication/purchasing/actions").text
    assert "<button" not in page
    assert "skip/" not in page
    assert _runs() == []


def test_a_request_of_another_site_does_nothing(site: Site, asked: Asked) -> None:
    client = asked("ADMIN")
    seqno = stored_commands(site)[1].xact_seqno
    body = {"subscription": "reporting", "xact_seqno": seqno, "typed": seqno}
    others: list[dict[str, Any]] = [
        {"json": body},
        {"data": body},
        {"content": json.dumps(body), "headers": {"Content-Type": "text/plain"}},
        {"json": body, "headers": {**_HEADERS, "Sec-Fetch-Site": "cross-site"}},
        {"json": body, "headers": {**_HEADERS, "Sec-Fetch-Site": "same-site"}},
    ]
    for other in others:
        assert client.post(f"{_ACTIONS}/skip", **other).status_code == 403
    preflight = client.options(
        f"{_ACTIONS}/skip",
        headers={
            "Origin": "http://elsewhere.test",
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": OUR_HEADER,
        },
    )
    assert preflight.status_code == 405
    assert "access-control-allow-origin" not in preflight.headers
    assert client.get(f"{_ACTIONS}/skip", headers=_HEADERS).status_code == 405
    assert _runs() == []
    own = client.post(f"{_ACTIONS}/skip", json=body, headers={**_HEADERS, "Sec-Fetch-Site": "same-origin"})
    assert own.status_code == 200
    assert len(_runs()) == 1


@pytest.mark.parametrize(("role", "acts"), [("VIEWER", False), ("USER", True), ("OP", True), ("ADMIN", True)])
def test_each_role_of_the_simple_auth_manager(role: str, acts: bool, asked: Asked) -> None:
    client = asked(role)
    for page in ("/", "/publication/purchasing", "/publication/purchasing/errors", "/publication/purchasing/settings"):
        assert client.get(page).status_code == 200
        assert client.get(f"/api{'/overview' if page == '/' else page}").status_code == 200
    assert (_KEY in client.get("/api/publication/purchasing/errors").text) == acts
    assert ('data-action="' in client.get("/publication/purchasing/actions").text) == acts
    assert client.get("/publication/purchasing/skip/reporting").status_code == (200 if acts else 403)
    assert client.post(f"{_ACTIONS}/check", json={}, headers=_HEADERS).status_code == (200 if acts else 403)
    assert len(_runs()) == acts


def test_nobody_sees_or_does_anything(app: FastAPI) -> None:
    app.dependency_overrides.clear()
    client = TestClient(app)
    for page in ("/", "/api/overview", "/publication/purchasing", "/publication/purchasing/commands"):
        assert client.get(page).status_code == 401
    assert client.post(f"{_ACTIONS}/run", json={}, headers=_HEADERS).status_code == 401
    assert _runs() == []


_TRIGGERED = select(Log).where(Log.event == "trigger_dag_run", Log.owner == "the USER").order_by(Log.id)
"""Other tests of the process have runs of other users in the audit log."""


def test_each_action_is_a_run_with_its_parameters_and_its_user(site: Site, asked: Asked) -> None:
    client = asked("USER")
    second = f"0x{stored_commands(site)[1].xact_seqno}"
    by_hand = {"subscription": "reporting", "xact_seqno": second}
    chosen = {"subscriptions": ["reporting"], "articles": ["public.item"]}
    sent: dict[Action, tuple[dict[str, Any], str, dict[str, Any]]] = {
        Action.RUN: ({}, "purchasing", {}),
        Action.VALIDATE: (
            {**chosen, "repair": True},
            "purchasing_validate",
            {**chosen, "rowcount_only": False, "repair": True},
        ),
        Action.REINITIALIZE: (chosen, "purchasing_reinitialize", chosen),
        Action.TRACE: ({}, "purchasing_administer", {"action": "trace"}),
        Action.SKIP: ({**by_hand, "typed": second[2:]}, "purchasing_administer", {"action": "skip", **by_hand}),
        Action.RETRY: (by_hand, "purchasing_administer", {"action": "retry", **by_hand}),
        Action.CLEANUP: ({}, "purchasing_administer", {"action": "cleanup"}),
        Action.ACKNOWLEDGE: ({}, "purchasing_administer", {"action": "acknowledge"}),
        Action.TEST_ALERT: ({}, "purchasing_administer", {"action": "test_alert"}),
        Action.CHECK: ({}, "purchasing_setup", {"check_only": True}),
        Action.SETUP: ({}, "purchasing_setup", {"check_only": False}),
    }
    assert set(sent) == set(Action)
    schema = api_schema(client.app)
    for action, (body, dag_id, _) in sent.items():
        assert_fits(schema, "posted", "actions/{action}", body)
        answer = client.post(f"{_ACTIONS}/{action}", json=body, headers=_HEADERS)
        assert answer.status_code == 200, answer.text
        assert_fits(schema, "answers_to_posted", "actions/{action}", answer.json())
        assert answer.json()["dag_id"] == dag_id
    assert _runs() == [(dag_id, conf, "the USER") for _, dag_id, conf in sent.values()]
    with create_session() as session:
        logged = [(it.event, it.dag_id, it.owner) for it in session.scalars(_TRIGGERED)]
    assert logged == [("trigger_dag_run", dag_id, "the USER") for _, dag_id, _ in sent.values()]
    assert "the USER" in client.get("/publication/purchasing/actions").text


def test_what_cannot_be_meant_is_refused_with_a_reason(site: Site, asked: Asked) -> None:
    client = asked("USER")
    second = f"0x{stored_commands(site)[1].xact_seqno}"
    refused: list[tuple[Action, dict[str, Any], str]] = [
        (Action.SKIP, {"subscription": "reporting", "xact_seqno": second, "typed": second[:-1] + "9"}, "is not the"),
        (Action.SKIP, {"subscription": "reporting", "xact_seqno": second}, "is no xact_seqno"),
        (Action.RETRY, {"subscription": "reportin", "xact_seqno": second}, "subscription"),
        (Action.REINITIALIZE, {"subscriptions": []}, "subscriptions"),
        (Action.VALIDATE, {"articles": ["public.other"]}, "articles"),
    ]
    for action, body, said in refused:
        answer = client.post(f"{_ACTIONS}/{action}", json=body, headers=_HEADERS)
        assert answer.status_code == 400, (action, answer.text)
        assert said in answer.json()["detail"]
    assert client.post(f"{_ACTIONS}/drop", json={}, headers=_HEADERS).status_code == 422
    assert client.post("/api/publication/other/actions/run", json={}, headers=_HEADERS).status_code == 403
    assert _runs() == []


def test_a_skip_shows_what_it_loses(site: Site, asked: Asked) -> None:
    page = asked("USER").get("/publication/purchasing/skip/reporting").text
    second = stored_commands(site)[1]
    assert f"0x{second.xact_seqno}" in page
    assert "1 INSERT public.item" in page
    assert _SECRET not in page
    assert asked("USER").get("/publication/purchasing/skip/nobody").status_code == 404


@pytest.mark.parametrize("page", ["errors", "skip/reporting"])
def test_a_failing_commands_row_is_shown_at_both_ends_to_those_who_may_see_values(
    site: Site, asked: Asked, page: str
) -> None:
    def row(role: str) -> str:
        shown = asked(role).get(f"/publication/purchasing/{page}").text
        assert "<b>mine" not in shown
        table = shown.partition('<table class="compared">')[2].partition("</table>")[0]
        return " ".join(unescape(re.sub("<[^>]*>", " ", table)).split())

    site.at_subscriber("UPDATE item SET note = '<b>mine' WHERE id = 2")
    ends = "Column Publisher Subscriber reporting"
    assert row("USER") == f"public.item, id = 2, as it is now {ends} id 2 2 xact 2 0 note item <b>mine"
    assert row("VIEWER") == ""
    site.at_publisher("ALTER TABLE item RENAME note TO remark")
    try:
        assert "reporting id table public.item lacks the registered column note 2 xact 0" in row("USER")
    finally:
        site.at_publisher("ALTER TABLE item RENAME remark TO note")
    with psycopg.connect(**site.databases.publisher.libpq_parameters("test")) as session:  # type: ignore[arg-type]
        session.execute("LOCK TABLE item")
        assert "lock timeout" in row("USER")


def test_a_row_that_neither_end_has_is_one_line() -> None:
    template = Environment(loader=PackageLoader("tranrepl_airflow.monitor"), autoescape=True, undefined=StrictUndefined)
    macro = template.from_string('{% from "macros.html" import compared_row %}{{ compared_row(row) }}')
    ends = [RowAtEnd("Publisher", None), RowAtEnd("Subscriber mart", None, "<away>")]
    shown = macro.render(row=ComparedRow("shop.item", "id = 1", ["id", "note"], ends))
    assert re.findall("<td>(.*?)</td>", shown) == ["no such row", "&lt;away&gt;"]


def test_the_last_check_is_shown_with_its_problems(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Not checked from here yet" in asked("USER").get("/publication/purchasing/actions").text
    report = CheckReport(
        articles=2,
        subscriptions=1,
        problems=(
            Problem(message="no right to log in", remedy="GRANT <it>; `tranrepl setup FILE`", blocks_setup=True),
        ),
        warnings=("a name is long",),
    )
    found = LastCheck(run_id="manual__1", time=datetime.now(UTC), report=report)
    monkeypatch.setattr(action_routes, "last_check", lambda _: found)
    page = asked("USER").get("/publication/purchasing/actions").text
    for shown in (
        report.in_words,
        "no right to log in",
        "→ GRANT &lt;it&gt;; <code>tranrepl setup",
        "a name is long",
    ):
        assert shown in page


def test_the_row_of_actions_has_what_its_reader_may_do() -> None:
    template = Environment(loader=PackageLoader("tranrepl_airflow.monitor"), autoescape=True, undefined=StrictUndefined)
    row = template.get_template("publication_actions.html")

    def shown(**values: object) -> str:
        return row.render(mount="/monitor", airflow="", name="a b", **values)

    some = shown(may_do=frozenset({Action.RUN, Action.SKIP}))
    assert 'data-action="/monitor/api/publication/a%20b/actions/run"' in some
    assert 'href="/monitor/publication/a%20b/actions#skip"' in some
    assert not any(it in some for it in ("trace", "reinitialize", "setup"))
    assert shown(may_do=frozenset()).strip() == shown().strip() == ""


def test_a_paused_dag_is_told(asked: Asked) -> None:
    client = asked("USER")
    with create_session() as session:
        session.get_one(DagModel, "purchasing").is_paused = True
    assert "is paused: its runs wait" in client.get("/publication/purchasing/actions").text
    assert client.post(f"{_ACTIONS}/run", json={}, headers=_HEADERS).json()["paused"] is True


def test_who_may_read_no_dag_sees_no_publication(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = create_auth_manager()
    monkeypatch.setattr(type(manager), "get_authorized_dag_ids", lambda *_, **__: set())
    client = asked("USER")
    for page in (
        "publication/purchasing/commands",
        "publication/purchasing/actions",
        "api/publication/purchasing/commands",
    ):
        assert client.get(f"/{page}").status_code == 403
    assert client.post(f"{_ACTIONS}/run", json={}, headers=_HEADERS).status_code == 403
