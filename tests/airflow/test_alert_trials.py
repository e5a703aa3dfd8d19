"""The webhook's connections as Airflow writes them, and notifiers that are tried, without an alert or by one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from base64 import b64encode
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import yaml
from airflow.models.connection import Connection
from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowException
from airflow.utils.session import create_session
from sqlalchemy import delete

from airflow.conftest import PUBLICATION
from support.processes import free_port
from support.receivers import Hook, mail_server, web_server
from support.shell import typed
from tranrepl.admin.alert_trials import AlertTrial
from tranrepl.cli.setup import tried_alerts
from tranrepl.settings.alert import Alert
from tranrepl.settings.publication import Publication
from tranrepl_airflow.alert_trials import tried
from tranrepl_airflow.webhook import WebhookNotifier, _address

_TOKEN = "s3cret/t%ken ü"  # noqa: S105
_WEBHOOK = "tranrepl_airflow.webhook.WebhookNotifier"
_MAIL = "airflow.providers.smtp.notifications.smtp.SmtpNotifier"
_MAIL_ARGUMENTS = {
    "smtp_conn_id": "mail",
    "from_email": "tranrepl@example.com",
    "to": "dba@example.com",
    "subject": "{{ alert.summary }}",
    "html_content": "<p>{{ alert.text }}</p>",
}


@pytest.mark.parametrize(
    ("written", "address"),
    [
        ("https://:token@hooks.example.com/services/T0/hook", "https://hooks.example.com/services/T0/hook"),
        ("http://:token@hooks.example.com:8080/services/T0", "http://hooks.example.com:8080/services/T0"),
        ("https://hooks.example.com", "https://hooks.example.com"),
        ("http://hooks.example.com/https", "https://hooks.example.com"),
        ("http://:token@hooks.example.com:8443/https", "https://hooks.example.com:8443"),
        ("generic://hooks.example.com/a%20b", "https://hooks.example.com/a%20b"),
        ("https://[::1]:8443/hook", "https://[::1]:8443/hook"),
        ("https://hooks.example.com/a/b?X-Api-Key=abc", "https://hooks.example.com/a/b"),
        ({"conn_type": "http", "host": "https://hooks.example.com/a%2Fb?sig=1%2F2"}, None),
        ({"conn_type": "http", "host": "hooks.example.com", "schema": "https", "port": 8443}, None),
        ({"conn_type": "http", "host": "https://hooks.example.com/services", "schema": "T0", "port": 8443}, None),
        ({"conn_type": "slackwebhook", "host": "https://hooks.example.com/services", "schema": "https"}, None),
    ],
)
def test_an_address_is_what_airflow_wrote(
    written: Any, address: str | None, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    expected = {
        "sig=": "https://hooks.example.com/a%2Fb?sig=1%2F2",
        '"T0"': "https://hooks.example.com:8443/services/T0",
        "slackwebhook": "https://hooks.example.com/services",
        "8443": "https://hooks.example.com:8443",
    }
    text = written if isinstance(written, str) else json.dumps(written)
    monkeypatch.setenv("AIRFLOW_CONN_PAGER", text)
    found = str(_address(BaseHook.get_connection("pager")))
    assert found == (address or next(it for known, it in expected.items() if known in text))


def _netloc(hook: Hook) -> str:
    return hook.url.removeprefix("http://").partition("/")[0]


def test_a_webhook_sends_what_its_connection_has(monkeypatch: pytest.MonkeyPatch) -> None:
    with web_server() as hook:
        place, token = _netloc(hook), quote(_TOKEN, safe="")
        for uri in (f"http://:{token}@{place}/a/b?X-Api-Key=abc&timeout=5", f"http://me:{token}@{place}/a"):
            monkeypatch.setenv("AIRFLOW_CONN_PAGER", uri)
            WebhookNotifier(connection="pager", body="{{ alert.text }}")({"alert": {"text": "hello"}})
    basic = b64encode(f"me:{_TOKEN}".encode()).decode()
    assert [it.path for it in hook.posts] == ["/a/b", "/a"]
    assert [it.body for it in hook.posts] == ["hello", "hello"]
    assert hook.posts[1].authorization == f"Basic {basic}"
    assert hook.asked[0][2]["X-Api-Key"] == "abc"
    assert str(hook.posts[0].authorization).encode("latin-1").decode() == f"Bearer {_TOKEN}"


def test_what_is_no_header_is_named_and_no_secret_is(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = {
        f"http://:{quote(_TOKEN, safe='')}@127.0.0.1:{free_port()}/a": "webhook pager: ConnectError",
        "http://127.0.0.1/a?proxies=x&cert=y": "its extra has cert, proxies, which cannot be used here",
        "http://:x@/a": "its connection has no host",
        "http://127.0.0.1:1/a?verify=%2Fno%2Fsuch.pem": "webhook pager: FileNotFoundError",
    }
    for uri, said in wrong.items():
        monkeypatch.setenv("AIRFLOW_CONN_PAGER", uri)
        with pytest.raises(AirflowException) as raised:
            WebhookNotifier(connection="pager").try_out()
        assert said in str(raised.value)
        assert "s3cret" not in str(raised.value)


def _publication(*alerts: Alert) -> Publication:
    return Publication.model_validate({**PUBLICATION, "alerts": [it.model_dump() for it in alerts]})


class Mute:
    """No notifier."""


def test_each_notifier_is_tried_without_an_alert(monkeypatch: pytest.MonkeyPatch) -> None:
    alerts = [
        Alert(notifier=_WEBHOOK, arguments={"connection": "pager"}),
        Alert(notifier=_MAIL, arguments=dict(_MAIL_ARGUMENTS)),
        Alert(notifier="airflow.conftest.Nothing"),
        Alert(notifier=f"{__name__}.Mute"),
        Alert(notifier=_WEBHOOK, arguments={"connection": "nobody"}),
    ]
    with web_server(status=405) as hook, mail_server() as box:
        monkeypatch.setenv("AIRFLOW_CONN_PAGER", f"http://{_netloc(hook)}/a")
        monkeypatch.setenv("AIRFLOW_CONN_MAIL", f"smtp://127.0.0.1:{box.port}?disable_ssl=true&disable_tls=true")
        trials = tried(_publication(*alerts))
        assert (hook.posts, box.messages) == ([], [])
        assert [it[:2] for it in hook.asked] == [("HEAD", "/a")]
    assert [it.failed for it in trials] == [False, False, True, True, True]
    assert trials[0] == AlertTrial(
        notifier=f"1, {_WEBHOOK}", said="webhook pager answers, with HTTP status 405 to HEAD", failed=False
    )
    assert trials[1].said == "its connection was tested, and no alert was sent: Connection successfully tested"
    assert "cannot be imported" in trials[2].said
    assert "is no Airflow notifier" in trials[3].said
    assert "nobody" in trials[4].said
    with web_server(status=503) as hook:
        monkeypatch.setenv("AIRFLOW_CONN_PAGER", f"http://{_netloc(hook)}/a")
        (away, mail) = tried(_publication(*alerts[:2]))
    assert (away.failed, mail.failed) == (True, True)
    assert away.said == "AirflowException: webhook pager: HTTP status 503 to HEAD"


def _file(folder: Path, *alerts: dict[str, Any]) -> Path:
    path = folder / "purchasing.yaml"
    path.write_text(yaml.safe_dump({**PUBLICATION, "alerts": list(alerts)}), encoding="utf-8")
    return path


def test_a_test_alert_goes_through_each_notifier(tmp_path: Path, airflow_home: Path) -> None:
    webhook = {"notifier": _WEBHOOK, "arguments": {"connection": "pager"}, "level": "error"}
    file = _file(tmp_path, webhook, {"notifier": _MAIL, "arguments": _MAIL_ARGUMENTS})
    with web_server() as hook, mail_server() as box:
        connections = {
            "AIRFLOW_CONN_PAGER": f"http://:token@{_netloc(hook)}/a",
            "AIRFLOW_CONN_MAIL": f"smtp://127.0.0.1:{box.port}?disable_ssl=true&disable_tls=true",
        }
        asked = typed("alert", file, environment=connections)
        assert (asked.status, hook.posts, box.messages) == (0, [], [])
        told = typed("alert", file, "--test", environment=connections)
    assert told.status == 0, told
    assert told.out.count("the test alert was sent") == 2
    (post,), (mail,) = hook.posts, box.messages
    assert (post.body["event"], post.body["publication"]) == ("test", "purchasing")
    assert mail["Subject"] == "purchasing: test alert"
    away = typed("alert", file, "--test", "--json", environment=connections)
    assert away.status == 1
    assert [it["failed"] for it in json.loads(away.out)] == [True, True]


def test_a_connection_that_airflows_command_added_is_used(tmp_path: Path, airflow_home: Path) -> None:
    file = _file(tmp_path, {"notifier": _WEBHOOK, "arguments": {"connection": "added_webhook"}})
    with web_server() as hook:
        uri = f"http://:{quote(_TOKEN, safe='')}@{_netloc(hook)}/services/T1"
        command = [sys.executable, "-m", "airflow", "connections", "add", "added_webhook", "--conn-uri", uri]
        subprocess.run(command, check=True, capture_output=True)
        try:
            own = {name: it for name, it in os.environ.items() if name.startswith("AIRFLOW")}
            told = typed("alert", file, "--test", environment=own)
        finally:
            with create_session() as session:
                session.execute(delete(Connection).where(Connection.conn_id == "added_webhook"))
    assert told.status == 0, told
    assert [it.path for it in hook.posts] == ["/services/T1"]


def test_check_tries_notifiers_and_says_where_it_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    publication, not_checked = _publication(Alert(notifier="airflow.conftest.Nothing")), list[str]()
    (trial,) = tried_alerts(publication, not_checked)
    assert trial.failed
    assert str(trial).startswith("alert notifier 1, airflow.conftest.Nothing: ConfigurationError: alerts: notifier: ")
    assert not_checked == []
    monkeypatch.setattr("tranrepl.admin.alert_trials.find_spec", lambda _: None)
    assert tried_alerts(publication, not_checked) == []
    assert not_checked[0].startswith("alert notifiers were not tried: Airflow is not installed here")
