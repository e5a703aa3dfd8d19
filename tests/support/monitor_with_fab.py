"""What each role of FAB's auth manager gets of Replication Monitor, as JSON: a process of its own, whose Airflow has
that auth manager. `python -m support.monitor_with_fab FOLDER`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

ROLES = ("Viewer", "User", "Op", "Admin")
_PUBLICATION = {
    "publication": "purchasing",
    "publisher": {"connection": "publisher"},
    "distributor": {"connection": "distribution", "store": "/nowhere/store"},
    "articles": [{"source": "public.item"}],
    "subscriptions": [{"name": "reporting", "connection": "subscriber"}],
}
_PAGES = ("/", "/api/overview", "/publication/purchasing/actions", "/publication/purchasing/errors")


def _answers(folder: Path) -> dict[str, dict[str, int]]:
    # What these import warns of the future of a dependency's dependency, and reads the environment.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from airflow.api_fastapi.app import create_app
        from airflow.api_fastapi.core_api.security import get_user
        from fastapi.testclient import TestClient

        from support.monitor_here import monitor_here

    with monitor_here(_PUBLICATION, folder) as app:
        create_app(apps="core")
        from airflow.api_fastapi.app import get_auth_manager

        manager = get_auth_manager().security_manager  # type: ignore[attr-defined]
        found = {}
        for role in ROLES:
            user = manager.find_user(username=role.lower())
            app.dependency_overrides[get_user] = lambda user=user: user
            client = TestClient(app, raise_server_exceptions=False)
            found[role] = {page: client.get(page).status_code for page in _PAGES}
            found[role]["check"] = client.post(
                "/api/publication/purchasing/actions/check", json={}, headers={"X-Replication-Monitor": "1"}
            ).status_code
    return found


def main(folder: Path) -> None:
    """Make an Airflow in the folder, with a user of each role, and ask as each of them."""
    (folder / "dags").mkdir()
    os.environ |= {
        "AIRFLOW_HOME": str(folder),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(folder / "dags"),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{folder / 'airflow.db'}",
        "AIRFLOW__CORE__AUTH_MANAGER": "airflow.providers.fab.auth_manager.fab_auth_manager.FabAuthManager",
    }
    commands = [["db", "migrate"]]
    commands += [
        ["users", "create", "-u", it.lower(), "-p", "p", "-r", it, "-e", f"{it}@example.com", "-f", "a", "-l", "b"]
        for it in ROLES
    ]
    for command in commands:
        subprocess.run([sys.executable, "-m", "airflow", *command], check=True, capture_output=True)
    (folder / "answers.json").write_text(json.dumps(_answers(folder / "dags")), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
