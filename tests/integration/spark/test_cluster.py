"""The jobs on a cluster: executors are other processes than the driver, and know nothing but what Spark hands them."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from conftest import DatabasesFactory
from support.checkout import CHECKOUT
from support.kubernetes_api import kubernetes_api
from support.shell import publication_file, tranrepl
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
        _assert_all_is_delivered(site, tmp_path, master)
    workers = [sorted(it.glob("app-*/*/stderr")) for it in sorted((tmp_path / "cluster").glob("worker?"))]
    assert [len(it) for it in workers] == [1, 1], "the run's one application had an executor on each worker"
    assert any("CoarseGrainedExecutorBackend" in it for it in seen)
    _assert_no_secret(site, [*events.rglob("*"), *(tmp_path / "cluster").rglob("*")], seen)


@pytest.mark.slow
@pytest.mark.submit
def test_log_reader_and_streams_run_on_kubernetes_and_tell_it_no_secret(
    databases: DatabasesFactory, tmp_path: Path
) -> None:
    site = _site(databases, tmp_path)
    events = _event_log(
        tmp_path,
        f"spark.executor.instances {WORKERS}",
        "spark.executor.cores 1",
        "spark.kubernetes.container.image tranrepl",
        "spark.driver.host 127.0.0.1",
    )
    image = {"PYTHONPATH": str(LIBRARY), "SPARK_LOCAL_IP": "127.0.0.1"}
    with kubernetes_api(tmp_path / "cluster", image) as (master, api), _watched_arguments() as seen:
        _assert_all_is_delivered(site, tmp_path, master)
    pods = [it for it in api.requests if it.startswith("POST") and '"kind":"Pod"' in it]
    assert len(pods) == WORKERS
    executors = [it for it in seen if "KubernetesExecutorBackend" in it]
    assert executors
    assert all("spark.network.crypto.enabled=true" in it for it in executors)
    _assert_no_secret(site, [*events.rglob("*"), *(tmp_path / "cluster").rglob("*")], {*seen, *api.requests})


_STREAMS = {"name": "reporting", "connection": "subscriber", "subscription_streams": WORKERS}


def _site(databases: DatabasesFactory, folder: Path) -> Site:
    site = Site(databases(), folder / "store", ARTICLES, subscriptions=[_STREAMS])
    site.at_publisher(TABLES)
    site.set_up()
    site.at_publisher(*WORK)
    return site


def _assert_all_is_delivered(site: Site, folder: Path, master: str) -> None:
    file = publication_file(folder, ARTICLES, subscriptions=[_STREAMS])
    outcome = tranrepl(
        *("run", file, "--master", master, "--json"),
        environment={
            **site.databases.environment,
            "PYTHONPATH": str(LIBRARY),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_CONF_DIR": str(folder / "conf"),
            "SPARK_SUBMIT_OPTS": "",
        },
        timeout=300,
    )
    assert outcome.status == 0, outcome
    results = json.loads(outcome.out)
    assert results["reporting"]["commands"] == results["log reader"]["commands"] == 5951
    assert results["reporting"]["notices"] == []
    assert site.differences() == []


def _assert_no_secret(site: Site, files: Iterable[Path], said: Iterable[str]) -> None:
    secret = str(site.databases.publisher.password)
    written = [it for it in files if it.is_file()]
    assert [it for it in written if "events" in it.name]
    assert [it for it in written if secret.encode() in it.read_bytes()] == []
    assert [it for it in said if secret in it] == []


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
