"""Names and values that say what a page, a log, a template or a chart should do: each is shown, and none is obeyed."""

from __future__ import annotations

import io
import json
import logging
import re
import subprocess
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from markdown_it import MarkdownIt
from playwright.sync_api import Dialog, Page, Route
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from support.databases import shared_databases
from support.embedded_postgres import PostgresServer
from support.monitor_here import monitor_here
from support.monitor_pages import started_chromium
from support.receivers import mail_server, web_server
from support.site import Site
from support.spark_here import SparkHere
from tranrepl.admin.metrics import usable_files
from tranrepl.errors import DataError, ErrorReport
from tranrepl.printable import one_line, printable
from tranrepl.remedies import Place, error_block, step_lines
from tranrepl.settings.alert import Alert
from tranrepl.spark.entry_point import log_to_stderr
from tranrepl_airflow.alerts import AlertEvent, error_alert
from tranrepl_airflow.dag_builder import broken_dag
from tranrepl_airflow.documentation import code
from tranrepl_airflow.notifiers import notify
from tranrepl_airflow.run_note import HandTask, note_of

# What these import warns of the future of a dependency's dependency.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
    from airflow.api_fastapi.core_api.security import get_user
    from fastapi.testclient import TestClient

    from tranrepl_airflow.dags import build_dags
    from tranrepl_airflow.monitor.rendering import ALL_PARTS

if TYPE_CHECKING:
    from fastapi import FastAPI

_FORGED = "2026-01-01 ERROR forged"
_TABLE = "<img src=x onerror=alert(1)>{{7*7}}\n\x1b[31m\u202e'\""
_COLUMN = "</td><script>alert(2)</script>{{7*7}}\n\x1b[2J\u202e\"'"
_LABEL = "</option>'\"><svg onload=alert(3)>{{7*7}}\n\x1b[31m\u202e"
_PROCEDURE = "</pre><script>alert(4)</script>{{7*7}}\n\u202e'\""
_VALUE = (
    f"</code><script>alert(5)</script>{{{{7*7}}}}{{% raw %}}\n{_FORGED}\r\n\x1b[31m\x07\u202e'\"![x](http://e.test/x)`"
)
_FILTER = "\"{}\" <> '</code><script>alert(6)</script>{{7*7}}\n\u202e'"
_SERVER = "http://monitor.test"
_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f\u2028\u2029\u202a-\u202e]")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


_SOURCE = f"public.{_quoted(_TABLE)}"
_OWN = f"public.{_quoted(_PROCEDURE)}"


@pytest.fixture(scope="module")
def site(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Let a delivery stop at a value of a row, all of whose names are hostile, in a publication that has one."""
    with shared_databases(postgres, "hostile") as here, pytest.MonkeyPatch.context() as patch:
        for name, value in here.environment.items():
            patch.setenv(name, value)
        article = {"source": _SOURCE, "filter": _FILTER.format(_COLUMN.replace('"', '""')), "del_cmd": f"CALL {_OWN}"}
        site = Site(here, tmp_path_factory.mktemp("store"), [article, "public.item"], SparkHere())
        label = _LABEL.replace("'", "''")
        for at_end in (site.at_publisher, site.at_subscriber):
            at_end(
                f"CREATE TYPE {_quoted(_LABEL)} AS ENUM ('{label}', 'other')",
                f"CREATE TABLE {_SOURCE} ({_quoted(_COLUMN)} text PRIMARY KEY, kind {_quoted(_LABEL)})",
                "CREATE TABLE item (id int PRIMARY KEY)",
            )
        site.at_subscriber(f"CREATE PROCEDURE {_OWN} (text) LANGUAGE sql AS ''")
        site.set_up()
        value = _VALUE.replace("'", "''")
        site.at_publisher(f"INSERT INTO {_SOURCE} VALUES (E'{value}', '{label}')")
        site.read_log().raise_error()
        site.deliver().raise_error()
        site.at_subscriber(f"DELETE FROM {_SOURCE}")
        site.at_publisher(f"UPDATE {_SOURCE} SET kind = 'other'")
        site.read_log().raise_error()
        yield site


@pytest.fixture(scope="module")
def error(site: Site) -> ErrorReport:
    """Return what stops the delivery."""
    stopped = site.deliver().error
    assert stopped is not None
    return stopped


@pytest.fixture(scope="module")
def app(
    site: Site, error: ErrorReport, airflow_home: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[FastAPI]:
    with monitor_here(site.publication.model_dump(mode="json"), tmp_path_factory.mktemp("dags")) as app:
        yield app


@pytest.fixture
def pages(app: FastAPI) -> TestClient:
    app.dependency_overrides[get_user] = lambda: SimpleAuthManagerUser(username="admin", role="ADMIN")
    return TestClient(app)


@pytest.fixture
def page(pages: TestClient) -> Iterator[Page]:
    """Show the monitor's pages in Chromium, without the policy that would keep a script from running."""

    def answer(route: Route) -> None:
        asked = route.request
        path, sent = asked.url.removeprefix(_SERVER), asked.post_data
        if not asked.url.startswith(_SERVER):
            strangers.append(asked.url)
            route.abort()
            return
        found = pages.request(asked.method, path, content=sent, headers={**asked.headers, "host": "testserver"})
        route.fulfill(status=found.status_code, headers=dict(found.headers), body=found.content)

    def refuse(dialog: Dialog) -> None:
        dialogs.append(dialog.message)
        dialog.dismiss()

    strangers: list[str] = []
    dialogs: list[str] = []
    with started_chromium() as browser, browser.new_context(bypass_csp=True) as context:
        shown = context.new_page()
        shown.on("dialog", refuse)
        shown.route("**/*", answer)
        yield shown
    assert (dialogs, strangers) == ([], [])


_MADE_BY_A_VALUE = "img, svg[onload], [onerror], script:not([src]), main script"


def test_no_page_obeys_a_name_or_a_value(page: Page, error: ErrorReport) -> None:
    begin = "/publication/purchasing"
    command = f"/command?xact_seqno=0x{error.xact_seqno}&command_id={error.command_id}"
    addresses = [
        "/",
        "/?text=<script>alert(7)</script>",
        f"{begin}{command}",
        f"{begin}/skip/reporting",
        "/no/<img src=x>",
    ]
    addresses += [f"{begin}/{it}" if it else begin for it in ALL_PARTS]
    shown = {}
    for address in addresses:
        page.goto(f"{_SERVER}{address}")
        assert page.locator(_MADE_BY_A_VALUE).count() == 0, address
        text = page.evaluate("document.documentElement.textContent")
        assert _OBEYED.search(text) is None, (address, text)
        shown[address] = text
    for address in ("/", begin, f"{begin}/errors", f"{begin}/history", f"{begin}/actions", f"{begin}/commands"):
        assert error.message in shown[address], address
    assert one_line(_VALUE).split("\\n", maxsplit=1)[0] in shown[f"{begin}{command}"]
    for name in (_TABLE, _COLUMN, _PROCEDURE):
        assert printable(name.replace('"', '""') if name is _TABLE else name) in shown[f"{begin}/articles"]


def test_a_chosen_article_is_sent_by_its_name(page: Page, pages: TestClient) -> None:
    page.goto(f"{_SERVER}/publication/purchasing/actions#validate")
    form = page.locator("form[data-action$=validate]")
    form.locator("select[name=articles]").select_option(index=0)
    with page.expect_request("**/actions/validate") as sent:
        form.get_by_role("button", name="Validate").click()
    assert cast("Any", sent.value.post_data_json)["articles"] == [_SOURCE]
    page.locator("output").filter(has_text="waits for the scheduler").wait_for()


def test_no_template_of_airflows_evaluates_a_name(site: Site, app: FastAPI, tmp_path: Path) -> None:
    (tmp_path / "purchasing.yaml").write_text(json.dumps(site.publication.model_dump(mode="json")), encoding="utf-8")
    for dag in build_dags(tmp_path):
        for task in dag.tasks:
            before = {name: str(getattr(task, name, "")) for name in task.template_fields}
            hostile = [name for name, value in before.items() if "7*7" in value]
            assert hostile == [], (dag.dag_id, task.task_id)
        assert "7*7" in str(dag.doc_md) or dag.dag_id != "purchasing"


def test_no_markdown_obeys_a_name_or_a_value(site: Site, app: FastAPI, error: ErrorReport, tmp_path: Path) -> None:
    (tmp_path / "purchasing.yaml").write_text(json.dumps(site.publication.model_dump(mode="json")), encoding="utf-8")
    (dag,) = [it for it in build_dags(tmp_path) if it.dag_id == "purchasing"]
    broken = broken_dag(tmp_path / "broken.yaml", f"{error.message}\n```\n<img src=x>![x](http://e.test/x)\n````")
    note = note_of([HandTask("trace")], {("trace", "error"): error.model_dump(mode="json")})
    many = [HandTask(f"task_{it}") for it in range(20)]
    long = note_of(many, {(it.task_id, "error"): error.model_dump(mode="json") for it in many})
    assert 500 < len(long) <= 1000
    for text in (long, str(dag.doc_md), str(broken.doc_md), note, code(_VALUE), code("`"), code("a|b")):
        tokens = MarkdownIt("commonmark").enable("table").parse(text)
        kinds = {it.type for token in tokens for it in (token, *(token.children or ()))}
        assert kinds.isdisjoint({"html_block", "html_inline", "image", "link_open"}), text
        assert _OBEYED.search(text) is None
    assert one_line(_TABLE) in str(dag.doc_md)


def test_a_value_forges_no_line_of_a_log(site: Site, error: ErrorReport, monkeypatch: pytest.MonkeyPatch) -> None:
    forged = error.model_copy(update={"message": f"lost\n{_FORGED}", "remedy": f"look\n{_FORGED}"})
    assert not any(it.startswith(_FORGED) for it in error_block(forged, Place("p.yaml", "reporting")).splitlines())
    written, root = io.StringIO(), logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr("sys.stderr", written)
    log_to_stderr()
    logging.getLogger("tranrepl").warning("%s", error_block(forged, Place("p.yaml", "reporting")))
    logging.getLogger("tranrepl").warning("table %s is not there", _TABLE + f"\n{_FORGED}")
    try:
        raise DataError(_VALUE)
    except DataError:
        logging.getLogger("tranrepl").exception("stopped")
    lines = written.getvalue().splitlines()
    assert sum(_FORGED in it for it in lines) >= 4
    assert not any(it.startswith(_FORGED) for it in lines)
    assert _OBEYED.search(written.getvalue().replace("\n", "")) is None


def test_a_command_to_paste_names_what_is_not_shown(error: ErrorReport) -> None:
    repaired = error.model_copy(update={"not_repaired": None})
    (validate,) = [it for it in step_lines(repaired, Place("p.yaml", "reporting")) if " validate " in it]
    assert _OBEYED.search(validate) is None
    read = subprocess.run(
        ["/bin/bash", "-c", f"printf '%s\\0' {validate}"], capture_output=True, check=True, text=True
    ).stdout.split("\0")
    assert read[:-1] == ["tranrepl", "validate", "p.yaml", "-s", "reporting", "--article", _SOURCE, "--repair"]


_HTML = "<p>{{ alert.text }}</p><p>{{ alert.text | e }}</p>"


def test_an_alert_obeys_no_value(error: ErrorReport, monkeypatch: pytest.MonkeyPatch) -> None:
    fields = error_alert(AlertEvent.BATCH_FAILED, "purchasing", Place("p.yaml", "reporting"), error, "run")
    fields = replace(fields, remedy=f"look at {_TABLE}")
    with mail_server() as box, web_server() as hook:
        mail = {"conn_type": "smtp", "host": "127.0.0.1", "port": box.port}
        mail["extra"] = {"disable_ssl": True, "disable_tls": True}
        monkeypatch.setenv("AIRFLOW_CONN_MAIL", json.dumps(mail))
        monkeypatch.setenv("AIRFLOW_CONN_PAGER", json.dumps({"conn_type": "http", "host": hook.url}))
        arguments = {
            "smtp_conn_id": "mail",
            "from_email": "t@example.com",
            "to": "d@example.com",
            "html_content": _HTML,
        }
        notifier = "airflow.providers.smtp.notifications.smtp.SmtpNotifier"
        notify(
            Alert(notifier=notifier, arguments={**arguments, "subject": "{{ alert.text }}", "html_content": _HTML}),
            fields,
            {},
        )
        notify(
            Alert(notifier="tranrepl_airflow.webhook.WebhookNotifier", arguments={"connection": "pager"}), fields, {}
        )
    (message,), (post,) = box.messages, hook.posts
    (part,) = [it for it in message.walk() if it.get_content_type() == "text/html"]
    once, twice = re.findall("<p>(.*?)</p>", part.get_content(), re.DOTALL)
    assert once == twice
    assert "<" not in once
    assert "{{7*7}}" in once
    assert post.body["text"] == error.message
    assert _OBEYED.search("".join(post.body.values())) is None


def test_a_metrics_labels_are_read_as_they_were_written() -> None:
    class Registry:
        def collect(self) -> list[Any]:
            return [usable_files([(_VALUE, True)])]

    text = cast("Any", generate_latest)(Registry()).decode()
    (family,) = text_string_to_metric_families(text)  # type: ignore[no-untyped-call]
    assert [it.labels for it in family.samples] == [{"file": _VALUE}]
