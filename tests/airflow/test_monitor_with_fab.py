"""Replication Monitor's rights under FAB's auth manager, where its provider is installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from support.checkout import CHECKOUT


@pytest.mark.skipif(find_spec("airflow.providers.fab") is None, reason="needs apache-airflow-providers-fab")
def test_each_role_of_fabs_auth_manager(tmp_path: Path) -> None:
    environment = {name: it for name, it in os.environ.items() if not name.startswith("AIRFLOW")}
    asked = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "support.monitor_with_fab", str(tmp_path)],
        env={**environment, "PYTHONPATH": str(CHECKOUT / "tests")},
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
    )
    assert asked.returncode == 0, asked.stderr
    found = json.loads((tmp_path / "answers.json").read_text(encoding="utf-8"))
    assert {set(it.values()) == {403} for role, it in found.items() if role in ("Viewer", "User")} == {True}
    for role in ("Op", "Admin"):
        asked_for = found[role]
        assert (asked_for["/"], asked_for["/api/overview"], asked_for["/publication/purchasing/actions"]) == (200,) * 3
        assert asked_for["check"] == 200
