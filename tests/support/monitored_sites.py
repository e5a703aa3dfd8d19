"""Publications in an Airflow whose API server runs alone: what Replication Monitor shows of them."""

from __future__ import annotations

import json
import secrets
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import yaml

from support.airflow_components import components, url, wait_until_healthy
from support.airflow_home import AirflowHome, metadata_on
from support.checkout import CHECKOUT
from support.databases import connection_environment, shared_databases
from support.embedded_postgres import PostgresServer
from support.processes import free_port
from support.site import Site
from support.spark_here import SparkHere
from tranrepl.connections import Connection

ADMIN, VIEWER = "admin", "viewer"
SECRET_ID = 471100815
"""A value of a row, which the error's text has."""
_PASSWORD = "p"  # noqa: S105 - of a server on loopback, for a minute


@dataclass(frozen=True, slots=True)
class MonitoredSites:
    """`orders` goes well, `shop` has failed, `away` has a Publisher that gives no answer, `fresh` is not set up."""

    url: str
    orders: Site
    """Its file says that a snapshot initializes its subscription; as it was set up, none did."""
    shop: Site
    away: Site
    """Its own databases answer a test; its file names a Publisher that does not."""

    def token(self, user: str) -> str:
        """Log in."""
        answer = httpx.post(f"{self.url}/auth/token", json={"username": user, "password": _PASSWORD})
        return str(answer.raise_for_status().json()["access_token"])

    def ask(self, path: str, user: str | None = None) -> httpx.Response:
        """Ask for one of the monitor's addresses, as a user or nobody."""
        headers = {} if user is None else {"Authorization": f"Bearer {self.token(user)}"}
        return httpx.get(f"{self.url}/monitor/{path}", headers=headers, timeout=30)

    def trigger(self, dag_id: str) -> str:
        """Trigger a run of a DAG, which waits for the scheduler; return its id."""
        headers = {"Authorization": f"Bearer {self.token(ADMIN)}"}
        body = {"logical_date": None}
        answer = httpx.post(f"{self.url}/api/v2/dags/{dag_id}/dagRuns", headers=headers, json=body)
        return str(answer.raise_for_status().json()["dag_run_id"])

    def triggered(self, dag_id: str) -> Mapping[str, Any]:
        """Return the parameters of the one run of a DAG that waits for the scheduler, which does not run here."""
        headers = {"Authorization": f"Bearer {self.token(ADMIN)}"}
        answer = httpx.get(f"{self.url}/api/v2/dags/{dag_id}/dagRuns?state=queued", headers=headers)
        (run,) = answer.raise_for_status().json()["dag_runs"]
        assert run["triggering_user_name"] == ADMIN
        return dict(run["conf"])


@contextmanager
def monitored_sites(
    server: PostgresServer, folder: Path, base_path: str = "", *, scheduled: bool = False
) -> Iterator[MonitoredSites]:
    """Make the publications, with an Airflow that has their DAGs, at a path of its address. `scheduled`: its scheduler
    runs, too, and each DAG is paused until somebody unpauses it."""
    with ExitStack() as stack:
        sites = {name: _site(name, server, folder, stack) for name in ("orders", "shop", "away")}
        for site in sites.values():
            _begin(site)
        _fail(sites["shop"])
        connections = {name: it for site in sites.values() for name, it in site.connections.items()}
        connections["away_publisher"] = replace(connections["away_publisher"], port=free_port())
        documents = {name: site.publication.model_dump(mode="json") for name, site in sites.items()}
        documents["orders"]["subscriptions"][0]["sync_type"] = "automatic"
        documents["fresh"] = {**documents["orders"], "publication": "fresh"}
        metadata = stack.enter_context(_metadata(server))
        home = _at_path(_airflow(folder, documents, connections, metadata), base_path)
        if scheduled:
            home = replace(home, settings={**home.settings, "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "True"})
        names = ("api-server", "scheduler", "dag-processor") if scheduled else ("api-server",)
        stack.enter_context(_components(home, folder, names))
        yield MonitoredSites(f"{url(home)}{base_path}", sites["orders"], sites["shop"], sites["away"])


def _site(name: str, server: PostgresServer, folder: Path, stack: ExitStack) -> Site:
    databases = stack.enter_context(shared_databases(server, f"monitor_{name}"))
    site = Site(
        databases,
        folder / "store" / name,
        ["public.item"],
        SparkHere(),
        [{"name": "reporting", "connection": f"{name}_subscriber"}],
        publication=name,
        publisher={"connection": f"{name}_publisher"},
        distributor={"connection": f"{name}_distribution", "store": str(folder / "store" / name)},
        schedule="*/5 * * * *",
    )
    roles = ("publisher", "subscriber", "distribution")
    site.connections = {f"{name}_{it}": replace(getattr(databases, it), connection_id=f"{name}_{it}") for it in roles}
    return site


def _begin(site: Site) -> None:
    site.at_publisher("CREATE TABLE item (id bigint PRIMARY KEY, note text)")
    site.set_up()
    site.at_publisher("INSERT INTO item SELECT n, 'note' FROM generate_series(1, 20) n")
    deliver(site)


def deliver(site: Site) -> None:
    """Read the log and deliver."""
    site.read_log().raise_error()
    site.deliver().raise_error()


def _fail(site: Site) -> None:
    site.at_publisher(f"INSERT INTO item VALUES ({SECRET_ID}, 'note')")
    deliver(site)
    site.at_subscriber(f"DELETE FROM item WHERE id = {SECRET_ID}")
    fail_again(site)


def fail_again(site: Site) -> None:
    """Change a row that the Subscriber does not have."""
    site.at_publisher(f"UPDATE item SET note = note || ' other' WHERE id = {SECRET_ID}")
    site.read_log().raise_error()
    assert site.deliver().error is not None


@contextmanager
def _metadata(server: PostgresServer) -> Iterator[Connection]:
    server.create_database("monitor_airflow")
    yield server.connection("monitor_airflow", "airflow")
    server.drop_database("monitor_airflow")


def _airflow(
    folder: Path, documents: Mapping[str, object], connections: Mapping[str, Connection], metadata: Connection
) -> AirflowHome:
    dags = folder / "dags"
    shutil.copytree(CHECKOUT / "dags", dags, ignore=shutil.ignore_patterns("__pycache__", "publications"))
    (dags / "publications").mkdir()
    for name, document in documents.items():
        (dags / "publications" / f"{name}.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    settings = {
        **metadata_on(metadata),
        "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(32),
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"{ADMIN}:admin,{VIEWER}:viewer",
    }
    environment = connection_environment(connections.values())
    home = AirflowHome(folder / "airflow", dags, CHECKOUT / "plugins", environment, free_port(), settings)
    home.home.mkdir()
    passwords = home.home / "simple_auth_manager_passwords.json.generated"
    passwords.touch(mode=0o600)
    passwords.write_text(json.dumps(dict.fromkeys((ADMIN, VIEWER), _PASSWORD)), encoding="utf-8")
    return home


def _at_path(home: AirflowHome, path: str) -> AirflowHome:
    address = f"{url(home)}{path}"
    addresses = {
        "AIRFLOW__API__BASE_URL": address,
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{address}/execution/",
    }
    return replace(home, settings={**home.settings, **addresses})


@contextmanager
def _components(home: AirflowHome, folder: Path, names: Collection[str]) -> Iterator[None]:
    logs = folder / "logs"
    home.run("db", "migrate", log=logs / "migrate.log")
    home.run("dags", "reserialize", log=logs / "reserialize.log")
    with components(home, logs, names) as processes:
        wait_until_healthy(home, processes, logs)
        yield
