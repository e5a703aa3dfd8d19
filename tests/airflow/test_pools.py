"""Airflow's pools: the scheduler makes them, teardown removes them."""

from __future__ import annotations

import io
import subprocess
from contextlib import redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from airflow.cli.cli_parser import get_parser
from airflow.models.dagrun import DagRun
from airflow.models.pool import Pool
from airflow.utils.session import create_session
from sqlalchemy import delete, select

from tranrepl.admin.airflow_pools import find_pools, remove_pools
from tranrepl.errors import ConfigurationError
from tranrepl.settings.publication import Publication
from tranrepl_airflow.dag_builder import publication_dag
from tranrepl_airflow.missing_pools import on_dag_run_running

POOLS = {"replication_purchasing_reporting": 1, "replication_purchasing_audit": 1}


def _pools() -> dict[str, int]:
    with create_session() as session:
        pools = session.scalars(select(Pool).where(Pool.pool.startswith("replication_")))
        return {str(pool.pool): pool.slots for pool in pools}


def _forget_pools() -> None:
    with create_session() as session:
        session.execute(delete(Pool).where(Pool.pool.startswith("replication_")))


def _run_here(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
    """Run an `airflow` command in this process, which has imported Airflow already."""
    told = io.StringIO()
    with redirect_stdout(told):
        arguments = get_parser().parse_args(command[1:])
        arguments.func(arguments)
    return subprocess.CompletedProcess(command, 0, told.getvalue(), "")


def _create_pool(name: str, slots: int) -> None:
    with create_session() as session:
        session.add(Pool(pool=name, slots=slots, description="", include_deferred=False))


def test_teardown_removes_pools(airflow_home: Path, publication: Publication, monkeypatch: pytest.MonkeyPatch) -> None:
    _forget_pools()
    audit, reporting = "replication_purchasing_audit", "replication_purchasing_reporting"
    _create_pool(audit, slots=3)
    _create_pool(reporting, slots=1)
    monkeypatch.setattr(subprocess, "run", _run_here)
    assert find_pools(publication.publication, ["audit", "absent"]) == [audit]
    remove_pools([audit])
    assert _pools() == {reporting: 1}


@pytest.mark.slow
def test_without_an_airflow_teardown_says_what_to_do(
    publication: Publication, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN")
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path / "absent"))
    with pytest.raises(ConfigurationError, match="no Airflow with a database") as refused:
        find_pools(publication.publication, ["audit"])
    assert "airflow pools delete replication_purchasing_audit" in str(refused.value)
    assert not (tmp_path / "absent").exists()
    monkeypatch.setenv("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", f"sqlite:///{tmp_path}/empty.db")
    failed = r"pools are not removed: `airflow pools` failed with status \d+: is its database migrated\?"
    with pytest.raises(ConfigurationError, match=failed):
        find_pools(publication.publication, ["audit"])


def test_the_scheduler_creates_what_is_missing_when_it_starts_a_run(
    airflow_home: Path, publication: Publication
) -> None:
    _forget_pools()
    _create_pool("replication_purchasing_audit", slots=3)
    for _ in range(2):
        with create_session() as session:
            run = DagRun(dag_id="purchasing", run_id="run")
            session.add(run)
            run.dag = cast("Any", SimpleNamespace(tasks=publication_dag(publication, "shop.yaml").tasks))
            with session.no_autoflush:
                on_dag_run_running(run, "started")
            session.expunge(run)
        assert _pools() == {**POOLS, "replication_purchasing_audit": 3}
