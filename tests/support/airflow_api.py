"""Airflow's REST API, as its UI uses it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import httpx

from support.airflow_components import USER, password_of
from support.airflow_home import AirflowHome

FINISHED = ("success", "failed")


@dataclass(frozen=True, slots=True)
class Api:
    """With a user's token."""

    client: httpx.Client

    def get(self, path: str, **parameters: Any) -> Any:
        return self.client.get(path, params=parameters).raise_for_status().json()

    def pause(self, dag_id: str) -> None:
        self._set_paused(dag_id, is_paused=True)

    def unpause(self, dag_id: str) -> None:
        self._set_paused(dag_id, is_paused=False)

    def _set_paused(self, dag_id: str, *, is_paused: bool) -> None:
        self.client.patch(f"/dags/{dag_id}", json={"is_paused": is_paused}).raise_for_status()

    def trigger(self, dag_id: str) -> str:
        """Trigger a run, and return its id."""
        response = self.client.post(f"/dags/{dag_id}/dagRuns", json={"logical_date": None}).raise_for_status()
        return str(response.json()["dag_run_id"])

    def fail(self, dag_id: str, run_id: str) -> None:
        """Mark a run as failed, which ends its tasks."""
        self.client.patch(f"/dags/{dag_id}/dagRuns/{run_id}", json={"state": "failed"}).raise_for_status()

    def backfill(self, dag_id: str, first: datetime, last: datetime) -> None:
        """Start a backfill, as a person does in the UI."""
        asked = {"from_date": first.isoformat(), "to_date": last.isoformat(), "reprocess_behavior": "completed"}
        self.client.post("/backfills", json={"dag_id": dag_id, "max_active_runs": 1, **asked}).raise_for_status()

    def end_backfill(self, dag_id: str) -> None:
        """End a backfill whose runs have finished, as the scheduler does in half a minute; a DAG has one at a time."""
        for backfill in self.get("/backfills", dag_id=dag_id)["backfills"]:
            if backfill["completed_at"] is None:
                response = self.client.put(f"/backfills/{backfill['id']}/cancel")
                if response.status_code != httpx.codes.CONFLICT:  # what it says of one that has ended meanwhile
                    response.raise_for_status()

    def runs(self, dag_id: str, run_type: str) -> list[dict[str, Any]]:
        """Return the runs in the order of their intervals; none as long as one has not finished."""
        runs = self.all_runs(dag_id)
        mine = [run for run in runs if run["run_type"] == run_type]
        return mine if all(run["state"] in FINISHED for run in mine) else []

    def all_runs(self, dag_id: str) -> list[dict[str, Any]]:
        """Return all runs in the order of their intervals, whatever they do."""
        return list(self.get(f"/dags/{dag_id}/dagRuns", order_by="run_after", limit=100)["dag_runs"])

    def seconds(self, dag_id: str, run_id: str) -> dict[str, float]:
        """Return the seconds of each task of a run, from its start to its end."""
        tasks = self.get(f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances")["task_instances"]
        return {task["task_id"]: task["duration"] or 0.0 for task in tasks}

    def delivered(self, run: dict[str, Any], what: str = "transactions") -> int:
        """Return the transactions, or commands, that a run delivered."""
        path = f"/dags/{run['dag_id']}/dagRuns/{run['dag_run_id']}/taskInstances/reporting.delivered/xcomEntries"
        value = self.get(f"{path}/return_value")["value"]
        return int((json.loads(value) if isinstance(value, str) else value)[what])


@contextmanager
def connected(airflow: AirflowHome) -> Iterator[Api]:
    """Log in as the user that `password_of` made before the components were started."""
    base = f"http://127.0.0.1:{airflow.port}"
    user = {"username": USER, "password": password_of(airflow)}
    token = httpx.post(f"{base}/auth/token", json=user).raise_for_status().json()["access_token"]
    with httpx.Client(base_url=f"{base}/api/v2", headers={"Authorization": f"Bearer {token}"}, timeout=30) as client:
        yield Api(client)
