"""The jobs on a cluster: executors are other processes than the driver, and know nothing but what Spark hands them."""

from __future__ import annotations

import json
import re
import shlex
import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from conftest import DatabasesFactory
from support.checkout import CHECKOUT, shell_blocks
from support.continuous_run import start, written
from support.databases import connection_environment
from support.kubernetes_api import kubernetes_api
from support.object_server import Bucket
from support.observed import wait_until
from support.shell import COMMAND, Outcome, tranrepl
from support.site import Site
from support.spark_cluster import WORKERS, short_lived, spark_cluster

LIBRARY = CHECKOUT / "spark_jobs"
ARTICLES = [{"source": "public.part"}, {"source": "public.stock"}]
TABLES = """
    CREATE TABLE part (part_id int PRIMARY KEY, name text NOT NULL, price numeric(9, 2));
    CREATE TABLE stock (part_id int, place int, quantity int, PRIMARY KEY (part_id, place));
"""
WORK = (
    "INSERT INTO part SELECT n, 'part ' || n, n % 100 FROM generate_series(1, 2000) AS n",
    "INSERT INTO stock SELECT n, 1, n % 10 FROM generate_series(1, 2000) AS n",
    "UPDATE part SET price = price + 1 WHERE part_id % 3 = 0",
    "UPDATE stock SET quantity = quantity + 3 WHERE part_id % 2 = 0",
    "DELETE FROM part WHERE part_id % 7 = 0",
)


@pytest.mark.slow
@pytest.mark.submit
def test_log_reader_and_streams_run_on_a_cluster_and_tell_it_no_secret(
    databases: DatabasesFactory, tmp_path: Path
) -> None:
    site = _site(databases, tmp_path)
    events = _event_log(tmp_path)
    # As the package is installed where workers run.
    with spark_cluster(tmp_path / "cluster", {"PYTHONPATH": str(LIBRARY)}) as master, _watched_arguments() as seen:
        (run,) = _commands("spark://", site, tmp_path, master)
        _assert_all_is_delivered(run, site, tmp_path)
    workers = [sorted(it.glob("app-*/*/stderr")) for it in sorted((tmp_path / "cluster").glob("worker?"))]
    assert [len(it) for it in workers] == [1, 1], "the run's one application had an executor on each worker"
    assert any("CoarseGrainedExecutorBackend" in it for it in seen)
    _assert_no_secret(site, [*events.rglob("*"), *(tmp_path / "cluster").rglob("*")], seen)


@pytest.mark.slow
@pytest.mark.submit
def test_the_page_on_scaling_out_is_typed_on_kubernetes_with_a_bucket_and_tells_no_secret(
    databases: DatabasesFactory, tmp_path: Path, bucket: Bucket
) -> None:
    site = Site(databases(), bucket, ARTICLES, subscriptions=[_STREAMS])
    site.at_publisher(TABLES)
    settings = _block("text").replace("worker.example", "127.0.0.1")
    assert f"spark.executor.instances {WORKERS}" in settings
    events = _event_log(tmp_path, *settings.splitlines())
    image = {"PYTHONPATH": str(LIBRARY), "SPARK_LOCAL_IP": "127.0.0.1"}
    with kubernetes_api(tmp_path / "cluster", image) as (master, api), _watched_arguments() as seen:
        check, setup, run, continuous = _commands("k8s://", site, tmp_path, master)
        for command in (check, setup):
            _run(command, site, tmp_path)
        site.at_publisher(*WORK)
        _assert_all_is_delivered(run, site, tmp_path)
        _assert_continuous_agents_deliver(continuous, site, tmp_path)
    pods = [it for it in api.requests if it.startswith("POST") and '"kind":"Pod"' in it]
    assert len(pods) >= 2 * WORKERS
    executors = [it for it in seen if "KubernetesExecutorBackend" in it]
    assert executors
    assert all("spark.network.crypto.enabled=true" in it for it in executors)
    _assert_no_secret(site, [*events.rglob("*"), *(tmp_path / "cluster").rglob("*")], {*seen, *api.requests})


_STREAMS = {"name": "reporting", "connection": "subscriber", "subscription_streams": WORKERS}
_PAGE = CHECKOUT / "docs" / "how-to" / "scale-out.md"


def _block(language: str) -> str:
    found = re.search(f"```{language}\n(.*?)```", _PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    return found[1]


def _commands(kind: str, site: Site, folder: Path, master: str) -> list[list[str]]:
    """Return the page's commands for a kind of master, with the addresses of here."""
    (block,) = (it for it in shell_blocks(_PAGE) if kind in it.text)
    places = {"dags/publications/shop.yaml": str(written(site, folder)), "tranrepl": str(COMMAND)}
    return [
        [master if it.startswith(kind) else places.get(it, it) for it in shlex.split(command)]
        for command in block.commands
    ]


def _environment(site: Site, folder: Path) -> dict[str, str]:
    return {
        **connection_environment(site.connections.values()),
        "PYTHONPATH": str(LIBRARY),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_CONF_DIR": str(folder / "conf"),
        "SPARK_SUBMIT_OPTS": "",
    }


def _run(command: list[str], site: Site, folder: Path, *options: str) -> Outcome:
    outcome = tranrepl(*command[1:], *options, environment=_environment(site, folder), timeout=300)
    assert outcome.status == 0, outcome
    return outcome


def _site(databases: DatabasesFactory, folder: Path) -> Site:
    site = Site(databases(), folder / "store", ARTICLES, subscriptions=[_STREAMS])
    site.at_publisher(TABLES)
    site.set_up()
    site.at_publisher(*WORK)
    return site


def _assert_all_is_delivered(command: list[str], site: Site, folder: Path) -> None:
    results = json.loads(_run(command, site, folder, "--json").out)
    assert results["reporting"]["commands"] == results["log reader"]["commands"] == 5951
    assert results["reporting"]["notices"] == []
    assert site.differences() == []


def _assert_continuous_agents_deliver(command: list[str], site: Site, folder: Path) -> None:
    with (folder / "output").open("wb") as output:
        process = start(command, _environment(site, folder), output)
    try:
        for number in range(3):
            row = 9000 + number
            site.at_publisher(f"INSERT INTO part VALUES ({row}, 'late', 1)", f"INSERT INTO stock VALUES ({row}, 1, 1)")
            wait_until(partial(_arrived, site, row), lambda: process.poll() is None)
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0, (folder / "output").read_text(encoding="utf-8")
    finally:
        process.kill()
        process.wait()
    assert site.differences() == []


def _arrived(site: Site, row: int) -> bool:
    return site.at_subscriber(f"SELECT 1 FROM stock JOIN part USING (part_id) WHERE part_id = {row}") != []


def _assert_no_secret(site: Site, files: Iterable[Path], said: Iterable[str]) -> None:
    secrets = {str(it.password) for it in site.connections.values()}
    logged = [it for it in files if it.is_file()]
    assert [it for it in logged if "events" in it.name]
    assert [it for it in logged if any(secret.encode() in it.read_bytes() for secret in secrets)] == []
    assert [it for it in said if any(secret in it for secret in secrets)] == []


def _event_log(folder: Path, *others: str) -> Path:
    """Return where Spark logs all it does, its configuration included; Spark's own settings stand beside."""
    settings, events = folder / "conf", folder / "conf" / "events"
    events.mkdir(parents=True)
    (settings / "spark-defaults.conf").write_text(
        f"spark.eventLog.enabled true\nspark.eventLog.dir {events}\nspark.eventLog.compress false\n"
        f"spark.ui.enabled false\nspark.executor.memory 512m\nspark.log.level WARN\n"
        f"spark.driver.extraJavaOptions {short_lived()}\nspark.executor.extraJavaOptions {short_lived()}\n"
        + "".join(f"{it}\n" for it in others),
        encoding="utf-8",
    )
    return events


@contextmanager
def _watched_arguments() -> Iterator[set[str]]:
    """Collect the arguments of every process on this machine, as anyone sees them."""
    seen: set[str] = set()
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.5):
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    seen.add(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
                except OSError:
                    continue

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()
