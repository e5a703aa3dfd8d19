"""What every integration test has."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def no_airflow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever Airflow this user has, also the demo's, is not asked for its pools."""
    monkeypatch.setenv("AIRFLOW_HOME", "/nowhere/airflow")
