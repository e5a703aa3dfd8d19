"""`python -m benchmarks.monitor_pages FILE FOLDER`: how long Replication Monitor takes for each of its pages.

FILE holds the settings of a publication that is set up, FOLDER is where its DAG file goes; Airflow is the
environment's.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from pathlib import Path

from support.monitor_here import monitor_here


def main() -> None:
    # What is imported warns of the future of a dependency's dependency.
    warnings.simplefilter("ignore")
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
    from airflow.api_fastapi.core_api.security import get_user
    from fastapi.testclient import TestClient

    from tranrepl_airflow.monitor.rendering import ALL_PARTS

    file, folder = map(Path, sys.argv[1:])
    publication = json.loads(file.read_text(encoding="utf-8"))
    name = publication["publication"]
    taken: dict[str, float] = {}
    with monitor_here(publication, folder) as app:
        app.dependency_overrides[get_user] = lambda: SimpleAuthManagerUser(username="admin", role="ADMIN")
        client = TestClient(app)
        for page in ("", *(f"publication/{name}/{it}".rstrip("/") for it in ALL_PARTS)):
            # Once before, as an API server that has run for a while.
            client.get(f"/{page}").raise_for_status()
            begun = time.perf_counter()
            client.get(f"/{page}").raise_for_status()
            taken[f"page: {page.removeprefix(f'publication/{name}').strip('/') or page or 'overview'}"] = (
                time.perf_counter() - begun
            )
    sys.stdout.write(f"{json.dumps(taken)}\n")


if __name__ == "__main__":
    main()
