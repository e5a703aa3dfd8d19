"""Airflow's own scheduler at work: schedules, backfills, a Subscriber that is restored or away, a missing pool, a late
run, alerts, lineage. What how-to/backfill.md, alerts.md and continuous-agents.md write is taken from there, literally.

One start of its components serves all, and jobs run on the tests' Spark session: about eight minutes in all, six of
which are the backfill's three intervals, beside everything else.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import secrets
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from support.airflow_api import Api, connected
from support.airflow_components import components, password_of, wait_until_healthy
from support.airflow_home import AirflowHome, metadata_on
from support.checkout import CHECKOUT, shell_blocks
from support.concurrent_writers import item_writer
from support.databases import Databases, connection_environment
from support.embedded_postgres import embedded_bindir
from support.observed import AUDIT, ITEM, audits, make_transactions, stored_commands
from support.processes import free_port
from support.proxy import Proxy
from support.receivers import Hook, Mailbox, mail_server, web_server
from support.shared_spark import shared_spark
from support.shell import COMMAND
from support.site import Site
from support.stored_batches import move_commits

if TYPE_CHECKING:
    from conftest import DatabaseFactory, DatabasesFactory
    from support.embedded_postgres import PostgresServer

_PATIENCE_SECONDS = 300.0
_INTERVAL = timedelta(seconds=10)
_RUN_FOR = timedelta(seconds=15)
_AWAY_SECONDS = 4
_HOW_TO = CHECKOUT / "docs" / "how-to"
_OPENLINEAGE = CHECKOUT / ".venv" / "openlineage"
"""Its provider, as `make servers` installs it."""
_LINEAGE = "lineage.json"
_VENDOR = (
    "CREATE SCHEMA purchasing",
    "CREATE TABLE purchasing.vendor (vendor_id int PRIMARY KEY, credit_rating int)",
)
_DUPLICATE = (
    'Subscriber reporting: duplicate key value violates unique constraint "item_pkey" (Key (id)=(1001) already exists.)'
)
_NO_GAP = timedelta(seconds=10)
"""Between the end of a run and the beginning of the next, on a machine that has other work to do."""

pytestmark = [pytest.mark.slow, pytest.mark.scheduler]


def _wait(what: str, condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what}: not within {_PATIENCE_SECONDS} s"
        time.sleep(0.3)
    return found


def _at_least(count: int, found: list[Any]) -> list[Any]:
    return found if len(found) >= count else []


@pytest.fixture
def sites(databases: DatabasesFactory, tmp_path: Path, spark: Any) -> dict[str, Site]:
    """Set up `live`, which runs every ten seconds, `past`, which was due in one minute of last month only, `steady`,
    whose agents are continuous, and `purchasing`, the demo's, with intervals of two minutes."""
    minute = _past_minute()
    settings: dict[str, dict[str, Any]] = {
        "live": {"schedule": "* * * * * */10"},
        "past": {
            **_settings_of("alerts.md", "alerts:"),
            "schedule": f"{minute.minute} {minute.hour} {minute.day} {minute.month} * */10",
            "latency_threshold": 1,
        },
        "steady": {**_settings_of("continuous-agents.md", "schedule: continuous"), "run_for": _RUN_FOR.seconds},
        "purchasing": {"schedule": "*/2 * * * *"},
    }
    item = {"source": "public.item"}
    articles: dict[str, Any] = {
        "live": {**item, "filter": "id > 0 AND note <> 'secret'"},
        "purchasing": {"source": "purchasing.vendor"},
    }
    made: dict[str, Site] = {}
    for name, written in settings.items():
        site = made[name] = Site(
            databases(),
            tmp_path / "store" / name,
            [articles.get(name, item)],
            spark,
            [{"name": "reporting", "connection": f"{name}_subscriber"}],
            publication=name,
            publisher={"connection": f"{name}_publisher"},
            distributor={"connection": f"{name}_distribution", "store": str(tmp_path / "store" / name)},
            **written,
        )
        site.connections = _named(name, site.databases)
        site.at_publisher(*(_VENDOR if name == "purchasing" else [ITEM]))
        site.set_up()
        if name != "purchasing":
            site.at_publisher(AUDIT)
            site.at_subscriber(AUDIT)
    return made


def _settings_of(page: str, first: str) -> dict[str, Any]:
    """Return the settings that a page writes, in its block that begins so."""
    blocks = re.findall(r"^```yaml\n(.*?)^```", (_HOW_TO / page).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    (block,) = [it for it in blocks if it.startswith(first)]
    found: dict[str, Any] = yaml.safe_load(block)
    return found


def _named(name: str, databases: Databases) -> dict[str, Any]:
    roles = ("publisher", "subscriber", "distribution")
    return {f"{name}_{role}": getattr(databases, role) for role in roles}


def _past_minute() -> datetime:
    return (datetime.now(UTC) - timedelta(days=30)).replace(hour=3, minute=7, second=0, microsecond=0)


@pytest.fixture
def pager() -> Iterator[Hook]:
    with web_server() as hook:
        yield hook


@pytest.fixture
def changes() -> Iterator[Hook]:
    with web_server() as hook:
        yield hook


@pytest.fixture
def mailbox() -> Iterator[Mailbox]:
    with mail_server() as box:
        yield box


@pytest.fixture
def network(sites: dict[str, Site]) -> Iterator[Proxy]:
    """Yield what is between the jobs of `steady` and their Subscriber."""
    with Proxy(sites["steady"].databases.subscriber) as network:
        yield network


@pytest.fixture
def airflow(
    sites: dict[str, Site],
    network: Proxy,
    pager: Hook,
    changes: Hook,
    mailbox: Mailbox,
    database: DatabaseFactory,
    tmp_path: Path,
    spark: Any,
) -> Iterator[AirflowHome]:
    dags = tmp_path / "dags"
    shutil.copytree(CHECKOUT / "dags", dags, ignore=shutil.ignore_patterns("__pycache__", "publications"))
    (dags / "publications").mkdir()
    connections: dict[str, str] = {
        "AIRFLOW_CONN_CHANGES": json.dumps({"conn_type": "http", "host": changes.url}),
        "AIRFLOW_CONN_SMTP_DEFAULT": f"smtp://127.0.0.1:{mailbox.port}?disable_ssl=true&disable_tls=true",
    }
    for name, site in sites.items():
        text = yaml.safe_dump(site.publication.model_dump(mode="json"))
        (dags / "publications" / f"{name}.yaml").write_text(text, encoding="utf-8")
        for role in ("publisher", "subscriber", "distribution"):
            connections[f"AIRFLOW_CONN_{name}_{role}".upper()] = site.databases.environment[
                f"AIRFLOW_CONN_{role.upper()}"
            ]
    through_it = connection_environment([network.connection])
    connections["AIRFLOW_CONN_STEADY_SUBSCRIBER"] = through_it["AIRFLOW_CONN_SUBSCRIBER"]
    _write_publication_with_snapshots(dags / "publications", sites["live"])
    there = sites["live"].databases.subscriber
    addresses = {
        "vendor_report": "x-tranrepl://live/reporting/public.item",
        "address_report": f"postgres://{there.host}:{there.port}/{there.database}/public/item",
    }
    for name, uri in addresses.items():
        (dags / f"{name}.py").write_text(_waiting_dag(name, uri), encoding="utf-8")
    logs = tmp_path / "logs"
    logs.mkdir()
    with shared_spark(spark, tmp_path / "bin") as path:
        settings = {
            **metadata_on(database("airflow")),
            "PATH": path,
            "PYTHONPATH": os.pathsep.join(map(str, (_OPENLINEAGE, CHECKOUT / "plugins", CHECKOUT / "spark_jobs"))),
            "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps(
                {"type": "file", "log_file_path": str(logs / _LINEAGE), "append": True}
            ),
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "True",
            "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.5",
            # The files stay as they are.
            "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "600",
            "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(32),
        }
        home = AirflowHome(tmp_path / "airflow", dags, CHECKOUT / "plugins", connections, free_port(), settings)
        home.home.mkdir()
        home.run("db", "migrate", log=logs / "migrate.log")
        _try_the_alerts(home, pager, changes, mailbox)
        password_of(home)
        # Nothing here is deferred.
        with components(home, logs, ("api-server", "scheduler", "dag-processor")) as processes:
            wait_until_healthy(home, processes, logs)
            yield home


def _try_the_alerts(home: AirflowHome, pager: Hook, changes: Hook, mailbox: Mailbox) -> None:
    """Type what alerts.md types, before anything has happened."""
    (block,) = shell_blocks(_HOW_TO / "alerts.md")
    for command in block.commands:
        here = command.replace("https://:token@hooks.example.com:8443/services/T0/hook", _with_token(pager))
        name, *arguments = shlex.split(here.replace("dags/publications/shop.yaml", _past_file(home)), comments=True)
        assert (name, here == command) in (("airflow", False), ("tranrepl", True))
        typed = [str(COMMAND.with_name(name)), *arguments]
        done = subprocess.run(typed, env=home.environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
    assert [it.body for it in pager.posts] == [{"text": "past: test alert: " + changes.posts[0].body["text"]}]
    assert [it["Subject"] for it in mailbox.messages] == ["past: test alert"]


def _with_token(hook: Hook) -> str:
    return hook.url.replace("http://", "http://:token@")


def _past_file(home: AirflowHome) -> str:
    return f"{home.dags}/publications/past.yaml"


def _write_publication_with_snapshots(folder: Path, site: Site) -> None:
    """Write a publication that is never run: only one that takes snapshots has a DAG that reinitializes it."""
    document = site.publication.model_dump(mode="json") | {"publication": "copied"}
    document["subscriptions"][0]["sync_type"] = "automatic"
    (folder / "copied.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")


def _waiting_dag(name: str, uri: str) -> str:
    """Return the docs' example of a DAG that waits, by another name and for another table."""
    text = (CHECKOUT / "docs" / "how-to" / "wait-for-a-delivery.md").read_text(encoding="utf-8")
    code = text.split("```python\n")[1].split("```")[0]
    assert "x-tranrepl://purchasing/reporting/purchasing.vendor" in code
    return code.replace("x-tranrepl://purchasing/reporting/purchasing.vendor", uri).replace("vendor_report", name)


@pytest.fixture
def api(airflow: AirflowHome) -> Iterator[Api]:
    with connected(airflow) as api:
        yield api


def _assert_each_change_arrived_once(site: Site) -> None:
    published, received = audits(site)
    assert len(published) > 0
    assert received == published


def test_the_scheduler(
    sites: dict[str, Site],
    airflow: AirflowHome,
    api: Api,
    network: Proxy,
    postgres: PostgresServer,
    pager: Hook,
    changes: Hook,
    mailbox: Mailbox,
    tmp_path: Path,
) -> None:
    live, past = sites["live"], sites["past"]
    expected = {"live", "past", "vendor_report", "address_report", "purchasing"}
    _wait("DAGs", lambda: expected <= {dag["dag_id"] for dag in api.get("/dags", limit=100)["dags"]})
    typing = _type_the_page_of_backfills(airflow, sites["purchasing"], tmp_path)
    api.unpause("vendor_report")
    api.unpause("address_report")
    api.unpause("past")
    _wait("the one interval of the past that is the latest", lambda: api.runs("past", "scheduled"))
    _backfill_each_interval_by_itself(past, api, postgres)
    with item_writer(live):
        api.unpause("live")
        runs = _wait("three intervals", lambda: _at_least(3, api.runs("live", "scheduled")))
        # A backfill beside the schedule, over an interval that has its run and one that has not.
        first = datetime.fromisoformat(runs[0]["data_interval_start"])
        window = (first - _INTERVAL, first)
        _create_backfill(airflow, "live", *window, tmp_path)
        _wait("backfill beside the schedule", lambda: _at_least(2, api.runs("live", "backfill")))
    api.trigger("live")
    _wait("the last run", lambda: api.runs("live", "manual"))
    kinds = ("scheduled", "backfill", "manual")
    runs = [run for kind in kinds for run in _wait(f"{kind} runs", partial(api.runs, "live", kind))]
    assert {run["state"] for run in runs} == {"success"}
    note = re.compile("reporting: (snapshot of .* rows?, )?(delivered .* commands?, latency .* s|nothing to deliver)")
    assert [run["note"] for run in runs if not note.fullmatch(run["note"] or "")] == []
    _assert_all_green(api, _wait("the scheduled runs", lambda: api.runs("live", "scheduled"))[0])
    for name in ("vendor_report", "address_report"):
        waiting = _wait("the DAG that waits for a delivery", partial(api.runs, name, "asset_triggered"))
        assert {run["state"] for run in waiting} == {"success"}
    _assert_each_change_arrived_once(live)
    api.pause("live")
    if _OPENLINEAGE.exists():
        _assert_lineage_of_what_was_delivered(live, api, runs, tmp_path / "logs" / _LINEAGE)
    pools = {pool["name"]: pool["slots"] for pool in api.get("/pools")["pools"]}
    assert pools == pools | {"replication_live_reporting": 1, "replication_past_reporting": 1}
    failed = _assert_the_log_of_a_failed_batch_ends_with_the_way_on(past, airflow, api)
    if _OPENLINEAGE.exists():
        _assert_lineage_of_what_failed(past, failed, tmp_path / "logs" / _LINEAGE)
    _assert_that_replication_alone_is_offered_for_backfills(api)
    late = _wait("a late run's alert", lambda: _alerts(changes, "run_is_late"))
    assert {it["summary"] for it in late} == {"past: run is late"}
    api.pause("past")
    _assert_the_alert_arrived(pager, changes, mailbox)
    _assert_each_interval_was_delivered_by_itself(typing, sites["purchasing"], api, tmp_path)
    _assert_that_runs_follow_one_another_while_changes_arrive(sites["steady"], api, network)


def _assert_lineage_of_what_was_delivered(site: Site, api: Api, runs: list[dict[str, Any]], file: Path) -> None:
    """Compare the events of OpenLineage's file transport with the commands that each run delivered."""
    events = [it for it in _lineage_events(file, "live.reporting.distribute", "COMPLETE") if it["outputs"]]
    commands = {_run_of(it): it["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] for it in events}
    delivered = {it["dag_run_id"]: api.delivered(it, "commands") for it in runs}
    assert {run: commands.get(run, 0) for run in delivered} == delivered
    for it in events:
        assert _tables_of(it) == _expected_tables(site, commands[_run_of(it)], filtered_by=("id", "note"))


def _assert_lineage_of_what_failed(site: Site, run_id: str, file: Path) -> None:
    """Compare the events of a run that delivered one transaction, and failed twice with the next."""
    for task, rows in (("distribute", 1), ("retry_on_single_connection", None)):
        name = f"past.reporting.{task}"
        (event,) = _wait(name, lambda: [it for it in _lineage_events(file, name, "FAIL") if _run_of(it) == run_id])  # noqa: B023
        assert _tables_of(event) == _expected_tables(site, rows)
        error = _without_origin(event["run"]["facets"]["errorMessage"])
        assert error == {"message": _DUPLICATE, "programmingLanguage": "python", "stackTrace": error["stackTrace"]}
        assert "'new'" not in error["stackTrace"]
    databases = site.databases
    secrets_of_all = {it.password for it in (databases.publisher, databases.subscriber, databases.distribution)}
    assert [it for it in secrets_of_all if it and it in file.read_text(encoding="utf-8")] == []


def _lineage_events(file: Path, job: str, kind: str) -> list[dict[str, Any]]:
    events = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return [it for it in events if it["job"]["name"] == job and it["eventType"] == kind]


def _run_of(event: dict[str, Any]) -> str:
    return str(event["run"]["facets"]["airflow"]["dagRun"]["run_id"])


def _tables_of(event: dict[str, Any]) -> dict[str, Any]:
    return {name: _without_origin(event[name]) for name in ("inputs", "outputs")}


def _expected_tables(site: Site, rows: int | None, filtered_by: Sequence[str] = ()) -> dict[str, Any]:
    """Return the tables at both ends, with so many rows delivered; None: of a job that has delivered none."""
    source, destination = (
        {"namespace": f"postgres://{it.host}:{it.port}", "name": f"{it.database}.public.item"}
        for it in (site.databases.publisher, site.databases.subscriber)
    )
    columns = {"id": "bigint", "xact": "integer", "note": "text"}

    def reads(column: str, transformation: dict[str, Any]) -> dict[str, Any]:
        return {**source, "field": column, "transformations": [{**transformation, "masking": False}]}

    schema = [{"name": name, "type": type_, "fields": []} for name, type_ in columns.items()]
    fields = {it: {"inputFields": [reads(it, {"type": "DIRECT", "subtype": "IDENTITY"})]} for it in columns}
    lineage = {
        "fields": fields,
        "dataset": [reads(it, {"type": "INDIRECT", "subtype": "FILTER"}) for it in filtered_by],
    }
    count = {} if rows is None else {"outputStatistics": {"rowCount": rows}}
    return {
        "inputs": [{**source, "facets": {"schema": {"fields": schema}}, "inputFacets": {}}],
        "outputs": [{**destination, "facets": {"columnLineage": lineage}, "outputFacets": count}],
    }


def _without_origin(value: Any) -> Any:
    """Leave out who made a facet and by which schema."""
    if isinstance(value, dict):
        return {name: _without_origin(it) for name, it in value.items() if name not in ("_producer", "_schemaURL")}
    return [_without_origin(it) for it in value] if isinstance(value, list) else value


def _alerts(hook: Hook, event: str) -> list[dict[str, Any]]:
    """Return the alerts of an event that a webhook without a `body` got."""
    return [it.body for it in hook.posts if it.body["event"] == event]


def _assert_the_alert_arrived(pager: Hook, changes: Hook, mailbox: Mailbox) -> None:
    (alert,) = _wait("the alert of the failed batch", lambda: _alerts(changes, "batch_failed"))
    text = {"text": f"{alert['summary']}: {alert['text']}"}
    (post,) = _wait("the pager's", lambda: [it for it in pager.posts if it.body == text])
    assert (post.path, post.authorization) == ("/services/T0/hook", "Bearer token")
    assert {headers["X-Team"] for _, _, headers in pager.asked} == {"dba"}
    (mail,) = _wait("the mail", lambda: [it for it in mailbox.messages if it["Subject"] == alert["summary"]])
    assert (mail["To"], mail["From"]) == ("dba@example.com", "tranrepl@example.com")
    assert alert["next_steps"].splitlines()[0] in str(mail.get_body().get_content())


def _type_the_page_of_backfills(airflow: AirflowHome, site: Site, folder: Path) -> subprocess.Popen[bytes]:
    """Start what backfill.md types, with intervals of two minutes; this takes three of them."""
    site.at_publisher("INSERT INTO purchasing.vendor VALUES (1, 5)")
    (block,) = shell_blocks(_HOW_TO / "backfill.md")
    setting, *commands = block.text.splitlines()
    assert setting == ". .demo/connections.sh"
    script = "\n".join(commands).replace("sleep 300", "sleep 120").replace("-5 minutes", "-2 minutes")
    # From an interval's beginning on: before the fourth one ends, Airflow's commands and the three runs are done.
    script = script.replace("first=", "sleep $((122 - $(date +%s) % 120))\nfirst=")
    publisher = site.databases.uris["AIRFLOW_CONN_PUBLISHER"]
    path = os.pathsep.join([airflow.environment["PATH"], str(embedded_bindir())])
    with (folder / "logs" / "typed_backfill.log").open("wb") as log:
        return subprocess.Popen(
            ["/bin/bash", "-e", "-c", script],
            env={**airflow.environment, "PATH": path, "PUBLISHER": publisher},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )


def _assert_each_interval_was_delivered_by_itself(
    typing: subprocess.Popen[bytes], site: Site, api: Api, folder: Path
) -> None:
    assert typing.wait(2 * _PATIENCE_SECONDS) == 0, (folder / "logs" / "typed_backfill.log").read_text(encoding="utf-8")
    runs = _wait("the three runs", lambda: _at_least(3, api.runs("purchasing", "backfill")))
    api.pause("purchasing")
    assert {run["state"] for run in runs} == {"success"}
    # The row that was there before may come with the first, or with the scheduled run of the interval before it.
    first, *others = (api.delivered(run) for run in runs)
    assert first in (1, 2)
    assert others == [1, 1]
    assert site.at_subscriber("SELECT * FROM purchasing.vendor") == [(1, 3)]


def _assert_that_runs_follow_one_another_while_changes_arrive(site: Site, api: Api, network: Proxy) -> None:
    numbers, arrived = itertools.count(1), []

    def two_runs() -> list[dict[str, Any]]:
        """Let a change arrive, which takes no run's end, and return the runs that have ended."""
        number, began = next(numbers), time.monotonic()
        site.at_publisher(f"INSERT INTO item VALUES ({number}, 0, 'new')")
        _wait("a change", lambda: site.at_subscriber(f"SELECT 1 FROM item WHERE id = {number}"))
        arrived.append(time.monotonic() - began)
        return _at_least(2, [it for it in api.all_runs("steady") if it["end_date"]])

    api.unpause("steady")
    first, second = sorted(_wait("two runs", two_runs), key=lambda it: str(it["start_date"]))[:2]
    _assert_that_changes_arrive_after_a_subscriber_was_away(site, api, network, next(numbers))
    api.pause("steady")
    assert {first["state"], second["state"]} == {"success"}
    gap = datetime.fromisoformat(second["start_date"]) - datetime.fromisoformat(first["end_date"])
    assert timedelta(0) <= gap < _NO_GAP
    lasted = datetime.fromisoformat(second["end_date"]) - datetime.fromisoformat(second["start_date"])
    assert lasted >= _RUN_FOR
    # Most of them within a run, none of them by its end.
    assert sorted(arrived)[len(arrived) // 2] < _RUN_FOR.seconds / 2
    _assert_all_green(api, second)
    # What comes after them waits until the DAG is unpaused.
    _wait("the agents' end", lambda: not _agents_up(api))
    _assert_each_change_arrived_once(site)


def _assert_that_changes_arrive_after_a_subscriber_was_away(site: Site, api: Api, network: Proxy, number: int) -> None:
    _wait("a continuous delivery", lambda: _deliveries(api, "running"))
    failed = len(_deliveries(api, "failed"))
    network.break_down()
    site.at_publisher(f"INSERT INTO item VALUES ({number}, 0, 'while it was away')")
    _wait("a delivery that fails", lambda: len(_deliveries(api, "failed")) > failed)
    # Its retry meets the same, more than once.
    time.sleep(_AWAY_SECONDS)
    network.repair()
    _wait("the change", lambda: site.at_subscriber(f"SELECT 1 FROM item WHERE id = {number}"))


def _deliveries(api: Api, state: str) -> list[str]:
    """Return the runs of `steady` whose delivery is in a state."""
    return [
        run["dag_run_id"]
        for run in api.all_runs("steady")
        for task in api.get(f"/dags/steady/dagRuns/{run['dag_run_id']}/taskInstances")["task_instances"]
        if task["task_id"] == "reporting.distribute" and task["state"] == state
    ]


def _agents_up(api: Api) -> list[str]:
    """Return the tasks of `steady` that run, or will though it is paused."""
    return [
        task["task_id"]
        for run in api.all_runs("steady")
        for task in api.get(f"/dags/steady/dagRuns/{run['dag_run_id']}/taskInstances")["task_instances"]
        if task["state"] in ("running", "queued")
    ]


def _assert_that_replication_alone_is_offered_for_backfills(api: Api) -> None:
    dags = {"live", "live_validate", "copied_reinitialize"}
    _wait("all DAGs", lambda: dags <= {dag["dag_id"] for dag in api.get("/dags", limit=100)["dags"]})
    offered = {it: api.get(f"/dags/{it}/details")["is_backfillable"] for it in dags}
    assert offered == {"live": True, "live_validate": False, "copied_reinitialize": False}
    minute = _past_minute()
    asked = {"from_date": minute.isoformat(), "to_date": (minute + _INTERVAL).isoformat(), "max_active_runs": 1}
    for dag_id in ("live_validate", "copied_reinitialize"):
        refused = api.client.post("/backfills", json={"dag_id": dag_id, **asked})
        assert refused.is_client_error, refused.text
    # Nothing begins anew that nobody has chosen.
    refused = api.client.post("/dags/copied_reinitialize/dagRuns", json={"logical_date": None})
    assert refused.is_client_error, refused.text
    assert "subscriptions" in refused.text


def _assert_all_green(api: Api, run: dict[str, Any]) -> None:
    tasks = api.get(f"/dags/{run['dag_id']}/dagRuns/{run['dag_run_id']}/taskInstances")["task_instances"]
    assert {task["state"] for task in tasks} == {"success"}


def _assert_the_log_of_a_failed_batch_ends_with_the_way_on(site: Site, airflow: AirflowHome, api: Api) -> str:
    """Return the run that failed."""
    site.at_subscriber("INSERT INTO item VALUES (1001, 0, 'mine')")
    for number in (1000, 1001):
        site.at_publisher(f"INSERT INTO item VALUES ({number}, 0, 'new')")
    run_id = api.trigger("past")
    runs = _wait("the run that fails", lambda: api.runs("past", "manual"))
    assert {run["dag_run_id"]: run["state"] for run in runs}[run_id] == "failed"
    (log,) = airflow.home.glob(f"logs/dag_id=past/run_id={run_id}/task_id=reporting.retry_*/attempt=1.log")
    told = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    (place,) = [at for at, it in enumerate(told) if it["logger"] == "tranrepl_airflow.outcome"]
    block = told[place]["event"].splitlines()
    seqno = stored_commands(site)[-1].xact_seqno
    file = f"{airflow.dags}/publications/past.yaml"
    assert block[0] == _DUPLICATE
    assert [it.split() for it in block[1:7]] == [
        ["error", "2627", "(23505)"],
        ["transaction", f"0x{seqno}"],
        ["command", "1"],
        ["article", "public.item"],
        ["key", "id", "=", "1001"],
        ["stored", "as", "{CALL", "[sp_MSins_publicitem]", "(1001,0,'new')}"],
    ]
    assert [it for it in block if it.startswith("tranrepl ")] == [
        f"tranrepl browse {file} --from 0x{seqno} --to 0x{seqno}",
        f"tranrepl run {file} -s reporting",
        f"tranrepl skip {file} -s reporting --xact-seqno 0x{seqno}",
        f"tranrepl validate {file} -s reporting --article public.item --repair",
    ]
    # Nothing but what the runner itself says of the end comes after it, and nowhere a traceback.
    after = [it["event"] for it in told[place + 1 :]]
    assert after[:2] == ["Task exited", "::group::Post Execute"], after
    assert [it for it in told if it.get("error_detail")] == []
    return run_id


def _backfill_each_interval_by_itself(site: Site, api: Api, postgres: PostgresServer) -> None:
    make_transactions(site, 40)
    site.read_log().raise_error()
    minute = _past_minute()
    expected = move_commits(site, minute, _INTERVAL)
    empty = f"{site.databases.subscriber.database}_empty"
    with postgres.connect() as session:
        session.execute(f'CREATE DATABASE "{empty}" TEMPLATE "{site.databases.subscriber.database}"'.encode())
    window = (minute, minute + 2 * _INTERVAL)
    for again, counts in ((False, expected), (True, [0, 0, 0])):
        api.backfill("past", *window)
        runs = _wait(f"backfill, {again=}", lambda: api.runs("past", "backfill"))
        assert [(run["state"], api.delivered(run)) for run in runs] == [("success", count) for count in counts]
        api.end_backfill("past")
    _assert_each_change_arrived_once(site)
    _restore(site, empty, postgres)
    assert audits(site)[1] == []
    api.trigger("past")
    _wait("the restored Subscriber", lambda: api.runs("past", "manual"))
    _assert_each_change_arrived_once(site)


def _restore(site: Site, dump: str, postgres: PostgresServer) -> None:
    name = site.databases.subscriber.database
    with postgres.connect() as session:
        session.execute(f'DROP DATABASE "{name}" WITH (FORCE)'.encode())
        session.execute(f'ALTER DATABASE "{dump}" RENAME TO "{name}"'.encode())


def _create_backfill(airflow: AirflowHome, dag_id: str, first: datetime, last: datetime, tmp_path: Path) -> None:
    """Start a backfill from the shell, as a person does."""
    airflow.run(
        *("backfill", "create", "--dag-id", dag_id, "--max-active-runs", "1"),
        *("--from-date", first.isoformat(), "--to-date", last.isoformat()),
        *("--reprocess-behavior", "completed"),
        log=tmp_path / "logs" / "backfill.log",
    )
