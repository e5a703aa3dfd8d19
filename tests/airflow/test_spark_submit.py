"""How a task finds Spark and where its job runs: `spark-submit`, Java, the Spark connection and its master."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from airflow.providers.apache.spark.hooks import spark_submit

from support.replication_tasks import PASSWORD, Run, log_reader
from tranrepl.jobs.results import JobResult
from tranrepl.settings.publication import Publication
from tranrepl.spark import class_archive
from tranrepl_airflow import spark_connection as spark_connections
from tranrepl_airflow.outcome import ReplicationStopped

if TYPE_CHECKING:
    from airflow.conftest import FakeSpark


def test_the_job_starts_from_the_archive_of_classes(
    run: Run, publication: Publication, fake_spark: FakeSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(class_archive, "find_archive", lambda _: Path("/archive.jsa"))
    monkeypatch.delenv("SPARK_SUBMIT_OPTS", raising=False)
    run(log_reader(publication))
    run(log_reader(publication, env_vars={"SPARK_SUBMIT_OPTS": "-Dmine=1"}))
    monkeypatch.setattr(class_archive, "find_archive", lambda _: None)
    run(log_reader(publication))
    first, own, without = (call["java_options"] for call in fake_spark.calls)
    assert '"-XX:SharedArchiveFile=/archive.jsa" -Xshare:auto ' in first
    assert own == f"{first} -Dmine=1"
    assert "SharedArchiveFile" not in without


def test_executors_on_a_cluster_keep_their_own_python(
    run: Run, publication: Publication, fake_spark: FakeSpark, connections: dict[str, Any]
) -> None:
    connections["spark_default"] = {"conn_type": "spark", "host": "spark://head", "port": 7077}
    run(log_reader(publication))
    (call,) = fake_spark.calls
    assert call["argv"][call["argv"].index("--master") + 1] == "spark://head:7077"
    assert not [argument for argument in call["argv"] if argument.startswith("spark.pyspark.python=")]
    assert not [argument for argument in call["argv"] if "127.0.0.1" in argument]


def test_a_missing_java_is_told_instead(
    run: Run, publication: Publication, fake_spark: FakeSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_spark.folder))
    fake_spark.answer("log_reader", None, exit_code=1, output="JAVA_HOME is not set")
    with pytest.raises(ReplicationStopped, match="Spark needs Java"):
        run(log_reader(publication))


@pytest.mark.parametrize(
    ("spark_connection", "message"),
    [
        (None, "Spark connection spark_default"),
        ({"conn_type": "spark", "host": "k8s://https://cluster"}, "apache-airflow-providers-cncf-kubernetes"),
        ({"conn_type": "spark", "host": "spark://head:7077", "extra": {"deploy-mode": "cluster"}}, "cluster mode"),
    ],
)
def test_a_missing_or_unsafe_spark_connection_is_refused(
    run: Run,
    publication: Publication,
    connections: dict[str, Any],
    fake_spark: FakeSpark,
    spark_connection: dict[str, Any] | None,
    message: str,
) -> None:
    del connections["spark_default"]
    if spark_connection is not None:
        connections["spark_default"] = spark_connection
    with pytest.raises(ReplicationStopped, match=message):
        run(log_reader(publication))
    assert fake_spark.calls == []


@pytest.mark.parametrize("output", ["", "done"])
@pytest.mark.parametrize(
    ("spark_connection", "master"),
    [
        ({"conn_type": "spark", "host": "yarn"}, "yarn"),
        ({"conn_type": "spark", "host": "k8s://https://cluster", "port": 6443}, "k8s://https://cluster:6443"),
    ],
)
def test_the_environment_is_the_process_own_on_every_master(
    run: Run,
    publication: Publication,
    connections: dict[str, Any],
    fake_spark: FakeSpark,
    monkeypatch: pytest.MonkeyPatch,
    spark_connection: dict[str, Any],
    master: str,
    output: str,
) -> None:
    # What the Spark provider imports of the provider for Kubernetes, which it uses in cluster mode only.
    monkeypatch.setattr(spark_submit, "kube_client", object(), raising=False)
    monkeypatch.setattr(spark_connections, "find_spec", lambda _: object())
    connections["spark_default"] = {**spark_connection, "extra": {"namespace": "etl"}}
    fake_spark.answer("log_reader", JobResult(), output=output)
    run(log_reader(publication))
    (call,) = fake_spark.calls
    argv = call["argv"]
    assert (argv[argv.index("--master") + 1], argv[argv.index("--deploy-mode") + 1]) == (master, "client")
    assert json.loads(call["environment"]["AIRFLOW_CONN_PUBLISHER"])["password"] == PASSWORD
    assert [it for it in argv if PASSWORD in it or "Env." in it] == []
    for setting in ("spark.authenticate=true", "spark.network.crypto.enabled=true", "spark.kubernetes.namespace=etl"):
        assert (setting in argv) == (master != "yarn")


def test_spark_submit_is_found_beside_this_python(
    run: Run, publication: Publication, fake_spark: FakeSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(fake_spark.folder.with_name("bin") / "python"))
    monkeypatch.setenv("PATH", os.defpath)
    run(log_reader(publication))
    assert fake_spark.jobs == ["log_reader"]


def test_no_spark_submit_at_all_is_told(
    run: Run, publication: Publication, fake_spark: FakeSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(fake_spark.folder / "python"))
    monkeypatch.setenv("PATH", str(fake_spark.folder))
    with pytest.raises(ReplicationStopped, match="neither on PATH nor beside"):
        run(log_reader(publication))


def test_a_spark_home_without_spark_is_told(
    run: Run, publication: Publication, fake_spark: FakeSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_HOME", "/nowhere")
    with pytest.raises(ReplicationStopped, match="SPARK_HOME=/nowhere: there is no Spark"):
        run(log_reader(publication))
    assert fake_spark.calls == []
