"""What a real job's log has in it: one `spark-submit`, with its JVM."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk import BaseHook, Connection

from tranrepl.settings.publication import Publication
from tranrepl.spark.output import is_chatter, submission_variables
from tranrepl_airflow.operators import LogReaderOperator
from tranrepl_airflow.outcome import ReplicationStopped

if TYPE_CHECKING:
    from airflow.conftest import IdleChecks


class _TaskInstance:
    def xcom_push(self, key: str, value: Any) -> None:
        """Keep nothing."""


@pytest.mark.submit
def test_a_jobs_log_says_what_went_wrong_and_nothing_of_sparks_start(
    publication: Publication,
    stored_connections: dict[str, dict[str, Any]],
    idle_checks: IdleChecks,
    monkeypatch: pytest.MonkeyPatch,
    closed_pipes: None,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def get_connection(_: type[BaseHook], connection_id: str) -> Connection:
        nowhere = {"host": "127.0.0.1", "port": 9} if connection_id != "spark_default" else {}
        return Connection(conn_id=connection_id, **{**stored_connections[connection_id], **nowhere})

    monkeypatch.setattr(BaseHook, "get_connection", classmethod(get_connection))
    operator = LogReaderOperator(task_id="log_reader", publication=publication)
    with pytest.raises(ReplicationStopped):
        operator.execute({"ti": _TaskInstance()})  # type: ignore[typeddict-item]
    said = [line.partition("] ")[2] for line in capfd.readouterr().out.splitlines() if "_JobHook]" in line]
    assert [it.split(": ")[0] for it in said] == ["Spark-Submit cmd", "error"], said
    assert "connection distribution" in said[1]
    assert caplog.messages[-1].splitlines()[-1] == "tranrepl run dags/publications/purchasing.yaml"


def test_logging_that_somebody_has_configured_stays(tmp_path: Path) -> None:
    bare = {name: value for name, value in os.environ.items() if name != "SPARK_SUBMIT_OPTS"}
    assert "log4j2.properties" in submission_variables(bare)["SPARK_SUBMIT_OPTS"]
    own = {**bare, "SPARK_SUBMIT_OPTS": "-Dlog4j2.configurationFile=mine"}
    assert "tranrepl/log4j2" not in submission_variables(own).get("SPARK_SUBMIT_OPTS", "")
    (tmp_path / "log4j2.properties").touch()
    configured = submission_variables({**bare, "SPARK_CONF_DIR": str(tmp_path)})
    assert "log4j2" not in configured.get("SPARK_SUBMIT_OPTS", "")


def test_malloc_has_few_arenas_unless_somebody_says_how_many() -> None:
    assert submission_variables({})["MALLOC_ARENA_MAX"] == "2"
    assert submission_variables({"MALLOC_ARENA_MAX": "4"})["MALLOC_ARENA_MAX"] == "4"


def test_real_warnings_are_no_chatter() -> None:
    assert is_chatter("WARNING: Using incubator modules: jdk.incubator.vector\n")
    assert not is_chatter("WARNING: An illegal reflective access operation has occurred")
    assert not is_chatter("26/11/23 11:38:09 ERROR Executor: Exception in task 0.0")
