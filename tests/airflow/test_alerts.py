"""Who gets which alert, and how often: runs whose alerts go to a mail server and a web server on loopback."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.models.dagrun import DagRun
from airflow.sdk import DAG, BaseNotifier, Context
from airflow.sdk.definitions.callback import SyncCallback
from airflow.sdk.exceptions import AirflowException

from support.receivers import Hook, Mailbox, Posted, mail_server, web_server
from tranrepl.distributor.cleanup import Cleanup
from tranrepl.errors import (
    ConfigurationError,
    DataError,
    ErrorKind,
    ErrorReport,
    FencedError,
    ReplicationError,
    TransientError,
)
from tranrepl.jobs.results import JobResult
from tranrepl.remedies import Place
from tranrepl.settings.alert import Alert
from tranrepl.settings.publication import Publication
from tranrepl_airflow.alert_callbacks import run_is_late
from tranrepl_airflow.alerts import AlertEvent, error_alert
from tranrepl_airflow.notifiers import notify_all
from tranrepl_airflow.publication_operator import CleanupOperator
from tranrepl_airflow.webhook import WebhookNotifier

if TYPE_CHECKING:
    from airflow.conftest import FakeSpark, IdleChecks, PublicationWriter

MAIL: dict[str, Any] = {
    "notifier": "airflow.providers.smtp.notifications.smtp.SmtpNotifier",
    "arguments": {
        "smtp_conn_id": "mail",
        "from_email": "tranrepl@example.com",
        "to": "dba@example.com",
        "subject": "{{ alert.summary }}",
        "html_content": "<p>{{ alert.text | e }}</p><pre>{{ alert.browse | e }}</pre><i>{{ ti.task_id }}</i>",
    },
}
HOOK: dict[str, Any] = {
    "notifier": "tranrepl_airflow.webhook.WebhookNotifier",
    "arguments": {"connection": "pager"},
}
TOKEN = "s3cret-token"  # noqa: S105
ROW_NOT_FOUND = DataError(
    "The row was not found at the Subscriber when applying the replicated UPDATE command for Table 'sales.vendor' "
    "with Primary Key(s): id = {{ conn.publisher.password }}",
    number="20598",
    xact_seqno="00ab",
    command_id=7,
    article="sales.vendor",
)
FIELDS = {
    "event": "batch_failed",
    "level": "error",
    "summary": "alerted/reporting: batch failed with error 20598",
    "publication": "alerted",
    "subscription": "reporting",
    "number": "20598",
    "text": ROW_NOT_FOUND.message,
    "remedy": "",
    "xact_seqno": "0x00ab",
    "command_id": "7",
    "article": "sales.vendor",
    "key": "id = {{ conn.publisher.password }}",
}


def _fields(file: Path) -> dict[str, str]:
    """Return all fields, of a publication in this file."""
    browse = f"tranrepl browse {file} --from 0x00ab --to 0x00ab"
    steps = (
        "# look at the transaction",
        browse,
        "# mend the Subscriber's rows or table, then deliver again",
        f"tranrepl run {file} -s reporting",
        "# or skip the transaction, then correct the rows that it would have changed",
        f"tranrepl skip {file} -s reporting --xact-seqno 0x00ab",
        f"tranrepl validate {file} -s reporting --article sales.vendor --repair",
        "# when to take which: docs/how-to/a-batch-failed.md",
    )
    runbook = "docs/how-to/a-batch-failed.md"
    return {**FIELDS, "browse": browse, "next_steps": "\n".join(steps), "runbook": runbook}


@pytest.fixture
def mailbox(monkeypatch: pytest.MonkeyPatch) -> Iterator[Mailbox]:
    with mail_server() as box:
        extra = {"disable_ssl": True, "disable_tls": True}
        mail = {"conn_type": "smtp", "host": "127.0.0.1", "port": box.port, "extra": extra}
        monkeypatch.setenv("AIRFLOW_CONN_MAIL", json.dumps(mail))
        yield box


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hook]:
    with web_server() as server:
        _pager(monkeypatch, server)
        yield server


def _pager(monkeypatch: pytest.MonkeyPatch, server: Hook) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_PAGER", json.dumps({"conn_type": "http", "host": server.url, "password": TOKEN}))


@pytest.fixture
def parse(publications: Path, write_publication: PublicationWriter) -> Callable[..., DAG]:
    """Return a function that makes the DAG of one subscription with these alerts, with retries that do not wait."""
    (publications / "purchasing.yaml").unlink()

    def parse_with(*alerts: dict[str, Any], **changes: Any) -> DAG:
        subscriptions = [{"name": "reporting", "connection": "subscriber"}]
        write_publication(publication="alerted", subscriptions=subscriptions, alerts=list(alerts), **changes)
        dag: DAG = DagBag(publications.parent).dags["alerted"]
        for task in dag.tasks:
            task.retry_delay = timedelta(0)
        return dag

    return parse_with


Parse = Callable[..., DAG]


@pytest.fixture
def run(
    parse: Parse, mailbox: Mailbox, hook: Hook, fake_spark: FakeSpark, idle_checks: IdleChecks
) -> Callable[[], DagRun]:
    dag = parse(MAIL, HOOK)
    return lambda: dag.test()


def _failing(fake_spark: FakeSpark, **errors: Exception) -> None:
    for job, error in errors.items():
        assert isinstance(error, (DataError, TransientError, ConfigurationError, FencedError))
        fake_spark.answer(job, JobResult(error=error.report), exit_code=1)


def test_a_failed_batch_sends_one_alert_with_every_fact(
    run: Callable[[], DagRun], fake_spark: FakeSpark, mailbox: Mailbox, hook: Hook, publications: Path
) -> None:
    _failing(fake_spark, streams=ROW_NOT_FOUND, single_connection=ROW_NOT_FOUND)
    run_id = run().run_id
    fields = _fields(publications / "alerted.yaml")
    (mail,) = mailbox.messages
    assert (mail["To"], mail["From"]) == ("dba@example.com", "tranrepl@example.com")
    assert mail["Subject"] == FIELDS["summary"]
    (part,) = [it for it in mail.walk() if it.get_content_type() == "text/html"]
    text = part.get_content()
    assert "&#39;sales.vendor&#39;" in text
    assert "{{ conn.publisher.password }}" in text, "what a row holds is no template"
    assert fields["browse"] in text
    assert "reporting.retry_on_single_connection" in text
    assert hook.posts == [Posted("/services/T0/hook", f"Bearer {TOKEN}", {**fields, "run_id": run_id})]


def test_a_batch_that_the_retry_delivered_sends_no_alert(
    run: Callable[[], DagRun], fake_spark: FakeSpark, mailbox: Mailbox, hook: Hook
) -> None:
    _failing(fake_spark, streams=ROW_NOT_FOUND)
    assert run().state == "success"
    assert (mailbox.messages, hook.posts) == ([], [])


def _skipping(number: int, error: Exception | None = None) -> JobResult:
    """Return the result of a delivery that skips so many commands before an error stops it."""
    report = error.report if isinstance(error, ReplicationError) else None
    skipped = tuple(
        ErrorReport(
            kind=ErrorKind.DATA,
            message="not found",
            number="20598",
            xact_seqno=f"00a{command}",
            command_id=command,
            article="sales.vendor",
            key=f"id = {command}",
        )
        for command in range(1, number + 1)
    )
    return JobResult(commands=9, skipped=number, first_skipped=skipped, error=report)


def _told(hook: Hook) -> list[tuple[str, str]]:
    return [(post.body["event"], post.body["summary"]) for post in hook.posts]


_SKIPPED_ONE = ("command_skipped", "alerted/reporting: 1 command skipped, the first with error 20598")
_SKIPPED_THREE = ("command_skipped", "alerted/reporting: 3 commands skipped, the first with error 20598")


def test_skipped_commands_are_told_once_though_the_run_succeeds(
    run: Callable[[], DagRun], fake_spark: FakeSpark, hook: Hook
) -> None:
    fake_spark.answer("streams", _skipping(1, ROW_NOT_FOUND), exit_code=1)
    fake_spark.answer("single_connection", _skipping(2))
    finished = run()
    assert finished.state == "success"
    assert _told(hook) == [_SKIPPED_THREE]
    (post,) = hook.posts
    told = {name: post.body[name] for name in ("number", "xact_seqno", "command_id", "article", "key", "run_id")}
    assert told == {
        "number": "20598",
        "xact_seqno": "0x00a1",
        "command_id": "1",
        "article": "sales.vendor",
        "key": "id = 1",
        "run_id": finished.run_id,
    }
    assert "3 commands were skipped, as skip_errors says" in post.body["text"]
    (delivered,) = [it for it in finished.get_task_instances() if it.task_id.endswith(".delivered")]
    assert delivered.xcom_pull(task_ids=delivered.task_id, key="return_value")["skipped"] == 3


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        ({"streams": _skipping(1), "single_connection": JobResult()}, [_SKIPPED_ONE]),
        (
            {"streams": _skipping(1, ROW_NOT_FOUND), "single_connection": _skipping(2, ROW_NOT_FOUND)},
            [("batch_failed", FIELDS["summary"]), _SKIPPED_THREE],
        ),
        (
            {"streams": _skipping(1, ConfigurationError("no table"))},
            [("batch_failed", "alerted/reporting: batch failed"), _SKIPPED_ONE],
        ),
    ],
    ids=["the first attempt", "a run that failed", "a run that somebody must mend"],
)
def test_skipped_commands_are_told_once_however_the_run_ends(
    run: Callable[[], DagRun],
    fake_spark: FakeSpark,
    hook: Hook,
    answers: dict[str, JobResult],
    told: list[tuple[str, str]],
) -> None:
    for job, result in answers.items():
        fake_spark.answer(job, result, exit_code=1 if result.error else 0)
    run()
    assert _told(hook) == told


def test_a_notifier_that_fails_leaves_a_delivery_that_skipped_successful(
    run: Callable[[], DagRun], fake_spark: FakeSpark, mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_spark.answer("streams", _skipping(1))
    with web_server(status=500) as broken:
        _pager(monkeypatch, broken)
        assert run().state == "success"
    assert (len(broken.posts), [it["Subject"] for it in mailbox.messages]) == (1, [_SKIPPED_ONE[1]])


@pytest.mark.slow_after(2)
@pytest.mark.parametrize(
    ("errors", "event", "subscription"),
    [
        ({"log_reader": ConfigurationError("no slot")}, "log_reader_failed", ""),
        ({"log_reader": TransientError("not there")}, "log_reader_failed", ""),
        ({"streams": ConfigurationError("inactive", number="21074")}, "batch_failed", "reporting"),
        (
            {"streams": TransientError("lost"), "single_connection": TransientError("lost")},
            "batch_failed",
            "reporting",
        ),
        ({"streams": FencedError("another job")}, None, ""),
    ],
    ids=["configuration of the log reader", "log reader after all retries", "no retry", "after all retries", "fenced"],
)
def test_each_failure_is_told_once(
    run: Callable[[], DagRun],
    fake_spark: FakeSpark,
    hook: Hook,
    errors: dict[str, Exception],
    event: str | None,
    subscription: str,
) -> None:
    _failing(fake_spark, **errors)
    run()
    told = [(post.body["event"], post.body["subscription"], post.body["text"]) for post in hook.posts]
    error = next(iter(errors.values()))
    assert told == ([(event, subscription, str(error))] if event else [])


def test_a_notifier_that_fails_does_not_keep_the_others_from_being_told(
    parse: Parse,
    mailbox: Mailbox,
    fake_spark: FakeSpark,
    idle_checks: IdleChecks,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _failing(fake_spark, log_reader=ConfigurationError("no slot"))
    with web_server(status=500) as broken:
        _pager(monkeypatch, broken)
        assert parse(HOOK, MAIL).test().state == "failed"
    assert (len(broken.posts), len(mailbox.messages)) == (1, 1)


@pytest.mark.parametrize(
    ("alert", "said"),
    [
        ({"notifier": "nowhere.to.be.Found"}, "'nowhere.to.be.Found' cannot be imported"),
        ({"notifier": "json.JSONDecoder"}, "'json.JSONDecoder' is no Airflow notifier"),
        ({**HOOK, "arguments": {"conection": "pager"}}, "unexpected keyword argument 'conection'"),
        ({"notifier": "unqualified"}, "alerts[0].notifier: 'unqualified'"),
    ],
)
def test_an_alert_that_could_not_be_sent_breaks_the_dag_that_says_so(
    parse: Parse, alert: dict[str, Any], said: str
) -> None:
    dag = parse(alert)
    assert dag.tags == {"alerted", "replicate", "broken"}
    assert said in str(dag.doc_md)


class Remembering(BaseNotifier):
    """A user's own notifier, which keeps what it is given."""

    template_fields = ("text",)
    told: ClassVar[list[tuple[str, Any]]] = []

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text

    def notify(self, context: Context) -> None:
        self.told.append((self.text, cast("Any", context)["alert"]["key"]))


def test_a_notifiers_templates_are_rendered_anew_for_each_alert() -> None:
    alert = Alert(notifier=f"{__name__}.Remembering", arguments={"text": "{{ alert.key }}"})
    for number in (1, 2):
        error = ErrorReport(kind=ErrorKind.DATA, message=f"x with Primary Key(s): id = {number} {{{{ 7 * 7 }}}}")
        notify_all([alert], error_alert(AlertEvent.BATCH_FAILED, "p", Place("p.yaml", "s"), error, "r"), {})
    assert Remembering.told == [(f"id = {number} {{{{ 7 * 7 }}}}",) * 2 for number in (1, 2)]


def test_a_webhook_tells_no_secret_when_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    with web_server(status=403) as server:
        _pager(monkeypatch, server)
        with pytest.raises(AirflowException, match=r"^webhook pager: HTTP status 403$"):
            WebhookNotifier(connection="pager")({"alert": {}})
    with pytest.raises(AirflowException, match=r"^webhook pager: ConnectError$"):
        WebhookNotifier(connection="pager")({"alert": {}})


def test_a_run_has_a_deadline_with_a_threshold_and_an_alert(parse: Parse, hook: Hook) -> None:
    assert parse(latency_threshold=90).deadline is None
    assert parse(HOOK).deadline is None
    dag = parse({**HOOK, "arguments": {"connection": "pager", "body": "{{ alert.summary }}"}}, latency_threshold=90)
    (deadline,) = dag.deadline if isinstance(dag.deadline, list) else [dag.deadline]
    assert deadline is not None
    assert deadline.interval == timedelta(seconds=90)
    assert isinstance(deadline.callback, SyncCallback)
    assert deadline.callback.path == "tranrepl_airflow.alert_callbacks.run_is_late"
    run_is_late(context={"dag_run": {"dag_run_id": "r"}}, **deadline.callback.kwargs)
    assert [post.body for post in hook.posts] == ["alerted: run is late"]


def test_a_deactivated_subscription_is_told(
    publication: Publication, stored_connections: dict[str, dict[str, Any]], hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = ErrorReport(kind=ErrorKind.CONFIGURATION, message="deactivated", number="21011", xact_seqno="0a")
    done = Cleanup(deactivated={"audit": error}, unreachable={"reporting": "not there"})
    monkeypatch.setattr("tranrepl.admin.cleanup.clean_up", lambda *_: done)
    settings = publication.model_copy(update={"alerts": [Alert.model_validate(HOOK)]})
    for connection_id, fields in stored_connections.items():
        monkeypatch.setenv(f"AIRFLOW_CONN_{connection_id.upper()}", json.dumps(fields))
    context: Any = {"run_id": "run"}
    operator = CleanupOperator(task_id="purchasing", publication=settings)
    assert operator.execute(context) == done.model_dump(mode="json")
    (post,) = hook.posts
    assert post.body["summary"] == "purchasing/audit: subscription deactivated with error 21011"
