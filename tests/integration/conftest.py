"""What every integration test has."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def no_airflow() -> Iterator[None]:
    """Whatever Airflow this user has, also the demo's, is not asked for its pools."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW_HOME", "/nowhere/airflow")
        yield
